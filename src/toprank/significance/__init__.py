"""Paired tests, confidence intervals and effect sizes for per-query values.

Every function takes the values of system `a` and system `b` on the same queries in the same order, or only the
differences. A difference is always ``a - b``. Queries with NaN for either system (the metric leaves them out of the
mean) are dropped; `n` in each result counts the remaining ones. Differences within rounding error count as zero.

>>> from toprank.significance import randomization_test, win_tie_loss
>>> a = [0.62, 0.45, 0.71, 0.33, 0.58, 0.49]
>>> b = [0.55, 0.44, 0.60, 0.35, 0.50, 0.41]
>>> print(randomization_test(a, b))
Randomization test, two-sided: mean difference 0.0550 on 6 queries, p = 0.0938 (all 64 sign patterns).
>>> print(win_tie_loss(a, b))
5 wins, 0 ties, 1 loss.
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
