"""A program that looks like `qedtrio serve`: a ready line, answers, SIGTERM."""

import signal

import trio

from tests.cli.bench.test_load import GoodDaemon
from tests.cli.fakes import serve_tcp


async def main() -> None:
    """Serve until SIGTERM."""
    with trio.open_signal_receiver(signal.SIGTERM) as signals:
        async with serve_tcp(GoodDaemon()) as url:
            print(f"ready native {url}", flush=True)
            await anext(aiter(signals))


trio.run(main)
