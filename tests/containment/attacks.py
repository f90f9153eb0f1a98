"""What hostile code tries, in the words that it runs as.

Standard library only: this text is run in workers of every tier and engine.
Each attack runs in a child of its own and ends in the name of an errno, in
`open` when it did what it wanted, or in a short value.
"""

import ctypes
import errno
import fcntl
import json
import os
import platform
import resource
import signal
import socket
import stat
import struct
import subprocess  # a worker may start processes; tests call this directly
import sys
from collections.abc import Callable

Targets = dict[str, object]
"""port, path (of a unix socket), abstract, victim (pid), secret, outside."""

OPEN = "open"
X86 = platform.machine() == "x86_64"
LIBC = ctypes.CDLL(None, use_errno=True)


def call(x86: int, arm: int, *arguments: object) -> int:
    """Make a raw system call, and raise what it answers."""
    result = int(LIBC.syscall(x86 if X86 else arm, *arguments))
    if result < 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))
    return result


def tcp(t: Targets) -> None:
    """Connect to a listener of the host."""
    socket.create_connection(("127.0.0.1", t["port"]), 5).close()  # type: ignore[arg-type]


def udp(t: Targets) -> None:
    """Send a packet to the host."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as sock:
        sock.sendto(b"x", ("127.0.0.1", t["port"]))


def unix_path(t: Targets) -> None:
    """Connect to a socket such as the daemon's own."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect(str(t["path"]))


def unix_path_by_pair(t: Targets) -> None:
    """Address a socket's path from a datagram pair, which needs no socket()."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_DGRAM)
    one.sendto(b"x", str(t["datagrams"]))


def unix_path_by_raw_pair(t: Targets) -> None:
    """The same with the type that the kernel turns into datagrams."""
    one, _ = socket.socketpair(socket.AF_UNIX, socket.SOCK_RAW)
    one.sendto(b"x", str(t["datagrams"]))


def unix_abstract(t: Targets) -> None:
    """Connect to a name that no file system guards."""
    with socket.socket(socket.AF_UNIX) as sock:
        sock.connect("\0" + str(t["abstract"]))


def netlink(_: Targets) -> None:
    """Talk to the kernel's network configuration."""
    socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, 0).close()


def vsock(_: Targets) -> None:
    """Talk to the hypervisor."""
    socket.socket(socket.AF_VSOCK, socket.SOCK_STREAM).close()


def listen(_: Targets) -> None:
    """Wait for connections on a pair's end, given a name."""
    one, _other = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
    one.bind("listener")


def read_secret(t: Targets) -> None:
    """Read a private file of the daemon's user."""
    with open(str(t["secret"])) as file:
        file.read()


def write_outside(t: Targets) -> None:
    """Leave a file on the host."""
    with open(f"{t['outside']}/left", "w") as file:
        file.write("x")


def write_library(_: Targets) -> None:
    """Change the interpreter that everybody runs."""
    os.close(os.open(os.__file__, os.O_WRONLY))


def close_file(t: Targets) -> None:
    """Take the daemon's rights on a file of its own, which Landlock does not see."""
    os.chmod(str(t["secret"]), 0o400)
    if os.stat(str(t["secret"])).st_mode & 0o200:
        raise OSError(errno.EPERM, "it did nothing")


def touch_file(t: Targets) -> None:
    """Change the times of the daemon's file."""
    os.utime(str(t["secret"]), (1, 1))
    if os.stat(str(t["secret"])).st_mtime != 1:
        raise OSError(errno.EPERM, "it did nothing")


def give_file(t: Targets) -> None:
    """Change the owner of the daemon's file, if only to itself."""
    os.chown(str(t["secret"]), -1, -1)


def mark_file(t: Targets) -> None:
    """Leave a mark on the daemon's file, which other sessions could read."""
    os.setxattr(str(t["secret"]), "user.mark", b"x")


def read_passwords(_: Targets) -> None:
    """Read the host's password hashes."""
    with open("/etc/shadow") as file:
        file.read(1)


def make_device(_: Targets) -> None:
    """Make a node of the first memory disk."""
    os.mknod("disk", stat.S_IFBLK | 0o600, os.makedev(1, 0))


def open_device(_: Targets) -> None:
    """Open a device that a computation has no use for."""
    os.close(os.open("/dev/ptmx", os.O_RDWR | os.O_NOCTTY))


def find_accelerators(_: Targets) -> None:
    """Open any GPU or other dangerous node."""
    for name in ("nvidia0", "nvidiactl", "dri/renderD128", "kfd", "kvm", "mem", "fuse"):
        try:
            os.close(os.open(f"/dev/{name}", os.O_RDWR))
        except OSError:
            continue
        return
    raise OSError(errno.ENOENT, "none")


