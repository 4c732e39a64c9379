"""Losses as functions of scores: value, gradient and curvature.

A loss is an immutable value, such as `losses.ListNet(alpha=2.0)`. It is bound to data and then evaluated at scores:

>>> from toprank import Queries, losses
>>> bound = losses.ListNet().on([1, 0, 0], Queries([0, 3]))
>>> round(bound.at([0.0, 0.0, 0.0]).value, 4)
1.0986
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
