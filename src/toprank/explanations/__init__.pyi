"""Public names of `toprank.explanations`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.explanations.columns import find_feature as find_feature
from toprank.explanations.dependence import PartialDependence as PartialDependence
from toprank.explanations.dependence import partial_dependence as partial_dependence
from toprank.explanations.feature_changes import Counterfactuals as Counterfactuals
from toprank.explanations.feature_changes import FeatureChange as FeatureChange
from toprank.explanations.feature_changes import counterfactuals as counterfactuals
from toprank.explanations.permutations import Importance as Importance
from toprank.explanations.permutations import permutation_importance as permutation_importance
from toprank.explanations.queries import QueryExplanation as QueryExplanation
from toprank.explanations.queries import explain_query as explain_query