def see_environment(t: Targets) -> None:
    """Read the daemon's environment."""
    with open(f"/proc/{t['victim']}/environ", "rb") as file:
        file.read()


def see_command(t: Targets) -> None:
    """Read the daemon's command line."""
    with open(f"/proc/{t['victim']}/cmdline", "rb") as file:
        file.read()


def see_descriptors(t: Targets) -> None:
    """List what the daemon has open."""
    os.listdir(f"/proc/{t['victim']}/fd")


def open_memory(t: Targets) -> None:
    """Open the daemon's memory."""
    with open(f"/proc/{t['victim']}/mem", "rb"):
        pass


def list_processes(t: Targets) -> None:
    """Find the daemon among the processes."""
    if str(t["victim"]) not in os.listdir("/proc"):
        raise OSError(errno.ENOENT, "not there")


def notice_process(t: Targets) -> None:
    """Learn that a process of this number exists."""
    os.stat(f"/proc/{t['victim']}")


def kill(t: Targets) -> None:
    """Signal the daemon."""
    os.kill(t["victim"], 0)  # type: ignore[arg-type]


def kill_thread(t: Targets) -> None:
    """Signal one of its threads."""
    call(234, 131, t["victim"], t["victim"], 0)


def queue_signal(t: Targets) -> None:
    """Signal it with a value."""
    info = ctypes.create_string_buffer(128)
    ctypes.memmove(info, (-1).to_bytes(12, "little", signed=True)[:4] * 3, 12)
    call(129, 138, t["victim"], 0, info)


def signal_descriptor(t: Targets) -> None:
    """Signal it through a descriptor."""
    signal.pidfd_send_signal(os.pidfd_open(t["victim"]), 0)  # type: ignore[arg-type]


def signal_by_owner(t: Targets) -> None:
    """Have the kernel signal it when a pipe is ready."""
    reader, _writer = os.pipe()
    fcntl.fcntl(reader, fcntl.F_SETOWN, t["victim"])  # type: ignore[call-overload]


def choose_signal(_: Targets) -> None:
    """Choose which signal that will be."""
    reader, _writer = os.pipe()
    fcntl.fcntl(reader, 10, signal.SIGTERM)  # F_SETSIG


def limit(t: Targets) -> None:
    """Reach its resource limits: a second of processor time would kill it."""
    resource.prlimit(t["victim"], resource.RLIMIT_CORE)  # type: ignore[arg-type]


def pin(t: Targets) -> None:
    """Move it between processors."""
    os.sched_setaffinity(t["victim"], os.sched_getaffinity(0))  # type: ignore[arg-type]


def slow(t: Targets) -> None:
    """Lower its priority."""
    os.setpriority(os.PRIO_PROCESS, t["victim"], 1)  # type: ignore[arg-type]


def trace(t: Targets) -> None:
    """Trace it."""
    call(101, 117, 16, t["victim"], 0, 0)


def read_memory(t: Targets) -> None:
    """Read its memory."""
    call(310, 270, t["victim"], 0, 0, 0, 0, 0)


def unshare_user(_: Targets) -> None:
    """Become root in a user namespace: the door to most kernel exploits."""
    call(272, 97, 0x10000000)


