"""Prometheus metrics, in a registry of the daemon's own.

Counters and histograms are fed where things happen; everything that the
daemon can tell about itself is read at scrape time from its status, so no
figure is kept twice.
"""

from collections.abc import Callable, Iterator

from prometheus_client import CollectorRegistry, Counter, Histogram, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST
from prometheus_client.registry import Collector

from qedtrio.api.status import DaemonStatus
from qedtrio.results import RunResult

__all__ = ["Metrics"]

SECONDS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5)
METHODS = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
"""Others are counted together: a client must not choose our label values."""

RUN_SECONDS = (*SECONDS, 10, 30, 60, 300)


class Metrics:
    """What `/metrics` shows.

    Attributes:
        registry: Holds every metric of this daemon and of nothing else.
        content_type: Of `render()`.
    """

    content_type = CONTENT_TYPE_LATEST

    def __init__(self, status: Callable[[], DaemonStatus]) -> None:
        self.registry = CollectorRegistry()
        self._requests = Counter(
            "qedtrio_http_requests",
            "Requests by route template and status.",
            ("method", "route", "status"),
            registry=self.registry,
        )
        self._request_seconds = Histogram(
            "qedtrio_http_request_seconds",
            "From the request's head to its reply's end.",
            ("route",),
            buckets=RUN_SECONDS,
            registry=self.registry,
        )
        self._run_seconds = Histogram(
            "qedtrio_run_seconds",
            "From dispatch to a worker until its reply.",
            ("pool", "status"),
            buckets=RUN_SECONDS,
            registry=self.registry,
        )
        self._queue_seconds = Histogram(
            "qedtrio_run_queue_seconds",
            "Waiting before dispatch.",
            ("pool", "status"),
            buckets=RUN_SECONDS,
            registry=self.registry,
        )
        self._request_children: dict[
            tuple[str, str, int], tuple[Counter, Histogram]
        ] = {}  # looking a child up by its labels costs more than counting
        self._run_children: dict[tuple[str, str], tuple[Histogram, Histogram]] = {}
        self.registry.register(StatusCollector(status))

    def observe_request(
        self, method: str, route: str, status: int, seconds: float
    ) -> None:
        """Count a request; status 499 is a client that went away."""
        key = (method if method in METHODS else "other", route, status)
        found = self._request_children.get(key)
        if found is None:
            found = (
                self._requests.labels(key[0], route, str(status)),
                self._request_seconds.labels(route),
            )
            self._request_children[key] = found
        found[0].inc()
        found[1].observe(seconds)

    def observe_run(self, pool: str, result: RunResult) -> None:
        """Count a run that ended."""
        key = (pool, result.status.value)
        found = self._run_children.get(key)
        if found is None:
            found = (
                self._run_seconds.labels(*key),
                self._queue_seconds.labels(*key),
            )
            self._run_children[key] = found
        found[0].observe(result.wall_seconds)
        found[1].observe(result.queue_seconds)

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self.registry)


class StatusCollector(Collector):
    """Turns the daemon's status into metrics when it is scraped."""

    def __init__(self, status: Callable[[], DaemonStatus]) -> None:
        self._status = status

    def describe(self) -> list[Metric]:
        """Nothing at registration: the daemon may not be up yet."""
        return []

    def collect(self) -> Iterator[Metric]:
        """Read the status once and translate it."""
        status = self._status()
        yield from _daemon(status)
        yield from _pools(status)
        yield from _verify(status)


def _gauge(
    name: str, text: str, samples: dict[tuple[str, ...], float], *labels: str
) -> GaugeMetricFamily:
    """A gauge with its samples, by label values."""
    family = GaugeMetricFamily(name, text, labels=labels)
    for values, sample in samples.items():
        family.add_metric(values, sample)
    return family


def _daemon(status: DaemonStatus) -> Iterator[Metric]:
    """The process and its sessions."""
    about: dict[tuple[str, ...], float] = {(status.version, status.tier): 1.0}
    yield _gauge("qedtrio_info", "Version and tier.", about, "version", "tier")
    yield _gauge("qedtrio_uptime_seconds", "Age.", {(): status.uptime_seconds})
    yield _gauge("qedtrio_draining", "1 while draining.", {(): status.draining})
    sessions: dict[tuple[str, ...], float] = {
        ("live",): status.sessions.live,
        ("starting",): status.sessions.starting,
        ("closing",): status.sessions.closing,
        ("orphan",): status.sessions.orphans,
    }
    yield _gauge("qedtrio_sessions", "Sessions by state.", sessions, "state")


def _pools(status: DaemonStatus) -> Iterator[Metric]:
    """Workers and queues, by pool."""
    workers: dict[tuple[str, ...], float] = {}
    waiting: dict[tuple[str, ...], float] = {}
    memory: dict[tuple[str, ...], float] = {}
    restarts = CounterMetricFamily(
        "qedtrio_worker_restarts", "Restarts nobody asked for.", labels=["pool"]
    )
    recycles = CounterMetricFamily(
        "qedtrio_worker_recycles", "Fork servers replaced for age.", labels=["pool"]
    )
    for name, pool in status.pools.items():
        workers[name, "ready"] = pool.ready
        workers[name, "busy"] = pool.busy
        workers[name, "starting"] = pool.starting
        workers[name, "dying"] = pool.dying
        waiting[(name,)] = pool.queue
        memory[(name,)] = sum(worker.memory_bytes for worker in pool.workers)
        restarts.add_metric([name], pool.restarts)
        recycles.add_metric([name], pool.recycles)
    yield _gauge("qedtrio_workers", "Workers by state.", workers, "pool", "state")
    yield _gauge("qedtrio_pool_queue_requests", "Waiting.", waiting, "pool")
    yield _gauge("qedtrio_workers_memory_bytes", "Resident.", memory, "pool")
    yield restarts
    yield recycles


def _verify(status: DaemonStatus) -> Iterator[Metric]:
    """Verification."""
    verify = status.verify
    yield _gauge("qedtrio_verify_queue_items", "Waiting.", {(): verify.queue})
    counts = {
        "qedtrio_verify_items": ("Items judged.", verify.items),
        "qedtrio_verify_retries": ("Items tried again.", verify.retries),
        "qedtrio_verify_cache_hits": ("Verdicts reused.", verify.cache_hits),
        "qedtrio_verify_cache_misses": ("Verdicts made.", verify.cache_misses),
    }
    for name, (text, value) in counts.items():
        yield CounterMetricFamily(name, text, value=value)
