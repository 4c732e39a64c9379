"""Experiments: datasets × systems × folds × seeds, with model selection on validation data and evaluation on test data.

datasets    datasets of an experiment: named folds
spec        specification: systems as entries, and the experiment
provenance  cache keys of cells, and provenance of results
store       finished cells on disk, written atomically
training    computation of cells: select, fit, predict, on all cores
running     the loop over all cells
results     per-query results and statistics
tables      results as a tidy table, text, Markdown and LaTeX
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
