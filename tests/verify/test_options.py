"""Options as clients name them, their presets, and their checking."""

from dataclasses import fields

import pytest

from qedtrio.errors import RequestError
from qedtrio.verify.given import GivenOptions, build_options
from qedtrio.verify.options import ComparisonOptions, VerifyOptions
from qedtrio.verify.presets import PRESETS


def test_nothing_given_means_the_defaults() -> None:
    """An empty mapping is as good as none."""
    assert build_options({}) == VerifyOptions()


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_is_made_of_options(name: str) -> None:
    """Each preset resolves, to what its own options say when given one by one."""
    preset = dict(PRESETS[name].items())  # type: ignore[index]  # a plain name

    assert build_options({"preset": name}) == build_options(preset)


def test_what_is_given_goes_before_the_preset() -> None:
    """A client that names an option gets it, whatever else the preset says."""
    options = build_options({"preset": "multiple_choice", "answers": "text"})

    assert options.comparison.answers == "text"
    assert "choice" in options.extraction.extract


def test_every_option_can_be_given() -> None:
    """The flat form has a field for each of the domain's, and `preset` beside."""
    given = set(GivenOptions.__struct_fields__) - {"preset"}

    assert given == set(VerifyOptions().to_flat())


def test_flat_and_sorted_forms_are_inverse() -> None:
    """Nothing is lost on the way."""
    options = build_options(
        {"deadline_seconds": 2, "extract": ["hash"], "float_rounding": 3}
    )

    assert VerifyOptions.of(options.to_flat()) == options


def test_a_job_holds_what_differs_from_the_defaults() -> None:
    """A worker builds the same options from it."""
    comparison = ComparisonOptions(strict=False, log_base="e")
    job = comparison.to_job()

    assert job == {"strict": False, "log_base": "e"}
    assert ComparisonOptions(**job) == comparison  # type: ignore[arg-type]  # a job's values
    assert len(fields(ComparisonOptions)) > len(job)


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"strictness": True}, "strictness"),
        ({"preset": "gsm9k"}, "gsm9k"),
        ({"extract": ["guess"]}, "extract"),
        ({"extract": []}, "extract"),
        ({"float_rounding": -1}, "float_rounding"),
        ({"float_rounding": True}, "float_rounding"),
        ({"numeric_precision": 0}, "numeric_precision"),
        ({"log_base": "2"}, "log_base"),
        ({"reasoning": [["<a>", ""]]}, "reasoning"),
        ({"strict": "yes"}, "strict"),
    ],
)
def test_wrong_options_are_named(given: dict[str, object], named: str) -> None:
    """Unknown names and useless values are refused by their name."""
    with pytest.raises(RequestError, match=named):
        build_options(given)
