"""Bounded capture of a stream: the first and the last part, and a count between."""

import codecs

__all__ = ["Capture"]


class Capture:
    """Keeps at most `limit_bytes` of what it is fed, whatever comes.

    Args:
        limit_bytes: Half of it is kept from the start, half from the end.
    """

    def __init__(self, limit_bytes: int) -> None:
        self._head_limit = limit_bytes // 2
        self._tail_limit = limit_bytes - self._head_limit
        self._head = bytearray()
        self._tail = bytearray()
        self._trimmed = 0
        self._decoder: codecs.IncrementalDecoder | None = None
        self.total_bytes = 0

    @property
    def dropped_bytes(self) -> int:
        """Bytes that `text` leaves out of the middle."""
        return max(0, self.total_bytes - self._head_limit - self._tail_limit)

    def feed(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self.total_bytes += len(data)
        room = self._head_limit - len(self._head)
        if room > 0:
            self._head += data[:room]
            data = data[room:]
        self._tail += data
        # Trimming at twice the limit copies each byte once on average.
        if len(self._tail) > 2 * self._tail_limit:
            del self._tail[: -self._tail_limit]

    def text(self) -> str:
        """Decode what was kept, with a marker where bytes are missing."""
        tail = self._tail[-self._tail_limit :]
        dropped = self.dropped_bytes
        if not dropped:
            return (self._head + tail).decode("utf-8", "replace")
        head = self._head.decode("utf-8", "replace")
        return f"{head}\n… {dropped} bytes dropped …\n{tail.decode('utf-8', 'replace')}"

    def decode_part(self, data: bytes, *, final: bool = False) -> str:
        """Decode a part for live delivery; a split character waits for its rest."""
        if self._decoder is None:
            self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return self._decoder.decode(data, final)
