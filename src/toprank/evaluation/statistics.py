"""`ComparisonOptions`: the options of a comparison, checked before any work begins."""

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
    """The fields of `ComparisonOptions` as keywords."""

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
    """How systems are compared.

    Attributes:
        baseline: name of the system that every other is compared with. None: all pairs.
        test: "randomization" (Fisher's sign flips), "t" or "wilcoxon".
        correction: "holm", "bonferroni" or "none", over the family of all pairs × metrics.
        confidence: level of the intervals; differences are significant at level ``1 - confidence``.
        n_permutations: random sign flips of the randomization test, beyond 20 non-zero differences.
        n_resamples: resamples of the bootstrap intervals.
        margin: the equivalence margin, the same for all metrics.
        power: power of the test for the number of queries needed.
        seed: seed of sign flips and resamples.
    """

    baseline: Annotated[str | None, Option("Compare the others with this one. Default: all pairs.", metavar="NAME")] = (
        None
    )
    test: Annotated[Test, Option("The paired test behind the p-values.")] = "randomization"
    correction: Annotated[Correction, Option("Correction over all pairs and metrics.")] = "holm"
    confidence: Annotated[float, Option("Confidence level of the intervals.", 0.5, 0.9999)] = 0.95
    n_permutations: Annotated[int, Option("Random sign flips of the randomization test.", 1)] = 100_000
    n_resamples: int = 10_000
    margin: Annotated[float, Option("Differences up to this much are called equivalent.", 0)] = 0.01
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
            raise DataError(f"power must be above the level of the tests ({self.alpha:g}), not {self.power:g}.")
        check_whole("n_permutations", self.n_permutations, 1)
        check_whole("n_resamples", self.n_resamples, 1)
        check_whole("seed", self.seed, 0)

    @property
    def alpha(self) -> float:
        """Level of the tests; rounded, as 1 - 0.95 is 0.050000000000000044."""
        return round(1 - self.confidence, 12)

    @classmethod
    def split(cls, options: Mapping[str, Any]) -> tuple[ComparisonOptions, dict[str, Any]]:
        """Return the statistics among some keywords, and the other keywords."""
        own = {name: value for name, value in options.items() if name in ComparisonKeywords.__annotations__}
        return cls(**own), {name: value for name, value in options.items() if name not in own}
