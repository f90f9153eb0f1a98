"""Logging to stderr: constant sentences, facts as `key=value` or JSON.

A module logs `logger.info("worker retired", extra={"worker_pid": pid})`. The
sentence never varies, so that it can be searched for and counted; the facts
are escaped, so that none of them can forge a line. Neither user code nor a
prediction belongs in either.
"""

import json
import logging
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import ClassVar

from qedtrio.config import LogConfig

__all__ = ["ConsoleFormatter", "JsonFormatter", "configure_logging"]

STANDARD = frozenset(vars(logging.makeLogRecord({}))) | {"message", "asctime"}
"""Attributes that every record has; whatever else it carries is a fact."""

QUIETED = {"math_verify": logging.ERROR}
"""Loggers raised above the configured level: math-verify warns about every
disabled timeout, which is by our choice, and quotes predictions as it does."""


def configure_logging(config: LogConfig) -> None:
    """Send every logger's records to stderr, and warnings with them.

    Replaces handlers set up before, so that calling it twice logs once.
    """
    handler = logging.StreamHandler(sys.stderr)
    json_wanted = config.format == "json"
    handler.setFormatter(JsonFormatter() if json_wanted else ConsoleFormatter())
    logging.basicConfig(
        level=config.level.upper(), handlers=[handler], force=True
    )  # force also closes what was there
    logging.captureWarnings(capture=True)
    for name, level in QUIETED.items():
        logging.getLogger(name).setLevel(level)


class ConsoleFormatter(logging.Formatter):
    """One readable line: time, level, logger, sentence, facts; then a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        """Write `record` as a line, with the traceback below it."""
        facts = "".join(f" {key}={quoted(value)}" for key, value in facts_of(record))
        line = (
            f"{utc(record)} {record.levelname:<7}"
            f" {record.name}: {one_line(record.getMessage())}{facts}"
        )
        trace = traceback_of(self, record)
        return f"{line}\n{trace}" if trace else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, facts beside `time`, `level`, `logger`, `message`."""

    RESERVED: ClassVar = frozenset({"time", "level", "logger", "message", "traceback"})

    def format(self, record: logging.LogRecord) -> str:
        """Write `record` as one line of JSON."""
        document: dict[str, object] = {
            "time": utc(record),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        for key, value in facts_of(record):
            document[f"{key}_" if key in self.RESERVED else key] = value
        if trace := traceback_of(self, record):
            document["traceback"] = trace
        return json.dumps(document, default=str)  # ASCII: no surrogate can break it


def utc(record: logging.LogRecord) -> str:
    """Print when `record` was made, in UTC to the millisecond."""
    return datetime.fromtimestamp(record.created, UTC).isoformat(
        timespec="milliseconds"
    )


def facts_of(record: logging.LogRecord) -> Iterator[tuple[str, object]]:
    """List what `extra` put on the record, in that order."""
    return ((k, v) for k, v in vars(record).items() if k not in STANDARD)


def quoted(value: object) -> str:
    """Print a fact bare where that is unambiguous, else as a JSON string."""
    text = str(value)
    bare = text.isascii() and text.isprintable() and text.strip() == text != ""
    return text if bare and not set(text) & set(' "=') else json.dumps(text)


def one_line(text: str) -> str:
    """Escape what would start another line or move the cursor."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def traceback_of(formatter: logging.Formatter, record: logging.LogRecord) -> str:
    """Format the exception and stack of `record`, or nothing."""
    parts = [formatter.formatException(record.exc_info)] if record.exc_info else []
    if record.stack_info:
        parts.append(formatter.formatStack(record.stack_info))
    return "\n".join(parts)
