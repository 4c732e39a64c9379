"""Paired statistics of per-query numbers: vectors in, numbers out.

Every function takes the values of system `a` and system `b` on the same queries, in the same order, or the
differences alone. A difference is always ``a - b``. A query where either value is NaN (left out of the mean by the
metric) is dropped from both; `n` in each result is what remains. Differences that are mere rounding count as zero.

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
