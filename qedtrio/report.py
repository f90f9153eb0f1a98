"""What the daemon says of itself: its figures, and whether it can work."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import trio

from qedtrio import __version__
from qedtrio.api.status import DaemonStatus, Readiness, VerifyStatus
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.registry import Sessions
from qedtrio.verify.service import Verifier
from qedtrio.workers.pool import Pool

__all__ = ["Reporter"]

CHECK_SECONDS = 5.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporter:
    """Reads statistics and asks workers.

    Args:
        tier: Isolation tier of the workers.
        pools: By name, verification's among them.
        sessions: All sessions.
        verifier: The verification service.
        is_draining: Whether admission has stopped.
    """

    tier: Tier
    pools: Mapping[str, Pool]
    sessions: Sessions
    verifier: Verifier
    is_draining: Callable[[], bool]
    _started: float = field(default_factory=trio.current_time)

    def status(self) -> DaemonStatus:
        """The figures of `/v1/status` and `/metrics`."""
        verify = self.verifier.statistics()
        return DaemonStatus(
            version=__version__,
            tier=self.tier,
            uptime_seconds=trio.current_time() - self._started,
            draining=self.is_draining(),
            sessions=self.sessions.statistics(),
            verify=VerifyStatus(
                queue=verify.queue,
                items=sum(verify.verdicts.values()),
                retries=verify.retries,
            ),
            pools={name: pool.statistics() for name, pool in self.pools.items()},
        )

    async def readiness(self) -> Readiness:
        """Ask a real worker of every pool; bounded."""
        reasons: dict[str, str] = {}
        if self.is_draining():
            reasons[""] = "the daemon is draining"

        async def check(name: str, pool: Pool) -> None:
            reasons[name] = f"pool {name}: no answer within {CHECK_SECONDS:g} s"
            if failure := await pool.check():
                reasons[name] = f"pool {name}: {failure}"
            else:
                del reasons[name]

        with trio.move_on_after(CHECK_SECONDS):
            async with trio.open_nursery() as nursery:
                for name, pool in self.pools.items():
                    nursery.start_soon(check, name, pool)
        return Readiness(
            ready=not reasons, reasons=tuple(reasons.values()), tier=self.tier
        )
