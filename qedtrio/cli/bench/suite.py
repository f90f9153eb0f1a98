"""What is measured, in which order, and how a part that fails is told."""

import os
from collections.abc import Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import trio

from qedtrio.cli.bench.daemon import SERVE, Daemon, open_daemon
from qedtrio.cli.bench.floors import Pinger, measure_fork, measure_worker_round_trip
from qedtrio.cli.bench.load import apply_load
from qedtrio.cli.bench.machine import Machine, describe_machine
from qedtrio.cli.bench.measure import Measurement, with_ratios
from qedtrio.cli.bench.memory import IdleCost, measure_idle_sessions
from qedtrio.cli.bench.sandbox import SandboxCost, measure_sandbox
from qedtrio.cli.bench.scenarios import ECHO, SCENARIOS, Scenario
from qedtrio.cli.bench.shutdown import Crowd, measure_crowd
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.entry import first_leaf
from qedtrio.cli.http import TransportError
from qedtrio.config import load_config

__all__ = ["CROWD", "IDLE", "NAMES", "SANDBOX", "Plan", "Report", "run_suite"]

IDLE = "idle_session"
CROWD = "crowd"
SANDBOX = "sandbox"
NAMES = (*(scenario.name for scenario in SCENARIOS), IDLE, CROWD, SANDBOX)
"""What `--scenario` may name."""

FAILURES = (
    OSError,
    RefusedError,
    TransportError,
    trio.TooSlowError,
)
"""What ends one part of the suite and leaves the others."""

Part = TypeVar("Part")


