"""Bounded capture, as a pure value."""

from hypothesis import given
from hypothesis import strategies as st

from qedtrio.workers.output import Capture


@given(st.lists(st.binary(max_size=50)), st.integers(2, 60))
def test_capture_keeps_head_and_tail_and_counts_the_rest(
    parts: list[bytes], limit: int
) -> None:
    """Whatever the parts, the ends are right and the sum adds up."""
    capture = Capture(limit)
    for part in parts:
        capture.feed(part)
    whole = b"".join(parts)

    assert capture.total_bytes == len(whole)
    if len(whole) <= limit:
        assert capture.dropped_bytes == 0
        assert capture.text() == whole.decode("utf-8", "replace")
    else:
        head, tail = whole[: limit // 2], whole[-(limit - limit // 2) :]
        dropped = len(whole) - limit
        assert capture.dropped_bytes == dropped
        assert capture.text() == (
            f"{head.decode('utf-8', 'replace')}\n… {dropped} bytes dropped …\n"
            f"{tail.decode('utf-8', 'replace')}"
        )


@given(st.text(), st.integers(1, 4))
def test_live_parts_join_to_the_text(text: str, size: int) -> None:
    """A character split between parts is delivered whole."""
    data = text.encode("utf-8", "replace")
    capture = Capture(1000)
    parts = [data[i : i + size] for i in range(0, len(data), size)]
    live = "".join(capture.decode_part(part) for part in parts)

    assert live + capture.decode_part(b"", final=True) == data.decode("utf-8")
