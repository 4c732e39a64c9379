"""Explanations beyond a pair: a whole query, what would change an order, and what matters over many queries.

`Ranker.explain` says why one document stands above another; the rooms here ask it again and again. `query` says what
moved each document, `changes` what would lift one above another, `importance` which features the metric depends on, and
`effect` how the score runs along one feature.
"""

from toprank.explaining.columns import feature_named
from toprank.explaining.counterfactuals import Changes, FeatureChange, changes
from toprank.explaining.effects import Effect, effect
from toprank.explaining.permutations import Importance, importance
from toprank.explaining.queries import QueryExplanation, query

__all__ = [
    "Changes", "Effect", "FeatureChange", "Importance", "QueryExplanation", "changes", "effect", "feature_named",
    "importance", "query",
]  # fmt: skip
