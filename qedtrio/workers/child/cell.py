"""Execution of one run's code, and the description of what it raised."""

import ast
import builtins
import linecache
import traceback
from collections.abc import Iterator

__all__ = ["clean", "describe", "execute"]

TRACEBACK_CHARS = 16384
KEPT_SOURCES = 64
"""Runs whose source lines stay known to tracebacks of later ones."""


def clean(text: str) -> str:
    """Replace what UTF-8 cannot say, such as lone surrogates."""
    return text.encode("utf-8", "backslashreplace").decode("utf-8")


def execute(
    code: str, namespace: dict[str, object], number: int, result_bytes: int
) -> str | None:
    """Execute `code`; its last expression statement is its value.

    Args:
        code: Python source.
        namespace: Globals and locals in one; `_` is set as in a notebook.
        number: Of the run, for the file name in tracebacks.
        result_bytes: Where the repr is cut.

    Returns:
        Bounded repr of the value, None when there is none or it is None.

    Raises:
        BaseException: Whatever the code, or the repr of its value, raises.
    """
    name = f"<run-{number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    linecache.cache.pop(f"<run-{number - KEPT_SOURCES}>", None)
    tree = ast.parse(code, name)
    last = (
        tree.body.pop() if tree.body and isinstance(tree.body[-1], ast.Expr) else None
    )
    flags = _future_flags(tree)
    if tree.body:
        exec(compile(tree, name, "exec", flags, dont_inherit=True), namespace)
    if not isinstance(last, ast.Expr):
        return None
    expression = ast.Expression(last.value)
    value = eval(compile(expression, name, "eval", flags, dont_inherit=True), namespace)
    if value is None:
        return None
    namespace["_"] = value
    return _cut(clean(repr(value)), result_bytes)


def _future_flags(tree: ast.Module) -> int:
    """Compile flags of the code's own `from __future__` lines."""
    import __future__

    flags = 0
    for node in tree.body:
        if isinstance(node, ast.ImportFrom) and node.module == "__future__":
            for alias in node.names:
                feature = getattr(__future__, alias.name, None)
                flags |= getattr(feature, "compiler_flag", 0)
    return flags


def _cut(text: str, limit: int) -> str:
    size = len(text.encode("utf-8"))
    if size <= limit:
        return text
    head = text.encode("utf-8")[: limit // 2].decode("utf-8", "ignore")
    tail = text.encode("utf-8")[-(limit // 2) :].decode("utf-8", "ignore")
    return f"{head}\n… {size - limit} bytes cut …\n{tail}"


def describe(error: BaseException) -> dict[str, str]:
    """Describe an exception: type, message, and the user's lines of traceback."""
    kind = type(error)
    name = kind.__qualname__
    if kind.__module__ not in {builtins.__name__, "__main__"}:
        name = f"{kind.__module__}.{name}"
    try:
        message = str(error)
    except BaseException:
        message = "<str() of the exception failed>"
    return {
        "type": clean(name)[:500],
        "message": _cut(clean(message), TRACEBACK_CHARS),
        "traceback": _cut(clean(_user_traceback(error)), TRACEBACK_CHARS),
    }


def _user_traceback(error: BaseException) -> str:
    try:
        described = traceback.TracebackException.from_exception(error, limit=-200)
        for link in _chain(described):
            link.stack[:] = [f for f in link.stack if f.filename.startswith("<run-")]
        return "".join(described.format())
    except BaseException:  # the exception's own code may do anything
        return f"{type(error).__qualname__}\n"


def _chain(
    described: traceback.TracebackException,
) -> Iterator[traceback.TracebackException]:
    seen: set[int] = set()
    waiting: list[traceback.TracebackException | None] = [described]
    while waiting:
        link = waiting.pop()
        if link is None or id(link) in seen:
            continue
        seen.add(id(link))
        yield link
        waiting += [link.__cause__, link.__context__]
        waiting += getattr(link, "exceptions", None) or []
