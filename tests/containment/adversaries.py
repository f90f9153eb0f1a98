"""Hostile programs: each hides, multiplies or holds on in its own way.

All are written to stay: none ends by itself, none gives in to an interrupt,
and none grows beyond a few dozen processes. Each says `up` once what it left
behind is running. `{mark}` is a word that names its processes: their name
(prctl PR_SET_NAME), which a fork inherits, or an argument, which survives an
exec. What wears no mark at all is found by where it hangs in the tree.
"""

__all__ = ["ADVERSARIES", "program"]

STAY = """
import ctypes, os, signal, sys, threading, time

def wear(mark):
    ctypes.CDLL(None).prctl(15, mark.encode(), 0, 0, 0)

def deaf():
    for number in range(1, signal.NSIG):
        try:
            signal.signal(number, signal.SIG_IGN)
        except (OSError, ValueError):
            pass

def stay():
    while True:
        try:
            time.sleep(1000)
        except BaseException:
            pass

def up():
    print("up", flush=True)

wear("{mark}")
os.nice(19)  # the machine is shared
"""

HIDDEN = """
for _ in range(2):  # a double fork, out of the session, deaf, nameless
    if os.fork() == 0:
        os.setsid()
        deaf()
        if os.fork() == 0:
            os.setsid()
            os.environ.clear()
            wear("[kworker]")
            os.execve(sys.executable, ["[kworker]", "-ISc", "{nap}"], {{}})
        os._exit(0)
up(); deaf(); stay()
"""

BOMB = """
def burst(depth):  # 2 + 4 that stay, and 8 that never rest
    deaf()
    for _ in range(2):
        if os.fork() == 0:
            if depth == 3:
                restless()
            burst(depth + 1)
    stay()

def restless():
    while True:  # a new process each time, and the old one gone
        try:
            if os.fork() != 0:
                os._exit(0)
        except OSError:
            pass
        time.sleep(0.05)

if os.fork() == 0:
    burst(1)
up(); deaf(); stay()
"""

RUNNER = """
def run():  # its number, its session and its parent change without end
    while True:
        try:
            os.setsid()
        except OSError:
            pass
        try:
            if os.fork() != 0:
                os._exit(0)
        except OSError:
            pass
        time.sleep(0.02)

for _ in range(2):
    if os.fork() == 0:
        deaf()
        run()
up(); deaf(); stay()
"""

STOPPED = """
if os.fork() == 0:
    up()
    try:
        os.kill(os.getpid(), signal.SIGSTOP)
    finally:
        stay()
time.sleep(0.1)
os.kill(os.getpid(), signal.SIGSTOP)
stay()
"""

SPAWNER = """
import subprocess
argv = [sys.executable, "-ISc", "{nap}", "{mark}"]
os.posix_spawn(sys.executable, argv, {{}})
subprocess.Popen(argv)
subprocess.Popen(argv, start_new_session=True, close_fds=False)
subprocess.Popen(["/bin/sh", "-c", "trap '' TERM INT HUP; sleep 1000 & wait"])
os.system("sleep 1000 & :")
up(); deaf(); stay()
"""

POOL = """
import multiprocessing
try:
    pool = multiprocessing.get_context("fork").Pool(3)
    work = pool.map_async(time.sleep, [1000] * 9)
except (OSError, PermissionError):
    pass  # a clean refusal is as good
up(); deaf(); stay()
"""

LOOPS = """
import hashlib
def burn():
    hashlib.pbkdf2_hmac("sha512", b"x", b"y", 2**31 - 1)
for _ in range(2):
    threading.Thread(target=burn, daemon=True).start()
if os.fork() == 0:
    sum(range(10**12))
up(); deaf(); sum(range(10**12))
"""

HOLDER = """
inward, outward = os.pipe()
if os.fork() == 0:  # holds the run's output for ever
    deaf()
    stay()
if os.fork() == 0:  # stuck in a pipe that nobody reads
    deaf()
    while True:
        os.write(outward, b"x" * 65536)
up(); deaf()
os.write(outward, b"x" * 10**7)
stay()
"""

TREE = """
def grow(depth):  # each the parent of the next, all deaf
    deaf()
    if depth < 8 and os.fork() == 0:
        try:
            os.setpgid(0, 0)
        except OSError:
            pass
        grow(depth + 1)
    stay()

if os.fork() == 0:
    grow(0)
up(); deaf(); stay()
"""

ADVERSARIES = {
    "hidden": HIDDEN,
    "bomb": BOMB,
    "runner": RUNNER,
    "stopped": STOPPED,
    "spawner": SPAWNER,
    "pool": POOL,
    "loops": LOOPS,
    "holder": HOLDER,
    "tree": TREE,
}
"""By name."""

NAP = (
    "import signal, time;"
    " [signal.signal(n, signal.SIG_IGN) for n in (1, 2, 15)];"
    " time.sleep(1000)"
)


def program(name: str, mark: str) -> str:
    """The text of an adversary whose processes wear `mark`."""
    return (STAY + ADVERSARIES[name]).format(mark=mark, nap=NAP)