def clone_user(_: Targets) -> None:
    """The same with clone."""
    if call(56, 220, 0x10000000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def clone_as_sibling(_: Targets) -> None:
    """Make a child that is the fork server's."""
    if call(56, 220, 0x8000 | signal.SIGCHLD, 0, 0, 0, 0) == 0:
        os._exit(0)


def clone3(_: Targets) -> None:
    """The same with the call whose flags no filter can see."""
    call(435, 435, 0, 0)


def shared_memory(_: Targets) -> None:
    """Make System V memory, which outlives its maker."""
    made = call(29, 194, 0, 4096, 0o1600)
    call(31, 195, made, 0, 0)


def unnamed_memory(_: Targets) -> None:
    """Fill memory that no limit counts."""
    os.close(os.memfd_create("hoard"))


def lease_library(_: Targets) -> None:
    """Make whoever opens the interpreter's files wait."""
    file = os.open(os.__file__, os.O_RDONLY)
    fcntl.fcntl(file, 1024, fcntl.F_RDLCK)


def join_memory(_: Targets) -> None:
    """Join System V memory by a guessed number."""
    call(30, 196, 0x7FFFFFFF, 0, 0)


def kernel_call(x86: int, arm: int) -> Callable[[Targets], None]:
    """An attack that needs no more than to be heard by the kernel."""

    def attack(_: Targets) -> None:
        call(x86, arm, 0, 0, 0, 0, 0)

    return attack


def capabilities(_: Targets) -> str:
    """What is left of root's powers."""
    header = struct.pack("Ii", 0x20080522, 0)
    held = ctypes.create_string_buffer(24)
    call(125, 90, header, held)
    effective, permitted = struct.unpack("IIIIII", held.raw)[0:2]
    return "some" if effective or permitted else "none"


def new_privileges(_: Targets) -> str:
    """Whether a setuid program would gain any."""
    return "refused" if LIBC.prctl(39, 0, 0, 0, 0) == 1 else "gained"


def is_root(_: Targets) -> str:
    """Who we are."""
    return "root" if os.getuid() == 0 else "user"


def environment(_: Targets) -> str:
    """Whether anything of the daemon's environment is ours."""
    return "leaked" if "QEDTRIO_SECRET_OF_TEST" in os.environ else "clean"


def descriptors(_: Targets) -> str:
    """What the daemon forgot to close: anything that is no stream, pipe or channel."""
    found = []
    for name in range(3, 64):
        try:
            where = os.readlink(f"/proc/self/fd/{name}")
        except OSError:
            continue
        if not where.startswith(("socket:", "pipe:", "/dev/null")):
            found.append(where)
    return ", ".join(found) or "clean"


def processes_work(_: Targets) -> str:
    """What honest code needs: a process of its own."""
    done = subprocess.run([sys.executable, "-c", "print(7)"], capture_output=True)
    return done.stdout.decode().strip()


HEARD: dict[str, tuple[int, int]] = {
    "setns": (308, 268),
    "mount": (165, 40),
    "umount": (166, 39),
    "pivot_root": (155, 41),
    "chroot": (161, 51),
    "fsopen": (430, 430),
    "open_tree": (428, 428),
    "move_mount": (429, 429),
    "io_uring": (425, 425),
    "bpf": (321, 280),
    "keyctl": (250, 219),
    "add_key": (248, 217),
    "userfaultfd": (323, 282),
    "perf_event_open": (298, 241),
    "memfd_secret": (447, 447),
    "init_module": (175, 105),
    "open_by_handle_at": (304, 265),
    "fanotify_init": (300, 262),
    "clock_settime": (227, 112),
    "kcmp": (312, 272),
    "process_madvise": (440, 440),
    "pidfd_getfd": (438, 438),
    "personality": (135, 92),
    "syslog": (103, 116),
    "sethostname": (170, 161),
    "swapon": (167, 224),
    "quotactl": (179, 60),
}
"""Calls that a filter must refuse whatever their arguments are."""

ATTACKS: dict[str, Callable[[Targets], str | None]] = {
    attack.__name__: attack
    for attack in (
        tcp, udp, unix_path, unix_path_by_pair, unix_path_by_raw_pair, unix_abstract,
        netlink, vsock, listen, read_secret, write_outside, write_library,
        close_file, touch_file, give_file, mark_file, read_passwords, make_device, open_device, find_accelerators, see_environment,
        see_command, see_descriptors, open_memory, list_processes, notice_process,
        kill, kill_thread, queue_signal, signal_descriptor, signal_by_owner,
        choose_signal, limit, pin, slow, trace, read_memory, unshare_user, clone_user,
        clone_as_sibling, clone3, shared_memory, join_memory, unnamed_memory, lease_library, capabilities, new_privileges, is_root,
        environment, descriptors, processes_work,
    )
} | {name: kernel_call(*numbers) for name, numbers in HEARD.items()}  # fmt: skip


def attempt(name: str, targets: Targets) -> str:
    """Try one attack; tell how it ended."""
    try:
        return ATTACKS[name](targets) or OPEN
    except OSError as error:
        return errno.errorcode.get(error.errno or 0, "OSError")
    except Exception as error:
        return type(error).__name__


def attempt_apart(name: str, targets: Targets) -> str:
    """Try one attack in a child, which it may wreck."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.alarm(10)
        os.write(writer, attempt(name, targets).encode())
        os._exit(0)
    os.close(writer)
    with open(reader) as answer:
        said = answer.read()
    os.waitpid(pid, 0)
    return said or "died"


def judge(job: Targets) -> dict[str, object]:
    """Try the attacks that a job names; also the function of a verify worker."""
    names = str(job["names"]).split()
    return {"outcomes": {name: attempt_apart(name, job) for name in names}}


if __name__ == "__main__" and "TARGETS" in globals():
    print(json.dumps(judge(globals()["TARGETS"])["outcomes"]))
