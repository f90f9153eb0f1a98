"""Closed-loop load: each client sends its next request when it has an answer.

Clients connect, prepare and warm up one after the other, start together, and
stop sending together. Requests under way at that moment are waited for and
counted, and the time until the last of them is part of the measured time.
"""

import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field

import trio

from qedtrio.cli.bench.measure import Measurement, measurement
from qedtrio.cli.bench.scenarios import Once, Scenario
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.http import TransportError, open_connection

__all__ = ["apply_load"]

WARM_UP_REQUESTS = 3
ERRORS_IN_A_ROW = 20
"""A client that fails so often in a row stops: the daemon is not there."""

CpuClock = Callable[[], float]
"""Gives the seconds of processor time that the daemon's process has used."""


async def apply_load(
    url: str,
    scenario: Scenario,
    *,
    clients: int,
    seconds: float,
    cpu_clock: CpuClock | None = None,
) -> Measurement:
    """Measure `scenario` at `clients` clients for about `seconds`."""
    load = Load(url, scenario, seconds)
    cpu_seconds: float | None = None
    async with trio.open_nursery() as nursery:
        for _ in range(clients):
            if await nursery.start(load.run_client):
                load.alive += 1
        before = cpu_clock() if cpu_clock else 0.0
        started = time.perf_counter()
        load.start.set()
        for _ in range(load.alive):
            await load.finished.acquire()
        elapsed = time.perf_counter() - started
        if cpu_clock:
            cpu_seconds = cpu_clock() - before
        load.clean_up.set()
    return measurement(
        scenario.name,
        load.samples,
        seconds=elapsed,
        clients=clients,
        errors=load.errors,
        cpu_seconds=cpu_seconds,
        items_per_request=scenario.items_per_request,
        floor=scenario.floor,
    )


@dataclass
class Load:
    """What the clients of one measurement share.

    Attributes:
        alive: Clients that take part.
        start: Set when all of them are warm.
        finished: Released once by each of them after its last answer.
        clean_up: Set when the measured time is over.
    """

    url: str
    scenario: Scenario
    seconds: float
    samples: list[float] = field(default_factory=list)
    errors: Counter[str] = field(default_factory=Counter)
    alive: int = 0
    start: trio.Event = field(default_factory=trio.Event)
    finished: trio.Semaphore = field(default_factory=lambda: trio.Semaphore(0))
    clean_up: trio.Event = field(default_factory=trio.Event)

    async def run_client(self, *, task_status: trio.TaskStatus[bool]) -> None:
        """Be one client; reports started with whether it takes part."""
        warm = False
        try:
            async with (
                open_connection(self.url) as connection,
                self.scenario.prepare(connection) as once,
            ):
                for _ in range(WARM_UP_REQUESTS):
                    await once()
                warm = True
                task_status.started(True)
                await self.repeat(once)
                await self.clean_up.wait()
        except (TransportError, RefusedError) as error:
            self.errors[kind_of(error)] += 1
        if not warm:
            task_status.started(False)

    async def repeat(self, once: Once) -> None:
        """Repeat `once` from the common start until the time is up."""
        clock = time.perf_counter
        await self.start.wait()
        failed = 0
        end = clock() + self.seconds
        while (before := clock()) < end and failed < ERRORS_IN_A_ROW:
            try:
                await once()
            except (TransportError, RefusedError) as error:
                self.errors[kind_of(error)] += 1
                failed += 1
            else:
                self.samples.append(clock() - before)
                failed = 0
        self.finished.release()


def kind_of(error: TransportError | RefusedError) -> str:
    """Name an error without what differs from one to the next."""
    if isinstance(error, TransportError):
        return f"transport: {type(error.__cause__ or error).__name__}"
    return str(error).partition(":")[0]
