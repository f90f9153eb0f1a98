"""The attack matrix: each attack on each tier and engine, expected and measured."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
import trio

from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.jobs import JobWorkers
from qedtrio.workers.pool import Pool
from qedtrio.workers.profile import JOB_ENTRY
from tests.containment import attacks
from tests.containment.attacks import HEARD, OPEN, Targets
from tests.workers.conftest import open_pool, plain_profile
from tests.workers.test_worker_contract import lease, run

HOST = "the host decides"
"""A cell that depends on the host's kernel, modules or user: tried, not judged."""

NO_FAMILY = "EAFNOSUPPORT"

EXPECTED: dict[str, tuple[str, str, str]] = {
    # attack: outcome in tier A, B, C
    "tcp": (NO_FAMILY, NO_FAMILY, OPEN),
    "udp": (NO_FAMILY, NO_FAMILY, OPEN),
    "unix_path": (NO_FAMILY, NO_FAMILY, OPEN),
    "unix_path_by_pair": ("EPERM", "EPERM", OPEN),
    "unix_path_by_raw_pair": ("EPERM", "EPERM", OPEN),
    "unix_abstract": (NO_FAMILY, NO_FAMILY, OPEN),
    "netlink": (NO_FAMILY, NO_FAMILY, OPEN),
    "vsock": (NO_FAMILY, NO_FAMILY, HOST),
    "listen": ("EPERM", "EPERM", OPEN),
    "read_secret": ("ENOENT", "EACCES", OPEN),
    "write_outside": ("ENOENT", "EACCES", OPEN),
    "write_library": ("EACCES", "EACCES", HOST),
    "close_file": ("ENOENT", "EPERM", OPEN),
    "touch_file": ("ENOENT", "EPERM", OPEN),
    "give_file": ("ENOENT", "EPERM", OPEN),
    "mark_file": ("ENOENT", "EPERM", HOST),
    "read_passwords": ("ENOENT", "EACCES", HOST),
    "make_device": ("EACCES", "EACCES", HOST),
    "open_device": ("ENOENT", "EACCES", OPEN),
    "find_accelerators": ("ENOENT", "ENOENT", HOST),
    "see_environment": ("ENOENT", "EACCES", OPEN),
    "see_command": ("ENOENT", "EACCES", OPEN),
    "see_descriptors": ("ENOENT", "EACCES", OPEN),
    "open_memory": ("ENOENT", "EACCES", OPEN),
    "list_processes": ("ENOENT", "EACCES", OPEN),
    "notice_process": ("ENOENT", OPEN, OPEN),
    "kill": ("ESRCH", "EPERM", OPEN),
    "kill_thread": ("ESRCH", "EPERM", OPEN),
    "queue_signal": ("ESRCH", "EPERM", HOST),
    "signal_descriptor": ("ESRCH", "EPERM", OPEN),
    "signal_by_owner": ("EPERM", "EPERM", OPEN),
    "choose_signal": ("EPERM", "EPERM", OPEN),
    "limit": ("ESRCH", "EPERM", OPEN),
    "pin": ("ESRCH", "EPERM", OPEN),
    "slow": ("ESRCH", "EPERM", OPEN),
    "trace": ("EPERM", "EPERM", HOST),
    "read_memory": ("EPERM", "EPERM", HOST),
    "unshare_user": ("EPERM", "EPERM", HOST),
    "clone_user": ("EPERM", "EPERM", HOST),
    "clone_as_sibling": ("EPERM", "EPERM", OPEN),
    "clone3": ("ENOSYS", "ENOSYS", HOST),
    "shared_memory": ("EPERM", "EPERM", OPEN),
    "join_memory": ("EPERM", "EPERM", "EINVAL"),
    "unnamed_memory": ("ENOSYS", "ENOSYS", OPEN),
    "lease_library": ("EPERM", "EPERM", HOST),
    "capabilities": ("none", "none", HOST),
    "new_privileges": ("refused", "refused", HOST),
    "is_root": ("user", HOST, HOST),
    "environment": ("clean", "clean", "clean"),
    "descriptors": ("clean", "clean", "clean"),
    "processes_work": ("7", "7", "7"),
    **dict.fromkeys(HEARD, ("EPERM", "EPERM", HOST)),
}


def attack_names(tier: Tier) -> list[str]:
    """What is tried: where nothing would stop it, not what could harm the host."""
    return [n for n in EXPECTED if tier is not Tier.C or n not in HEARD]


