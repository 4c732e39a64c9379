"""Explanations of rankings: queries, counterfactuals, permutation importance and partial dependence.

`Ranker.explain` compares two documents. `explain_query` explains the score of every document of a query,
`counterfactuals` finds feature changes that reorder two documents, `permutation_importance` measures how much a metric
depends on each feature, and `partial_dependence` shows the score as a function of one feature.
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
