"""The daemon: one nesting of nurseries, which is the order of its shutdown.

    pools ⊃ sessions and verification ⊃ HTTP listeners

Each nursery ends after the ones inside it. A drain stops admission, lets
active runs finish for a while, answers the rest as retryable, and then leaves
the nesting from the inside out: listeners, sessions, workers.
"""

import logging
import os
import resource
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, contextmanager
from dataclasses import replace
from functools import partial

import trio

from qedtrio.api.app import build_front
from qedtrio.api.metrics import Metrics
from qedtrio.api.server import serve_listener
from qedtrio.api.services import Services
from qedtrio.api.sockets import address_of, open_socket
from qedtrio.config import Config, PoolConfig
from qedtrio.errors import ConfigError, ReleaseFailedError
from qedtrio.report import Reporter
from qedtrio.sandbox.cgroups import Cgroups, find_place
from qedtrio.sandbox.rlimits import shared_limits
from qedtrio.sandbox.tiers import Tier
from qedtrio.sessions.registry import Sessions
from qedtrio.state import claim_folder, remove_stale_folders
from qedtrio.verify.service import Verifier
from qedtrio.workers.faults import Faults
from qedtrio.workers.generation import Wear
from qedtrio.workers.jobs import JobWorkers
from qedtrio.workers.memory import MemoryGate
from qedtrio.workers.pool import Pool
from qedtrio.workers.probe import HostReport, birth_limits, probe_host
from qedtrio.workers.profile import JOB_ENTRY, Profile, session_profile
from qedtrio.workers.watch import Watch

__all__ = ["Daemon", "Urls", "run_daemon", "serve_forever"]

VERIFY_POOL = "verify"
VERIFY_MODULE = "qedtrio.verify.compare"
GRACE_SECONDS = 2.0
"""After a drain, responses on their way to clients may take this long."""

Urls = tuple[tuple[str, str], ...]
"""API name and URL of each listener, in the order of the configuration."""

log = logging.getLogger(__name__)


async def run_daemon(
    config: Config,
    *,
    stop: trio.Event | None = None,
    bench_echo: bool = False,
    faults: Faults | None = None,
    strongest_tier: Tier = Tier.A,
    task_status: trio.TaskStatus[Urls] = trio.TASK_STATUS_IGNORED,
) -> None:
    """Run the daemon until `stop` is set and it has drained.

    Cancellation ends it without a drain. Either way every process that it
    started is dead, and its folder removed, when this returns; one that does
    not die, though killed, keeps it for a bounded time only.

    Args:
        config: What to run.
        stop: Set to drain and return; None to run until cancelled.
        bench_echo: Whether to serve the route that only benchmarks need.
        faults: What goes wrong on purpose when workers start; None for nothing.
        strongest_tier: Isolate no stronger than this, as tests of the weaker
            tiers need.
        task_status: Told the listeners' URLs once every pool runs or failed.

    Raises:
        ConfigError: The host does not reach the configured tier, or an
            address cannot be listened at.
        ReleaseFailedError: It has drained, but some workers do not die.
    """
    raise_descriptor_limit()
    host = await probe_host(config.daemon.sandbox_uid, config.daemon.cgroup)
    if host.tier.reaches(strongest_tier):
        host = replace(host, tier=strongest_tier)
    require_tier(config, host)
    with (
        _open_state_dir(config) as state_dir,
        open_cgroups(config.daemon.cgroup) as cgroups,
    ):
        daemon = Daemon(config, host.tier, state_dir, cgroups, faults)
        stopped = trio.Event() if stop is None else stop
        await daemon.run(stopped, bench_echo, task_status)


