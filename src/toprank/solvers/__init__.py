"""Solvers update weights; they have no access to queries, labels or losses.

| solver | for | needs |
|---|---|---|
| `Newton` | smooth losses, few iterations | Hessian, or Hessian-vector products above 500 weights |
| `LBFGS` | smooth losses, many weights | gradient |
| `Bundle` | convex losses with kinks; a certified gap | subgradient, l2 > 0 |
| `Proximal` | L1 and elastic net: exact zeros | gradient, preferably a Hessian |
| `GradientDescent` | the papers' protocol; gradients that are not derivatives | gradient |
| `AveragedStochastic` | objectives resampled at each step (YetiRank) | `resampled`, and what its solver needs |

>>> import numpy as np
>>> from toprank.solvers import LBFGS, Penalty
>>> class Parabola:  # L(w) = (w - 3)² / 2
...     n_weights = 1
...     def value_and_grad(self, weights): return 0.5 * float((weights[0] - 3) ** 2), weights - 3
>>> solution = LBFGS().solve(Parabola(), np.zeros(1), Penalty.uniform(1, l2=0.5))
>>> solution.weights.round(6).tolist(), solution.converged
([2.0], True)
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
