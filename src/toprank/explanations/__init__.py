"""Explanations beyond a pair: a whole query, what would change an order, and what matters over many queries.

`Ranker.explain` says why one document stands above another; the rooms here ask it again and again. `query` says what
moved each document, `changes` what would lift one above another, `importance` which features the metric depends on, and
`effect` how the score runs along one feature.
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
