"""What is asked of verification."""

from dataclasses import dataclass

__all__ = ["VerifyItem", "VerifyOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyOptions:
    """How one item is compared.

    Attributes:
        deadline_seconds: Work on the item; None for the configured limit,
            which it may not exceed.
    """

    deadline_seconds: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class VerifyItem:
    """One prediction to check against its reference.

    Attributes:
        gold: The reference answer, bare or boxed LaTeX.
        prediction: The model's whole response.
        options: How to compare.
    """

    gold: str
    prediction: str
    options: VerifyOptions = VerifyOptions()
