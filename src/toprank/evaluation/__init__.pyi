"""Public names of `toprank.evaluation`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.evaluation.comparing import compare as compare
from toprank.evaluation.comparing import compare_values as compare_values
from toprank.evaluation.comparison import Comparison as Comparison
from toprank.evaluation.comparison import Difference as Difference
from toprank.evaluation.result import Evaluation as Evaluation
from toprank.evaluation.scores import BoundMetric as BoundMetric
from toprank.evaluation.scores import evaluate as evaluate
from toprank.evaluation.scores import evaluate_all_conventions as evaluate_all_conventions
