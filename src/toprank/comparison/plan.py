"""What is to be compared, and how: the options of a comparison, checked before any work begins."""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from toprank.compute import FloatArray
from toprank.data.arguments import check_number
from toprank.errors import DataError, UnknownNameError
from toprank.significance import bonferroni, holm
from toprank.significance.paired import check_count, check_seed

__all__ = ["CORRECTIONS", "TESTS", "Plan"]


def _unchanged(p: npt.ArrayLike) -> FloatArray:
    return np.asarray(p, dtype=np.float64)


TESTS = ("randomization", "t", "wilcoxon")
CORRECTIONS: dict[str, Callable[[npt.ArrayLike], FloatArray]] = {
    "holm": holm,
    "bonferroni": bonferroni,
    "none": _unchanged,
}


@dataclass(frozen=True, kw_only=True)
class Plan:
    """The options of a comparison.

    Attributes:
        baseline: The system that all others are compared with; None compares all pairs.
        test: "randomization", "t" or "wilcoxon".
        correction: "holm", "bonferroni" or "none".
        confidence: Of the intervals, above ½; the level of the tests is ``alpha = 1 - confidence``.
        margin: The largest difference that does not matter.
        power: Wanted chance to see a difference, behind `queries_needed`.
        flips: Random sign flips of the randomization test.
        resamples: Resamples of the bootstrap.
        lower_is_better: Names of the metrics that are errors.
        seed: Seed of flips and resamples.
    """

    baseline: str | None
    test: str
    correction: str
    confidence: float
    margin: float
    power: float
    flips: int
    resamples: int
    lower_is_better: Collection[str]
    seed: int

    def __post_init__(self) -> None:
        if self.test not in TESTS:
            raise UnknownNameError("test", self.test, TESTS)
        if self.correction not in CORRECTIONS:
            raise UnknownNameError("correction", self.correction, CORRECTIONS)
        check_number("confidence", self.confidence, above=0.5, below=1)
        check_number("margin", self.margin, above=0)
        check_number("power", self.power, above=0, below=1)
        if self.power <= self.alpha:
            raise DataError(f"power must be above the level of the tests ({self.alpha:g}), not {self.power:g}.")
        check_count(self.flips, "flips")
        check_count(self.resamples, "resamples")
        check_seed(self.seed)

    @property
    def alpha(self) -> float:
        """Level of the tests; rounded, as 1 - 0.95 is 0.050000000000000044."""
        return round(1 - self.confidence, 12)
