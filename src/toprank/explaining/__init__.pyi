"""The names of `toprank.explaining`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.explaining.columns import feature_named as feature_named
from toprank.explaining.counterfactuals import Changes as Changes
from toprank.explaining.counterfactuals import FeatureChange as FeatureChange
from toprank.explaining.counterfactuals import changes as changes
from toprank.explaining.effects import Effect as Effect
from toprank.explaining.effects import effect as effect
from toprank.explaining.permutations import Importance as Importance
from toprank.explaining.permutations import importance as importance
from toprank.explaining.queries import QueryExplanation as QueryExplanation
from toprank.explaining.queries import query as query
