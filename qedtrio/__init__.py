"""Runs model-written Python and checks mathematical answers for RL trainers.

Public names load on first use, so that a worker process, which imports this
package on its way to `qedtrio.workers.child`, pays for none of them.
"""

from importlib import import_module

__all__ = ["Config", "RunResult", "RunStatus", "Verdict", "VerdictStatus"]

__version__ = "0.1.0"

_HOME = {
    "Config": "qedtrio.config",
    "RunResult": "qedtrio.results",
    "RunStatus": "qedtrio.results",
    "Verdict": "qedtrio.results",
    "VerdictStatus": "qedtrio.results",
}


def __getattr__(name: str) -> object:
    """Load a public name from the module it lives in (PEP 562)."""
    if name not in _HOME:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(_HOME[name]), name)


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__})
