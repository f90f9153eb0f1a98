"""Log lines: one per record, facts escaped, nothing silenced by accident."""

import json
import logging
import sys

import pytest
import trio
from hypothesis import given, settings
from hypothesis import strategies as st

from qedtrio.cli.logs import ConsoleFormatter, JsonFormatter


def record(message: str, **facts: object) -> logging.LogRecord:
    """A record as `logger.info(message, extra=facts)` makes it."""
    made = logging.LogRecord("qedtrio.x", logging.INFO, __file__, 1, message, (), None)
    made.__dict__.update(facts)
    return made


def test_console_line_has_time_level_logger_sentence_and_facts() -> None:
    """Facts follow the sentence, quoted only where they must be."""
    line = ConsoleFormatter().format(record("worker retired", worker_pid=7, why="a b"))

    time, rest = line.split(" ", 1)
    assert time.endswith("+00:00")
    assert rest == 'INFO    qedtrio.x: worker retired worker_pid=7 why="a b"'


@settings(max_examples=50)
@given(text=st.text(), fact=st.text())
def test_no_text_forges_a_line(text: str, fact: str) -> None:
    """Whatever a message or a fact holds, it stays on its line."""
    made = record("said %s")
    made.args = (text,)
    made.fact = fact

    console = ConsoleFormatter().format(made)
    assert len(console.splitlines()) == 1
    assert console.isprintable()
    document = json.loads(JsonFormatter().format(made))
    assert (document["message"], document["fact"]) == (f"said {text}", fact)


def test_json_line_keeps_types_and_its_own_keys() -> None:
    """Numbers stay numbers, and a fact cannot replace the level."""
    line = JsonFormatter().format(record("m", worker_pid=7, level="forged", other=[1]))

    document = json.loads(line)
    assert document["worker_pid"] == 7
    assert (document["level"], document["level_"]) == ("info", "forged")
    assert document["other"] == [1]


def test_what_json_cannot_say_is_said_as_text() -> None:
    """No fact makes logging fail."""
    document = json.loads(JsonFormatter().format(record("m", odd={1}, s="\ud800")))

    assert document["odd"] == "{1}"
    assert document["s"] == "\ud800"


@pytest.mark.parametrize("formatter", [ConsoleFormatter(), JsonFormatter()])
def test_an_exception_brings_its_traceback(formatter: logging.Formatter) -> None:
    """Our own faults are logged whole."""
    made = record("worker failed")
    try:
        int("inner")
    except ValueError:
        made.exc_info = sys.exc_info()

    assert "ValueError: invalid literal" in formatter.format(made)


CONFIGURED = """
import logging, warnings
from qedtrio.cli.logs import configure_logging
from qedtrio.config import LogConfig
for _ in range(2):
    configure_logging(LogConfig(level="info", format="json"))
logging.getLogger("qedtrio.a").info("seen")
logging.getLogger("qedtrio.a").debug("unseen")
logging.getLogger("hypercorn.error").warning("seen too")
logging.getLogger("math_verify").warning("unseen")
logging.getLogger("math_verify.grader").error("seen as well")
warnings.warn("warned")
"""


async def test_configured_logging_goes_to_stderr_once() -> None:
    """Every logger and warning, from the configured level, and only once."""
    with trio.fail_after(10):
        done = await trio.run_process(
            [sys.executable, "-c", CONFIGURED], capture_stdout=True, capture_stderr=True
        )

    lines = [json.loads(line) for line in done.stderr.splitlines()]
    assert done.stdout == b""
    assert [line["message"] for line in lines[:3]] == [
        "seen",
        "seen too",
        "seen as well",
    ]
    assert "warned" in lines[3]["message"]
    assert len(lines) == 4
