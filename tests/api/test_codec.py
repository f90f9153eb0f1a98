"""JSON in and out."""

import json
from types import MappingProxyType

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from qedtrio.api.codec import decode, encode, encode_event
from qedtrio.api.schema import CreateBody, RunBody, RunOnceBody, VerifyBody
from qedtrio.errors import RequestError
from qedtrio.results import RunResult, RunStatus

BODIES = [CreateBody, RunBody, RunOnceBody, VerifyBody]
DECODERS = [msgspec.json.Decoder(kind) for kind in BODIES]


def refused_field(which: int, body: bytes) -> str:
    """The field that is blamed; "$" also when the body is fine."""
    try:
        decode(DECODERS[which], body)
    except RequestError as error:
        return error.field
    return "$"


@given(st.text(st.characters()))
def test_any_text_can_be_encoded(text: str) -> None:
    """Lone surrogates, which UTF-8 cannot hold, are mended."""
    result = RunResult(run_id="r", status=RunStatus.OK, stdout=text)
    found = msgspec.json.decode(encode(result))

    assert found["stdout"] == text.encode("utf-8", "replace").decode()


def test_read_only_mappings_are_objects() -> None:
    """Frozen values hold them."""
    assert encode(MappingProxyType({"a": 1})) == b'{"a":1}'


def test_events_are_one_line_with_the_event_first() -> None:
    """Newlines in values stay inside their strings."""
    assert encode_event("x", {"a": "b\nc"}) == b'{"event":"x","a":"b\\nc"}\n'


@given(st.binary(max_size=64), st.sampled_from(range(len(BODIES))))
def test_no_bytes_do_worse_than_a_request_error(body: bytes, which: int) -> None:
    """Whatever arrives is decoded or refused with a field."""
    assert refused_field(which, body).startswith("$")


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(st.characters()),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["code", "gold", "items", "limits"]), inner)
    ),
    max_leaves=5,
)


@pytest.mark.slow
@given(
    st.dictionaries(
        st.sampled_from(["code", "gold", "prediction", "items", "seed", "limits"]),
        JSON_VALUES,
    ),
    st.sampled_from(range(len(BODIES))),
)
def test_no_json_does_worse_than_a_request_error(
    value: dict[str, object], which: int
) -> None:
    """Also what only lenient writers produce: NaN, lone surrogates."""
    assert refused_field(which, json.dumps(value).encode()).startswith("$")


def test_big_malformed_bodies_are_not_read_twice() -> None:
    """Naming the field is a courtesy with a limit."""
    body = b'{"code": "' + b"a" * (1 << 20) + b'\\ud800"}'
    with pytest.raises(RequestError) as caught:
        decode(DECODERS[1], body)

    assert caught.value.field == "$"
