"""The size of a folder that hostile code fills while it is counted."""

import os
from contextlib import suppress
from dataclasses import dataclass, field

__all__ = ["folder_bytes"]

ENTRY_BYTES = 512
"""Counted for each entry, so that empty files are not free."""
DEEPEST = 100
FLAGS = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def folder_bytes(folder: str, most: float) -> float:
    """Add up a folder without following links; stop beyond `most`.

    What cannot be entered, or lies deeper than a hundred folders, counts as
    beyond: else it would be the place to hide things.
    """
    count = _Count(most=most)
    try:
        count.enter(os.open(folder, FLAGS))
        while count.line and count.total <= most:
            count.step()
    except FileNotFoundError:  # removed with its worker meanwhile
        pass
    except OSError:
        return most + 1
    finally:
        for descriptor, _ in count.line:
            os.close(descriptor)
    return count.total


@dataclass(slots=True, kw_only=True)
class _Count:
    """A walk in depth: open folders on the way, and what waits in each."""

    most: float
    total: float = 0.0
    line: list[tuple[int, list[str]]] = field(default_factory=list)
    seen: set[int] = field(default_factory=set)

    def step(self) -> None:
        descriptor, names = self.line[-1]
        if not names:
            self.line.pop()
            os.close(descriptor)
        elif len(self.line) > DEEPEST:
            self.total = self.most + 1
        else:
            with suppress(FileNotFoundError, NotADirectoryError):
                self.enter(os.open(names.pop(), FLAGS, dir_fd=descriptor))

    def enter(self, descriptor: int) -> None:
        names: list[str] = []
        self.line.append((descriptor, names))
        with os.scandir(descriptor) as entries:
            for entry in entries:
                with suppress(FileNotFoundError):
                    self._add(entry.stat(follow_symlinks=False))
                    if entry.is_dir(follow_symlinks=False):
                        names.append(entry.name)
                if self.total > self.most:
                    return

    def _add(self, found: os.stat_result) -> None:
        self.total += ENTRY_BYTES
        if found.st_ino in self.seen:
            return
        if found.st_nlink > 1:  # another name of it may follow
            self.seen.add(found.st_ino)
        self.total += found.st_blocks * 512
