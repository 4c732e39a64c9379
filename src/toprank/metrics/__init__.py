"""Evaluation measures for rankings, with the gains, discounts and conventions that define them.

>>> from toprank import metrics
>>> metrics.parse("ndcg@10")
NDCG(k=10, gain=None, discount=None, no_relevant=None)
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
