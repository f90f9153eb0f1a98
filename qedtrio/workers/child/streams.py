"""Standard streams of a run: descriptors 1 and 2 are fresh pipes each time.

Nothing is buffered here, so that what was printed survives a kill. After a
run both descriptors point at /dev/null again; a process that a run left
behind holds only its own run's pipes.
"""

import contextlib
import io
import os
import sys
from collections.abc import Callable

__all__ = ["Streams"]


class Streams:
    """Points the standard streams at a run's pipes, and away again."""

    def __init__(self) -> None:
        self._null = os.open(os.devnull, os.O_RDWR | os.O_CLOEXEC)
        self._made: dict[str, io.TextIOWrapper] = {}

    def open(self, descriptors: list[int], stdin: str) -> None:
        """Start a run's streams.

        Args:
            descriptors: Pipes for stdout and stderr; closed here.
            stdin: What reading `sys.stdin` yields before its end.
        """
        for standard, descriptor in zip((1, 2), descriptors, strict=True):
            os.dup2(descriptor, standard)
            os.close(descriptor)
        if stdin:
            self._made.pop("stdin", None)
        sys.stdin = self._stream("stdin", lambda: _reader(stdin))
        sys.stdout = self._stream("stdout", lambda: _writer(1))
        sys.stderr = self._stream("stderr", lambda: _writer(2))

    def _stream(
        self, name: str, make: Callable[[], io.TextIOWrapper]
    ) -> io.TextIOWrapper:
        """Find the stream of an earlier run, unless the code closed it."""
        stream = self._made.get(name)
        with contextlib.suppress(ValueError):  # detached
            if stream is not None and not stream.closed:
                return stream
        stream = self._made[name] = make()
        setattr(sys, f"__{name}__", stream)
        return stream

    def close(self) -> None:
        """End a run's streams; writers that stay behind reach /dev/null."""
        for name in ("stdout", "stderr"):
            with contextlib.suppress(Exception):  # the code may have put anything there
                getattr(sys, name).flush()
        os.dup2(self._null, 1)
        os.dup2(self._null, 2)


def _reader(text: str) -> io.TextIOWrapper:
    data = io.BytesIO(text.encode("utf-8", "surrogatepass"))
    return io.TextIOWrapper(data, encoding="utf-8")


def _writer(descriptor: int) -> io.TextIOWrapper:
    return io.TextIOWrapper(
        _Whole(descriptor, "w", closefd=False),
        encoding="utf-8",
        errors="backslashreplace",
        write_through=True,  # as `python -u` does
    )


class _Whole(io.FileIO):
    """Writes all it is given: a pipe takes part of a large write at a signal."""

    def write(self, data: object, /) -> int:
        view = memoryview(data).cast("B")  # type: ignore[arg-type]  # as FileIO
        written = 0
        while written < len(view):
            written += super().write(view[written:]) or 0
        return written
