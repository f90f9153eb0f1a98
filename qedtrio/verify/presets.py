"""Options under the names of the datasets that they fit."""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal

__all__ = ["PRESETS", "PresetName"]

PresetName = Literal["gsm8k", "math", "aime", "olympiadbench", "multiple_choice"]

PRESETS: Mapping[PresetName, Mapping[str, object]] = MappingProxyType(
    {
        # References end in "#### 42"; responses box, mark or announce the number.
        "gsm8k": {"extract": ("boxed", "hash", "answer_is")},
        "math": {},
        # Integers from 000 to 999, and responses that are asked for a box.
        "aime": {"extract": ("boxed", "answer_is")},
        # Several answers in any order, each in a box of its own or all in one.
        "olympiadbench": {"boxes": "all", "order_matters": False},
        "multiple_choice": {
            "extract": ("boxed", "answer_is", "choice"),
            "answers": "choice",
        },
    }
)
"""Preset → options that differ from the defaults; what a client names wins."""
