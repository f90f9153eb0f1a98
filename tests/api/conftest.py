"""Every test here must leave no descriptor behind."""

import gc
from collections.abc import Iterator
from pathlib import Path

import pytest


def open_descriptors() -> set[str]:
    """What this process has open, by number and target."""
    found = set()
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found.add(f"{entry.name} {entry.readlink()}")
        except OSError:
            continue  # the listing's own descriptor
    return {name for name in found if "socket:" in name}


@pytest.fixture(autouse=True)
def no_socket_left() -> Iterator[None]:
    """Fail a test that leaks a socket."""
    before = open_descriptors()
    yield
    after = open_descriptors()

    assert after <= before
    gc.collect()  # resource warnings belong to the test that caused them
