"""A soak: mixed traffic with faults, in two halves, and what is left of it.

    start the daemon → warm up → read → half → read → half → read → end it → look

Between the halves and after them every session is closed and the daemon is
given time to mend what faults broke, so that readings compare like with like.
The command adopts orphans meanwhile, so that none can hide from it.
"""

import os
import shutil
import signal
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import click
import psutil
import trio

from qedtrio.cli.bench.daemon import SERVE, Daemon, open_daemon
from qedtrio.cli.bench.machine import Machine, describe_machine
from qedtrio.cli.bench.measure import Measurement
from qedtrio.cli.bench.soak.episodes import Kind, Repertoire, play_until_done
from qedtrio.cli.bench.soak.faults import Kills, kill_now_and_then
from qedtrio.cli.bench.soak.leaks import LeakTable, Reading, leak_table
from qedtrio.cli.bench.soak.player import Player
from qedtrio.cli.bench.soak.readings import (
    Watcher,
    family,
    own_cgroups,
    own_folders,
)
from qedtrio.cli.bench.soak.tally import Latencies, Tally
from qedtrio.cli.calls import RefusedError
from qedtrio.cli.entry import first_leaf
from qedtrio.cli.http import TransportError, open_connection
from qedtrio.config import load_config

__all__ = ["SoakPlan", "SoakReport", "run_soak"]

PROGRESS_SECONDS = 10.0
END_SECONDS = 1.0
"""What is still there so long after the daemon's end was left behind by it."""
KILL_SECONDS = 5.0
GIVE_UP_FAILURES = 200
"""After so many findings there is nothing more to learn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SoakPlan:
    """What was asked for.

    Attributes:
        seconds: Of traffic, the warm-up excluded.
        clients: At a time.
        serve: Command of the daemon, with the faults to inject.
        variables: Added to its environment.
    """

    seconds: float
    clients: int = 8
    serve: Sequence[str] = SERVE
    variables: Mapping[str, str] = field(default_factory=dict)


@dataclass(slots=True, kw_only=True)
class SoakReport:
    """Everything that a soak found.

    Attributes:
        seconds: Of traffic.
        tally: What was counted.
        kills: Workers that the soak killed.
        runs: Latencies by act.
        leaks: None when the daemon did not live to be read.
        exit_code: The daemon's; None when it had to be killed.
        is_cut_short: Whether somebody ended the soak.
        failures: What went wrong with the soak as a whole.
    """

    machine: Machine
    clients: int
    serve: Sequence[str] = ()
    seconds: float = 0.0
    tally: Tally = field(default_factory=Tally)
    kills: int = 0
    runs: list[Measurement] = field(default_factory=list)
    leaks: LeakTable | None = None
    exit_code: int | None = None
    is_cut_short: bool = False
    failures: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """Whether every answer was right or explained, and nothing leaked."""
        tally = self.tally
        wrong = tally.failed or self.failures or not tally.episodes
        leaks = self.leaks
        return not wrong and leaks is not None and leaks.is_clean


async def run_soak(plan: SoakPlan, on_step: Callable[[str], None]) -> SoakReport:
    """Put a daemon of our own under mixed traffic and look for leaks.

    SIGINT and SIGTERM end the traffic early; the readings are taken still.

    Args:
        plan: What to do.
        on_step: Called now and then with a line on how it goes.
    """
    report = SoakReport(
        machine=describe_machine(), clients=plan.clients, serve=list(plan.serve)
    )
    with open_folder() as folder:
        soak = Soak(plan, report, on_step, folder)
        async with watch_signals(soak.stop):
            try:
                await soak.run()
            except* (TransportError, RefusedError, click.ClickException) as group:
                report.failures.append(str(first_leaf(group)))
    return report


@contextmanager
def open_folder() -> Iterator[Path]:
    """Make the daemon's temporary folder, and remove it with all that is left."""
    folder = Path(tempfile.mkdtemp(prefix="qedtrio-soak-"))
    folder.chmod(0o711)  # workers may be another user
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@asynccontextmanager
async def watch_signals(stop: trio.Event) -> AsyncIterator[None]:
    """Set `stop` at the first signal; the second one ends everything at once."""
    with trio.open_signal_receiver(signal.SIGINT, signal.SIGTERM) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for _ in signals:
                    if stop.is_set():
                        raise KeyboardInterrupt
                    stop.set()

            nursery.start_soon(watch)
            yield
            nursery.cancel_scope.cancel()


