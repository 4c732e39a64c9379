"""Public names of `toprank.explanations`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.explanations.columns import feature_named as feature_named
from toprank.explanations.counterfactuals import Changes as Changes
from toprank.explanations.counterfactuals import FeatureChange as FeatureChange
from toprank.explanations.counterfactuals import changes as changes
from toprank.explanations.effects import Effect as Effect
from toprank.explanations.effects import effect as effect
from toprank.explanations.permutations import Importance as Importance
from toprank.explanations.permutations import importance as importance
from toprank.explanations.queries import QueryExplanation as QueryExplanation
from toprank.explanations.queries import query as query
