"""The shape of the package: who may import whom, and how long a module may be."""

import ast
import sys
from pathlib import Path

import pytest

import qedtrio

ROOT = Path(qedtrio.__file__).parent
MODULES = sorted(ROOT.rglob("*.py"))

RANK = {
    "errors": 0,
    "results": 1,
    "config": 2,
    "sandbox": 3,
    "state": 3,
    "workers": 4,
    "sessions": 5,
    "verify": 5,
    "environment": 6,
    "api": 7,
    "report": 8,
    "systemd": 8,
    "daemon": 9,
    "cli": 10,
}
"""A module imports only modules of a lower rank, or of its own package."""

VALUES = {"errors", "results", "config"}
CHILD_SIDE = {"workers/child", "sandbox"}


def imports(path: Path) -> set[str]:
    """Full names of the modules that `path` imports, wherever in it."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom):
            names.add(node.module or "")
        elif isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
    return names


def label(path: Path) -> str:
    """The module as the test's id."""
    return str(path.relative_to(ROOT))


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_imports_point_down(path: Path) -> None:
    """Lower layers do not know the layers above them."""
    own = path.relative_to(ROOT).parts[0].removesuffix(".py")
    if own.startswith("__"):
        return
    used = {n.split(".")[1] for n in imports(path) if n.startswith("qedtrio.")}

    assert not {n for n in used if n != own and RANK[n] >= RANK[own]}


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_values_and_child_side_use_the_standard_library(path: Path) -> None:
    """What every process loads must cost nothing and pull in nothing."""
    relative = path.relative_to(ROOT)
    first = relative.parts[0].removesuffix(".py")
    child = any(str(relative).startswith(f"{place}/") for place in CHILD_SIDE)
    if first not in VALUES and not child:
        return
    foreign = {n.split(".")[0] for n in imports(path)} - sys.stdlib_module_names

    assert foreign <= {"qedtrio"}


@pytest.mark.parametrize("path", MODULES, ids=label)
def test_module_is_within_budget(path: Path) -> None:
    """No module grows past 400 lines."""
    assert len(path.read_text().splitlines()) <= 400


def test_public_names_are_the_objects_of_their_modules() -> None:
    """Lazy exports are identical to the originals, listed, and complete."""
    from qedtrio.results import Verdict

    assert qedtrio.Verdict is Verdict
    assert set(qedtrio.__all__) <= set(dir(qedtrio))
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = qedtrio.nonsense