async def serve_forever(
    config: Config,
    on_ready: Callable[[Urls], None],
    *,
    bench_echo: bool = False,
    faults: Faults | None = None,
    strongest_tier: Tier = Tier.A,
    owner: int | None = None,
) -> None:
    """Run the daemon until SIGTERM or SIGINT; a second one skips the drain.

    Args:
        config: What to run.
        on_ready: Told the listeners' URLs.
        bench_echo: Whether to serve the route that only benchmarks need.
        faults: What goes wrong on purpose when workers start; None for nothing.
        strongest_tier: Isolate no stronger than this.
        owner: A pipe held open by whoever started us; its end, which also
            comes when that process is killed, is a request to stop.
    """
    stop = trio.Event()
    with trio.open_signal_receiver(signal.SIGTERM, signal.SIGINT) as signals:
        async with trio.open_nursery() as nursery:

            async def watch() -> None:
                async for number in signals:
                    log.info("signal received", extra={"signal": number})
                    if stop.is_set():
                        nursery.cancel_scope.cancel()
                    stop.set()

            async def watch_owner(pipe: trio.lowlevel.FdStream) -> None:
                async with pipe:
                    async for _ in pipe:
                        pass
                stop.set()

            nursery.start_soon(watch)
            if owner is not None:
                nursery.start_soon(watch_owner, trio.lowlevel.FdStream(owner))
            run = partial(
                run_daemon,
                config,
                stop=stop,
                bench_echo=bench_echo,
                faults=faults,
                strongest_tier=strongest_tier,
            )
            on_ready(await nursery.start(_then_cancel, run, nursery.cancel_scope))


async def _then_cancel(
    run: Callable[..., Awaitable[None]],
    scope: trio.CancelScope,
    *,
    task_status: trio.TaskStatus[Urls],
) -> None:
    await run(task_status=task_status)
    scope.cancel()


