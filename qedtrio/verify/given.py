"""Options as a client writes them: flat, checked, on top of a preset."""

from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from qedtrio.errors import RequestError
from qedtrio.verify.options import ExtractionMode, VerifyOptions
from qedtrio.verify.presets import PRESETS, PresetName

__all__ = ["GivenOptions", "build_options"]

_Delimiter = Annotated[str, Meta(min_length=1, max_length=100)]


class GivenOptions(Struct, forbid_unknown_fields=True, kw_only=True, frozen=True):
    """How to read and compare; absent means as the preset says, or the default."""

    preset: PresetName | UnsetType = UNSET
    deadline_seconds: Annotated[float, Meta(gt=0, le=2_592_000)] | UnsetType | None = (
        UNSET
    )
    extract: (
        Annotated[tuple[ExtractionMode, ...], Meta(min_length=1, max_length=16)]
        | UnsetType
    ) = UNSET
    reasoning: (
        Annotated[tuple[tuple[_Delimiter, _Delimiter], ...], Meta(max_length=16)]
        | UnsetType
    ) = UNSET
    boxes: Literal["last", "all"] | UnsetType = UNSET
    answer_chars: Annotated[int, Meta(ge=1, le=1_000_000)] | UnsetType | None = UNSET
    answers: Literal["math", "text", "choice"] | UnsetType = UNSET
    strict: bool | UnsetType = UNSET
    order_matters: bool | UnsetType | None = UNSET
    float_rounding: Annotated[int, Meta(ge=0, le=15)] | UnsetType | None = UNSET
    numeric_precision: Annotated[int, Meta(ge=1, le=50)] | UnsetType | None = UNSET
    allow_set_relation_comp: bool | UnsetType = UNSET
    percent_as_number: bool | UnsetType = UNSET
    log_base: Literal["10", "e"] | UnsetType = UNSET

    def resolve(self) -> VerifyOptions:
        """Lay what was given over the preset, and that over the defaults."""
        return _resolve(self)


def build_options(given: Mapping[str, object]) -> VerifyOptions:
    """Check options that came as a mapping.

    Raises:
        RequestError: One is unknown or of no use; it names which.
    """
    try:
        return msgspec.convert(dict(given), GivenOptions).resolve()
    except msgspec.ValidationError as error:
        raise RequestError("$", str(error)) from error


@lru_cache(maxsize=256)  # a batch says the same of each of its items
def _resolve(given: GivenOptions) -> VerifyOptions:
    said = {
        name: value
        for name, value in msgspec.structs.asdict(given).items()
        if value is not UNSET
    }
    preset = said.pop("preset", None)
    return VerifyOptions.of({**PRESETS.get(preset, {}), **said})
