"""What this host allows, found by trying it: a real worker in each tier."""

import os
import platform
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

import trio

from qedtrio.config import Limits
from qedtrio.errors import WorkerStartError
from qedtrio.sandbox import cgroups
from qedtrio.sandbox.tiers import Tier
from qedtrio.workers.fork import ForkServer
from qedtrio.workers.profile import Profile
from qedtrio.workers.remedies import Surroundings, find_remedies, look_around

__all__ = ["Finding", "HostReport", "birth_limits", "probe_host"]

PROBE_SECONDS = 20.0
UNKNOWN = "nothing known stands in the way; the detail is all there is"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing about the host; `remedy` is empty when it is well."""

    name: str
    ok: bool
    detail: str
    remedy: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class HostReport:
    """The strongest tier that works here, and what stands in the way of more."""

    tier: Tier
    findings: tuple[Finding, ...]


def birth_limits(limits: Limits, **overrides: float) -> dict[str, float]:
    """The numbers of `limits` that a worker is born with, some replaced."""
    numbers = {k: v for k, v in asdict(limits).items() if not isinstance(v, str)}
    return numbers | overrides


async def probe_host(uid: int = 65534, cgroup: str = "auto") -> HostReport:
    """Try the tiers from the strongest, with a real worker each.

    Args:
        uid: Whom workers become when this process is root.
        cgroup: Where control groups may be made, as `daemon.cgroup` says.
    """
    findings: list[Finding] = []
    here = look_around()
    reached = Tier.C
    for tier in (Tier.A, Tier.B):
        failure = await _try_tier(tier, uid)
        detail = failure or "a worker started"
        remedy = failure and ("; ".join(find_remedies(tier, here)) or UNKNOWN)
        findings.append(
            Finding(name=f"tier {tier}", ok=not failure, detail=detail, remedy=remedy)
        )
        if not failure:
            reached = tier
            break
    return HostReport(tier=reached, findings=(*findings, *_facts(here, cgroup)))


async def _try_tier(tier: Tier, uid: int) -> str:
    """Start and kill one worker; empty, or why that failed."""
    profile = Profile(name="probe", tier=tier, uid=uid, limits=birth_limits(Limits()))
    folder = await trio.to_thread.run_sync(_make_folder)
    failure = f"no answer within {PROBE_SECONDS:g} s"
    try:
        server = ForkServer(profile, folder, lambda: None)
        with trio.move_on_after(PROBE_SECONDS):
            failure = await _try_worker(server)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return server.failure or failure


def _make_folder() -> str:
    folder = tempfile.mkdtemp(prefix="qedtrio-probe-")
    Path(folder).chmod(0o711)  # workers may run as another user
    return folder


async def _try_worker(server: ForkServer) -> str:
    failure = "the fork server ended"
    async with trio.open_nursery() as nursery:

        async def run() -> None:
            await server.run()
            nursery.cancel_scope.cancel()

        nursery.start_soon(run)
        await server.ready.wait()
        try:
            worker = await server.spawn()
            await worker.kill()
            failure = ""
        except WorkerStartError as error:
            failure = str(error)
        nursery.cancel_scope.cancel()
    return failure


def _facts(here: Surroundings, cgroup: str) -> Iterator[Finding]:
    abi = here.landlock_abi
    yield Finding(
        name="landlock",
        ok=abi > 0,
        detail=f"ABI {abi}" if abi else "not available",
        remedy="; ".join(find_remedies(Tier.B, here)),
    )
    ok, detail, remedy = cgroups.describe_place(cgroup)
    yield Finding(name="control groups", ok=ok, detail=detail, remedy=remedy)
    yield Finding(name="kernel", ok=True, detail=platform.release())
    yield Finding(
        name="user", ok=os.geteuid() != 0, detail=f"uid {os.geteuid()}",
        remedy="" if os.geteuid() else "run as a user of its own; root is not needed",
    )  # fmt: skip
