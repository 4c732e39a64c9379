"""Experiments: datasets × systems × folds × seeds, chosen on validation data, judged query by query on test data.

spec       what is asked for: datasets as folds, systems as entries
content    what a cell depends on, as one key
store      finished cells on disk, each written at once and as a whole
training   one cell: choose, fit, predict
processes  cells on all cores
running    the loop around it all
results    per-query numbers, and everything that is made of them
"""

from toprank.experiment.results import Results
from toprank.experiment.spec import Experiment
from toprank.experiment.store import Cell, Failure

__all__ = ["Cell", "Experiment", "Failure", "Results"]
