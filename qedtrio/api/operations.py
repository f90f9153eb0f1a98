"""Handlers for operators: health, figures, metrics."""

from http import HTTPStatus

import msgspec
import trio

from qedtrio.api.messages import Reply, Request
from qedtrio.api.services import Services
from qedtrio.api.status import Readiness

__all__ = [
    "READINESS_SECONDS",
    "Health",
    "Liveness",
    "healthz",
    "livez",
    "metrics",
    "readyz",
    "status",
]

READINESS_SECONDS = 5.0
"""A readiness check that takes longer counts as not ready."""


class Liveness(msgspec.Struct, frozen=True):
    """The process answers."""

    live: bool = True


class Health(msgspec.Struct, frozen=True, kw_only=True):
    """Whether work can be done now, and why not."""

    live: bool = True
    ready: bool
    reasons: tuple[str, ...]
    tier: str


async def livez(_services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """Say that the process is alive, draining or not."""
    return Reply.of(Liveness())


async def readyz(services: Services, _request: Request) -> Reply:
    """Say whether work can be done, as checked on real workers."""
    found = await _readiness(services)
    return _reply(found, found.ready)


async def healthz(services: Services, _request: Request) -> Reply:
    """Say both: alive, and able to do work."""
    found = await _readiness(services)
    health = Health(ready=found.ready, reasons=found.reasons, tier=found.tier)
    return _reply(health, found.ready)


async def _readiness(services: Services) -> Readiness:
    """Check, within a bound; a draining daemon is never ready."""
    found = Readiness(
        ready=False,
        reasons=(f"the check took longer than {READINESS_SECONDS:g} s",),
        tier=services.status().tier,
    )
    with trio.move_on_after(READINESS_SECONDS):
        found = await services.readiness()
    if not services.draining():
        return found
    reasons = ("the daemon is draining", *found.reasons)
    return Readiness(ready=False, reasons=reasons, tier=found.tier)


def _reply(value: object, ready: bool) -> Reply:
    """200 or 503, for load balancers that look at nothing else."""
    return Reply.of(value, HTTPStatus.OK if ready else HTTPStatus.SERVICE_UNAVAILABLE)


async def status(services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """Give the daemon's figures as one JSON."""
    return Reply.of(services.status())


async def metrics(services: Services, _request: Request) -> Reply:  # noqa: ASYNC124  # as all handlers
    """Give the daemon's figures to Prometheus."""
    return Reply(
        body=services.metrics.render(),
        content_type=services.metrics.content_type,
    )