def misses(tier: Tier, measured: dict[str, str]) -> dict[str, str]:
    """The cells in which the measured outcome is not the expected one."""
    column = "ABC".index(tier.value)
    return {
        name: f"expected {EXPECTED[name][column]}, got {measured.get(name)}"
        for name in attack_names(tier)
        if EXPECTED[name][column] not in {HOST, measured.get(name)}
    }


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that anybody may enter; a socket's path must be short."""
    with tempfile.TemporaryDirectory(prefix="t-") as folder:
        Path(folder).chmod(0o711)

        yield Path(folder)


@pytest.fixture
async def targets(place: Path, kind: tuple[Tier, str]) -> AsyncIterator[Targets]:
    """Things of the host worth attacking, real and reachable without a sandbox."""
    uid = plain_profile(kind[0]).sandbox("").worker_uid()
    outside = place / "outside"
    outside.mkdir()
    secret = place / "secret"
    secret.write_text("key")
    secret.chmod(0o600)
    with ExitStack() as opened:
        tcp = opened.enter_context(socket.create_server(("127.0.0.1", 0)))
        stream = opened.enter_context(socket.socket(socket.AF_UNIX))
        stream.bind(str(place / "stream"))
        stream.listen()
        pair = opened.enter_context(socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM))
        pair.bind(str(place / "datagrams"))
        named = opened.enter_context(socket.socket(socket.AF_UNIX))
        abstract = f"qedtrio-attack-{os.getpid()}"
        named.bind("\0" + abstract)
        named.listen()
        if os.geteuid() == 0:
            for path in (secret, outside, place / "stream", place / "datagrams"):
                os.chown(path, uid, uid)
        async with trio.open_nursery() as nursery:
            victim = await nursery.start(
                partial(
                    trio.run_process,
                    [sys.executable, "-c", "import signal; signal.pause()"]
                    if uid == os.geteuid()
                    else ["/bin/sleep", "600"],
                    check=False,
                    stdin=subprocess.DEVNULL,
                    **({} if uid == os.geteuid() else {"user": uid, "group": uid}),
                )
            )
            yield {
                "port": tcp.getsockname()[1],
                "path": str(place / "stream"),
                "datagrams": str(place / "datagrams"),
                "abstract": abstract,
                "secret": str(secret),
                "outside": str(outside),
                "victim": victim.pid,
            }
            assert victim.returncode is None, "an attack killed its victim"
            victim.send_signal(signal.SIGKILL)


SOURCE = Path(attacks.__file__).read_text(encoding="utf-8")


@pytest.mark.slow
async def test_attacks_end_as_the_matrix_says(
    kind: tuple[Tier, str],
    pool: Pool,
    targets: Targets,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each cell is blocked with the errno expected, or open where the tier is."""
    job = {**targets, "names": " ".join(attack_names(kind[0]))}
    with trio.fail_after(60):
        worker = await lease(pool)
        reply, out, err = await run(worker, f"TARGETS = {job!r}\n{SOURCE}")

    assert reply["status"] == "ok", (reply, err)
    assert misses(kind[0], json.loads(out)) == {}


@pytest.mark.slow
async def test_verify_workers_are_sealed_alike(
    kind: tuple[Tier, str], targets: Targets, state_dir: str
) -> None:
    """What parses hostile text can do no more than what runs hostile code."""
    tier, engine = kind
    job = {**targets, "names": " ".join(attack_names(tier))}
    profile = plain_profile(tier, engine, entry=JOB_ENTRY)
    async with open_pool(profile, state_dir) as pool:
        workers = JobWorkers(
            pool=pool, function="tests.containment.attacks:judge", limits={}
        )
        with trio.fail_after(60):
            worker = await workers.lease()
            reply = await worker.call(job)
            await worker.kill()

    measured = reply["outcomes"]
    assert isinstance(measured, dict)
    assert misses(tier, measured) == {}


PAGE = Path(__file__).parents[2] / "docs" / "discussion" / "threat_model.md"


def render_matrix() -> str:
    """The matrix as the threat model shows it."""
    lines = ["| attack | A | B | C |", "| --- | --- | --- | --- |"]
    for name, outcomes in EXPECTED.items():
        about = attacks.ATTACKS[name].__doc__ or ""
        about = name if name in HEARD else about.splitlines()[0].rstrip(".")
        cells = ["host" if outcome == HOST else outcome for outcome in outcomes]
        lines.append(f"| {about} | {' | '.join(cells)} |")
    return "\n".join(lines)


def test_the_threat_model_shows_the_matrix() -> None:
    """What operators read is what is measured."""
    text = PAGE.read_text(encoding="utf-8")
    _, _, rest = text.partition("<!-- matrix -->\n")
    shown, _, _ = rest.partition("\n<!-- end of matrix -->")

    assert shown == render_matrix()
