"""The names of `toprank.comparison`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.comparison.pairs import compare as compare
from toprank.comparison.pairs import compare_values as compare_values
from toprank.comparison.results import Comparison as Comparison
from toprank.comparison.results import Difference as Difference