@dataclass(slots=True)
class Soak:
    """The steps of one soak."""

    plan: SoakPlan
    report: SoakReport
    on_step: Callable[[str], None]
    folder: Path
    stop: trio.Event = field(default_factory=trio.Event)
    kills: Kills = field(init=False)
    latencies: Latencies = field(default_factory=Latencies)
    _readings: list[Reading] = field(default_factory=list)
    _sessions: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        """Know from the daemon's command whether it kills workers by itself."""
        injected = any("worker_dies" in word for word in self.plan.serve)
        self.kills = Kills(is_daemon_killing=injected)

    async def run(self) -> None:
        """Do all of it."""
        variables = {
            "TMPDIR": str(self.folder),
            "QEDTRIO_LOG__LEVEL": "error",
            **self.plan.variables,
        }
        self.on_step("starting the daemon")
        async with open_daemon(*self.plan.serve, variables=variables) as daemon:
            watcher = Watcher(daemon, self.folder)
            await self.warm_up(daemon)
            await self.read(watcher)
            for _ in range(2):
                await self.apply_traffic(daemon, self.plan.seconds / 2)
                await self.read(watcher)
        left = await trio.to_thread.run_sync(self.look_for_remains, daemon)
        first, middle, last = self._readings
        warm, half, whole = self._sessions
        self.report.leaks = leak_table(
            first, middle, last, sessions=(half - warm, whole - half), left=left
        )
        self.conclude(daemon)

    def conclude(self, daemon: Daemon) -> None:
        """Fill in what is known at the end."""
        report = self.report
        report.exit_code = daemon.process.returncode
        if report.exit_code != 0:
            report.failures.append(f"the daemon ended with {report.exit_code}")
        report.is_cut_short = self.stop.is_set()
        report.kills = self.kills.count
        report.runs = self.latencies.measurements(report.seconds, report.clients)

    async def read(self, watcher: Watcher) -> None:
        """Take a reading; the first one is what the others are compared with."""
        self.on_step("waiting until it is quiet")
        before = self._readings[0] if self._readings else None
        self._readings.append(await watcher.settle(before))
        self._sessions.append(self.report.tally.sessions)

    async def warm_up(self, daemon: Daemon) -> None:
        """Play everything once, so that what is loaded lazily is loaded."""
        self.on_step("warming up")
        waiting = iter(self.repertoire().everything())
        async with trio.open_nursery() as nursery:
            for _ in range(self.plan.clients):
                nursery.start_soon(self.play, daemon, lambda: next(waiting, None))

    async def apply_traffic(self, daemon: Daemon, seconds: float) -> None:
        """Let all clients play what chance gives them, while workers are killed."""
        repertoire, began = self.repertoire(), trio.current_time()
        end = began + seconds

        def draw() -> Kind | None:
            over = trio.current_time() >= end or self.stop.is_set()
            given_up = self.report.tally.failed >= GIVE_UP_FAILURES
            return None if over or given_up else repertoire.draw()

        async with trio.open_nursery() as background:
            background.start_soon(self.tell_progress, began)
            background.start_soon(kill_now_and_then, daemon.url, self.kills)
            async with trio.open_nursery() as clients:
                for _ in range(self.plan.clients):
                    clients.start_soon(self.play, daemon, draw)
            background.cancel_scope.cancel()
        self.report.seconds += trio.current_time() - began

    async def play(self, daemon: Daemon, draw: Callable[[], Kind | None]) -> None:
        """Be one client, until there is nothing more to play."""
        async with (
            open_connection(daemon.url) as main,
            open_connection(daemon.url) as side,
        ):
            player = Player(main, side, self.report.tally, self.kills, self.latencies)
            while (kind := draw()) is not None:
                await play_until_done(kind, player)

    async def tell_progress(self, began: float) -> None:
        """Say now and then how it goes."""
        while True:
            await trio.sleep(PROGRESS_SECONDS)
            seconds = self.report.seconds + trio.current_time() - began
            self.on_step(self.report.tally.line(seconds))

    def repertoire(self) -> Repertoire:
        """What may be played on this daemon."""
        config, _ = load_config(environment={**os.environ, **self.plan.variables})
        return Repertoire("numpy" in config.pools[config.default_pool].preload)

    def look_for_remains(self, daemon: Daemon) -> dict[str, int]:
        """Count what the ended daemon left, and kill what still runs."""
        _, survivors = psutil.wait_procs(family(), timeout=END_SECONDS)
        for process in survivors:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(survivors, timeout=KILL_SECONDS)
        return {
            "processes": len(survivors),
            "folders": own_folders(self.folder),
            "cgroups": own_cgroups(daemon.process.pid),
        }
