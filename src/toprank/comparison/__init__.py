"""Systems against each other: means, differences, intervals, p-values with their correction, and verdicts in words."""

from toprank.comparison.pairs import compare, compare_values
from toprank.comparison.results import Comparison, Difference

__all__ = ["Comparison", "Difference", "compare", "compare_values"]
