"""Paired statistics of per-query numbers: vectors in, numbers out.

Every function takes the values of system `a` and system `b` on the same queries, in the same order, or the
differences alone. A difference is always ``a - b``. A query where either value is NaN (left out of the mean by the
metric) is dropped from both; `n` in each result is what remains. Differences that are mere rounding count as zero.

>>> a = [0.62, 0.45, 0.71, 0.33, 0.58, 0.49]
>>> b = [0.55, 0.44, 0.60, 0.35, 0.50, 0.41]
>>> print(randomization_test(a, b))
Randomization test, two-sided: mean difference 0.0550 on 6 queries, p = 0.0938 (all 64 sign patterns).
>>> print(win_tie_loss(a, b))
5 wins, 0 ties, 1 loss.
"""

from toprank.significance.effects import (
    bonferroni,
    bootstrap_interval,
    effect_size,
    effective_sample,
    holm,
    queries_needed,
    t_interval,
    weighted_interval,
    win_tie_loss,
)
from toprank.significance.equivalence import equivalence_test
from toprank.significance.jackknife import jackknife, means_without, redrawn_interval
from toprank.significance.results import EffectSize, EquivalenceResult, Interval, TestResult, WinTieLoss
from toprank.significance.sequential import always_half_width, ratio_p
from toprank.significance.tests import randomization_test, t_test, wilcoxon
from toprank.significance.two_level import two_level_interval

__all__ = [
    "randomization_test", "t_test", "wilcoxon", "equivalence_test",
    "bootstrap_interval", "t_interval", "weighted_interval", "effective_sample",
    "jackknife", "means_without", "redrawn_interval", "always_half_width", "ratio_p", "two_level_interval",
    "effect_size", "win_tie_loss", "queries_needed",
    "holm", "bonferroni",
    "TestResult", "EquivalenceResult", "Interval", "EffectSize", "WinTieLoss",
]  # fmt: skip
