"""Floors: what cannot be beaten, measured in the same run and on the same host."""

import json
import os
import sys
import time
from collections.abc import Sequence
from typing import Protocol

import trio

from qedtrio.cli.bench.daemon import kill_group
from qedtrio.cli.bench.measure import Measurement, measurement
from qedtrio.cli.calls import RefusedError

__all__ = ["Pinger", "measure_fork", "measure_worker_round_trip"]

WARM_UP = 5
IMPORT_SECONDS = 60.0
"""For loading the preload list before the first fork."""

FORK_PROGRAM = """
import gc, importlib, json, os, sys, time
for name in json.loads(sys.argv[1]):
    importlib.import_module(name)
gc.freeze()  # as the fork server does; the child then copies fewer pages
clock, seconds = time.perf_counter, []
warm_up = int(sys.argv[3])
end = clock() + float(sys.argv[2])
while clock() < end or len(seconds) <= warm_up:
    start = clock()
    if not (child := os.fork()):
        os._exit(0)
    os.waitpid(child, 0)
    seconds.append(clock() - start)
print(json.dumps(seconds[warm_up:]))
"""


class Pinger(Protocol):
    """A worker's control channel, without HTTP."""

    async def ping(self) -> None:
        """Send an empty message and wait for its answer."""


async def measure_fork(preload: Sequence[str], *, seconds: float) -> Measurement:
    """Measure a bare fork, exit and wait with `preload` imported.

    In a process started for it, since forking the caller would measure the
    caller's memory.

    Raises:
        RefusedError: A module could not be imported; stderr has said why.
        trio.TooSlowError: The imports took too long.
    """
    single = dict.fromkeys(("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS"), "1")
    arguments = (json.dumps(preload), str(seconds), str(WARM_UP))
    with trio.fail_after(IMPORT_SECONDS + seconds):
        done = await trio.run_process(
            [sys.executable, "-c", FORK_PROGRAM, *arguments],
            capture_stdout=True,
            check=False,
            env={**os.environ, **single, "PYTHONWARNINGS": "ignore"},
            start_new_session=True,
            deliver_cancel=kill_group,
        )
    if done.returncode != 0:
        raise RefusedError(f"importing {', '.join(preload)} failed")
    samples = json.loads(done.stdout)
    return measurement("fork", samples, seconds=sum(samples))


async def measure_worker_round_trip(pinger: Pinger, *, seconds: float) -> Measurement:
    """Measure bare round trips over a worker's channel, one after the other."""
    clock = time.perf_counter
    samples: list[float] = []
    with trio.fail_after(IMPORT_SECONDS + seconds):
        for _ in range(WARM_UP):
            await pinger.ping()
        started = clock()
        while (before := clock()) < started + seconds:
            await pinger.ping()
            samples.append(clock() - before)
    return measurement("worker_round_trip", samples, seconds=clock() - started)