def raise_descriptor_limit() -> None:
    """Allow as many descriptors as the host lets us: a session takes five."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def require_tier(config: Config, host: HostReport) -> None:
    """Refuse a host below `daemon.minimum_tier`, naming the remedy."""
    minimum = Tier(config.daemon.minimum_tier)
    if host.tier.reaches(minimum):
        return
    remedies = "; ".join(
        finding.remedy
        for finding in host.findings
        if not finding.ok and finding.name.startswith(("tier", "landlock"))
    )
    raise ConfigError(
        "daemon.minimum_tier",
        f"{minimum} is wanted, this host reaches {host.tier}; {remedies}",
    )


@contextmanager
def _open_state_dir(config: Config) -> Iterator[str]:
    parent = config.daemon.state_dir
    if removed := remove_stale_folders(parent):
        log.warning("folders of killed daemons removed", extra={"folders": removed})
    with ExitStack() as folders:
        try:
            folder = folders.enter_context(claim_folder(parent))
        except OSError as error:
            raise ConfigError("daemon.state_dir", str(error)) from error
        yield folder


@contextmanager
def open_cgroups(setting: str) -> Iterator[Cgroups | None]:
    """Take over a delegated control group; None, with a line in the log, else."""
    place = find_place(setting)
    cgroups = None
    if place is not None:
        try:
            cgroups = Cgroups(place)
            cgroups.settle()
        except OSError as error:
            cgroups = None
            log.warning("no control groups", extra={"why": str(error)})
    try:
        yield cgroups
    finally:
        if cgroups is not None:
            cgroups.sweep()


class Daemon:
    """Everything that lives as long as the process.

    Args:
        config: What to run.
        tier: Isolation tier of its workers.
        state_dir: Existing folder of its own.
        cgroups: Makes control groups for workers, where that was delegated.
        faults: What goes wrong on purpose; None for nothing.
    """

    def __init__(
        self,
        config: Config,
        tier: Tier,
        state_dir: str,
        cgroups: Cgroups | None = None,
        faults: Faults | None = None,
    ) -> None:
        self._config = config
        self._tier = tier
        self._state_dir = state_dir
        self._draining = False
        self._pools = {
            profile.name: Pool(
                profile,
                ready_workers=pool.ready_workers,
                max_workers=pool.max_workers,
                state_dir=state_dir,
                cgroups=cgroups,
                faults=faults,
                wear=Wear(forks=pool.recycle_forks, seconds=pool.recycle_seconds),
            )
            for profile, pool in self._profiles()
        }
        gate = MemoryGate(
            config.limits.total_memory_bytes, config.limits.free_memory_bytes
        )
        self._sessions = Sessions(
            {name: self._pools[name] for name in config.pools},
            config.default_pool,
            config.limits,
            gate,
        )
        self._watch = Watch(
            pools=self._pools.values(), gate=gate, seconds=config.limits.watch_seconds
        )
        self._verifier = Verifier(
            config.verify,
            JobWorkers(
                pool=self._pools[VERIFY_POOL],
                function=f"{VERIFY_MODULE}:judge",
                limits={},
            ),
            queue_seconds=config.limits.queue_seconds,
        )
        self._reporter = Reporter(
            tier=tier,
            pools=self._pools,
            sessions=self._sessions,
            verifier=self._verifier,
            is_draining=lambda: self._draining,
        )

    def _profiles(self) -> Iterator[tuple[Profile, PoolConfig]]:
        """Each pool's profile and configuration."""
        config = self._config
        uid, limits = config.daemon.sandbox_uid, birth_limits(config.limits)
        spare = 2 * config.verify.workers + 1
        if self._tier is not Tier.A:
            workers = spare + sum(pool.max_workers for pool in config.pools.values())
            limits = shared_limits(limits, workers)
        for name, pool in config.pools.items():
            profile = session_profile(
                name, pool, tier=self._tier, uid=uid, limits=limits
            )
            yield profile, pool
        verify = Profile(
            name=VERIFY_POOL,
            preload=(VERIFY_MODULE,),
            entry=JOB_ENTRY,
            warm_up=f"{VERIFY_MODULE}:warm_up",
            tier=self._tier,
            uid=uid,
            limits=limits | {"memory_bytes": config.verify.memory_bytes},
        )
        # One spare, so that a killed worker is replaced by one that is ready.
        yield verify, PoolConfig(ready_workers=1, max_workers=spare)

    async def run(
        self, stop: trio.Event, bench_echo: bool, task_status: trio.TaskStatus[Urls]
    ) -> None:
        """Live until `stop` is set, then drain."""
        async with trio.open_nursery() as pools:
            for pool in self._pools.values():
                pools.start_soon(pool.run)
            pools.start_soon(self._watch.run)
            async with trio.open_nursery() as domain:
                await domain.start(self._sessions.run_forever)
                await domain.start(self._verifier.run)
                await self._serve(stop, bench_echo, task_status)
                domain.cancel_scope.cancel()
            pools.cancel_scope.cancel()
        self._refuse_survivors()

    def _refuse_survivors(self) -> None:
        pids = {w.pid for pool in self._pools.values() for w in pool.unburied()}
        if pids:
            raise ReleaseFailedError(
                f"killed, but not seen dead: processes {', '.join(map(str, pids))}"
            )

    async def _serve(
        self, stop: trio.Event, bench_echo: bool, task_status: trio.TaskStatus[Urls]
    ) -> None:
        front = build_front(self._services(bench_echo))
        closing = trio.Event()
        async with AsyncExitStack() as sockets, trio.open_nursery() as listeners:
            urls = []
            for number, listen in enumerate(self._config.listen):
                if listen.api != "native":
                    raise ConfigError(f"listen[{number}].api", "must be native")
                sock = await sockets.enter_async_context(
                    open_socket(listen.address, os.environ)
                )
                await listeners.start(
                    partial(
                        serve_listener,
                        front,
                        sock,
                        self._config.http,
                        shutdown=closing,
                        grace_seconds=GRACE_SECONDS,
                    )
                )
                urls.append((listen.api, address_of(sock)))
            for pool in self._pools.values():
                await pool.wait_settled()
            task_status.started(tuple(urls))
            await stop.wait()
            await self._drain()
            closing.set()

    async def _drain(self) -> None:
        log.info("draining", extra={"seconds": self._config.daemon.drain_seconds})
        self._draining = True
        await self._sessions.drain(self._config.daemon.drain_seconds)

    def _services(self, bench_echo: bool) -> Services:
        return Services(
            config=self._config,
            sessions=self._sessions,
            verifier=self._verifier,
            readiness=self._reporter.readiness,
            status=self._reporter.status,
            metrics=Metrics(self._reporter.status),
            draining=lambda: self._draining,
            pool_of=self._sessions.pool_of,
            bench_echo=bench_echo,
        )
