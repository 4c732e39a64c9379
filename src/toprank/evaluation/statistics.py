"""Options of a comparison, validated before any computation."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal, TypedDict, get_args

from toprank.data.arguments import check_number, check_whole
from toprank.data.options import Option
from toprank.errors import DataError, UnknownNameError

Test = Literal["randomization", "t", "wilcoxon"]
Correction = Literal["holm", "bonferroni", "none"]


class ComparisonKeywords(TypedDict, total=False):
    """Keyword form of `ComparisonOptions`."""

    baseline: str | None
    test: Test
    correction: Correction
    confidence: float
    n_permutations: int
    n_resamples: int
    margin: float
    power: float
    seed: int


@dataclass(frozen=True, kw_only=True)
class ComparisonOptions:
    """Statistical options of a comparison.

    Attributes:
        baseline: name of the system to compare all others with. None compares all pairs.
        test: "randomization" (Fisher's test by sign flips), "t" or "wilcoxon".
        correction: correction over all pairs × metrics: "holm", "bonferroni" or "none".
        confidence: confidence level of the intervals; the level of the tests is ``1 - confidence``.
        n_permutations: number of random sign flips of the randomization test, with more than 20 non-zero differences.
        n_resamples: number of resamples of the bootstrap intervals.
        margin: the equivalence margin, the same for all metrics.
        power: power of the test for the number of queries needed.
        seed: seed of sign flips and resamples.
    """

    baseline: Annotated[
        str | None, Option("System to compare all others with. Default: all pairs.", metavar="NAME")
    ] = None
    test: Annotated[Test, Option("Paired test for the p-values.")] = "randomization"
    correction: Annotated[Correction, Option("Correction for multiple tests, over all pairs and metrics.")] = "holm"
    confidence: Annotated[float, Option("Confidence level of the intervals.", 0.5, 0.9999)] = 0.95
    n_permutations: Annotated[int, Option("Number of random sign flips of the randomization test.", 1)] = 100_000
    n_resamples: int = 10_000
    margin: Annotated[float, Option("Equivalence margin.", 0)] = 0.01
    power: float = 0.8
    seed: int = 0

    def __post_init__(self) -> None:
        if self.test not in get_args(Test):
            raise UnknownNameError("test", self.test, get_args(Test))
        if self.correction not in get_args(Correction):
            raise UnknownNameError("correction", self.correction, get_args(Correction))
        check_number("confidence", self.confidence, above=0.5, below=1)
        check_number("margin", self.margin, above=0)
        check_number("power", self.power, above=0, below=1)
        if self.power <= self.alpha:
            raise DataError(
                f"power is {self.power:g}, but must be larger than the level of the tests ({self.alpha:g})."
            )
        check_whole("n_permutations", self.n_permutations, 1)
        check_whole("n_resamples", self.n_resamples, 1)
        check_whole("seed", self.seed, 0)

    @property
    def alpha(self) -> float:
        """Level of the tests, rounded because 1 - 0.95 is 0.050000000000000044."""
        return round(1 - self.confidence, 12)

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[ComparisonOptions, dict[str, Any]]:
        """Split keywords into comparison options and the remaining keywords."""
        own = {name: value for name, value in options.items() if name in ComparisonKeywords.__annotations__}
        return cls(**own), {name: value for name, value in options.items() if name not in own}