OpenPinger = Callable[[], AbstractAsyncContextManager[Pinger]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What was asked for.

    Attributes:
        url: Of a running daemon; None for one of our own.
        seconds: For each measurement.
        clients: Numbers of clients to measure at.
        scenarios: Names out of `NAMES`.
        sessions: Size of the crowd.
        open_pinger: Gives a bare worker, for its round trip; None where there
            is no way to have one.
        serve: Command of a daemon of our own.
    """

    url: str | None
    seconds: float
    clients: Sequence[int]
    scenarios: Sequence[str]
    sessions: int
    open_pinger: OpenPinger | None = None
    serve: Sequence[str] = SERVE


@dataclass(slots=True, kw_only=True)
class Report:
    """Everything that was measured.

    Attributes:
        notes: What was left out, and why.
        failures: What was tried and failed.
    """

    machine: Machine
    target: str
    measurements: list[Measurement] = field(default_factory=list)
    idle: IdleCost | None = None
    crowd: Crowd | None = None
    sandbox: list[SandboxCost] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether nothing failed: no error, no survivor, no silent session."""
        errors = any(m.errors or not m.requests for m in self.measurements)
        crowd = self.crowd
        lost = crowd is not None and (
            crowd.survivors > 0
            or crowd.exit_code != 0
            or not crowd.sessions == crowd.live == crowd.answered
        )
        return not (errors or lost or self.failures)


async def run_suite(plan: Plan, on_step: Callable[[str], None]) -> Report:
    """Measure what `plan` asks for.

    Args:
        plan: What to measure.
        on_step: Called with what is about to be measured.
    """
    report = Report(machine=describe_machine(), target=plan.url or "own daemon")
    suite = Suite(plan, report, on_step)
    if plan.url is not None:
        for name in ("echo", "fork", "worker_round_trip", IDLE, CROWD, SANDBOX):
            report.notes.append(f"{name}: needs a daemon of our own, left out")
        await suite.measure_scenarios(plan.url, None)
    else:
        await suite.measure_floors()
        if SANDBOX in plan.scenarios:
            await suite.measure_tiers()
        await suite.measure_own_daemon()
        if CROWD in plan.scenarios:
            await suite.measure_own_crowd()
    report.measurements = with_ratios(report.measurements)
    return report


def default_preload() -> tuple[str, ...]:
    """What the default pool of a daemon of our own preloads."""
    config, _ = load_config(environment=os.environ)
    return config.pools[config.default_pool].preload


@dataclass(slots=True)
class Suite:
    """The parts of a suite, each adding to the report."""

    plan: Plan
    report: Report
    on_step: Callable[[str], None]

    @property
    def chosen(self) -> list[Scenario]:
        """The load scenarios asked for."""
        return [s for s in SCENARIOS if s.name in self.plan.scenarios]

    async def measure_floors(self) -> None:
        """Measure what needs no daemon: a fork, and a worker's round trip."""
        seconds = self.plan.seconds
        if any(scenario.floor == "fork" for scenario in self.chosen):
            preload = default_preload()
            await self.add("fork", lambda: measure_fork(preload, seconds=seconds))
        if (open_pinger := self.plan.open_pinger) is None:
            self.report.notes.append("worker_round_trip: no bare worker, left out")
            return

        async def round_trip() -> Measurement:
            async with open_pinger() as pinger:
                return await measure_worker_round_trip(pinger, seconds=seconds)

        await self.add("worker_round_trip", round_trip)

    async def measure_tiers(self) -> None:
        """Compare the isolation tiers, with the default preload and with none."""
        seconds = self.plan.seconds
        for name, preload in (("default", default_preload()), ("none", ())):
            what = f"{SANDBOX} with {name} preload"
            self.on_step(what)
            compare = partial(measure_sandbox, name, preload, seconds=seconds)
            if (cost := await self.attempt(what, compare)) is not None:
                self.report.sandbox.append(cost)
                self.report.measurements += cost.measurements

    async def measure_own_daemon(self) -> None:
        """Start a daemon, measure all scenarios on it, and end it."""
        if not self.chosen and IDLE not in self.plan.scenarios:
            return
        self.on_step("starting the daemon")
        async with open_daemon(*self.plan.serve, "--bench-echo") as daemon:
            await self.measure_scenarios(daemon.url, daemon)
            if IDLE in self.plan.scenarios:
                url = daemon.url
                self.report.idle = await self.attempt(
                    IDLE, lambda: measure_idle_sessions(url)
                )
        if daemon.process.returncode != 0:
            code = daemon.process.returncode
            self.report.failures.append(f"the daemon ended with exit code {code}")

    async def measure_scenarios(self, url: str, daemon: Daemon | None) -> None:
        """Measure the chosen scenarios, the echo first, at all client numbers."""
        echo_wanted = any(scenario.floor == "echo" for scenario in self.chosen)
        echo = [ECHO] if daemon is not None and echo_wanted else []
        for scenario in echo + self.chosen:
            for clients in self.plan.clients:
                await self.measure_load(url, daemon, scenario, clients)

    async def measure_load(
        self, url: str, daemon: Daemon | None, scenario: Scenario, clients: int
    ) -> None:
        """Measure one scenario at one number of clients."""
        await self.add(
            f"{scenario.name} at {clients} client{'s' * (clients > 1)}",
            lambda: apply_load(
                url,
                scenario,
                clients=clients,
                seconds=self.plan.seconds,
                cpu_clock=daemon.cpu_seconds if daemon else None,
            ),
        )

    async def measure_own_crowd(self) -> None:
        """Start another daemon, fill it with sessions, and end it under them."""
        self.on_step(f"{self.plan.sessions} sessions at once")
        async with open_daemon(*self.plan.serve) as daemon:
            self.report.crowd = await self.attempt(
                CROWD, lambda: measure_crowd(daemon, self.plan.sessions)
            )

    async def add(self, what: str, part: Callable[[], Awaitable[Measurement]]) -> None:
        """Add one measurement to the report, or why there is none."""
        self.on_step(what)
        if (measured := await self.attempt(what, part)) is not None:
            self.report.measurements.append(measured)

    async def attempt(
        self, what: str, part: Callable[[], Awaitable[Part]]
    ) -> Part | None:
        """Await one part; a failure ends it, is reported, and spares the rest."""
        try:
            return await part()
        except* FAILURES as group:
            error = first_leaf(group)
            self.report.failures.append(f"{what}: {str(error) or repr(error)}")
        return None
