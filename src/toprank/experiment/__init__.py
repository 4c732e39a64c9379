"""Experiments: datasets × systems × folds × seeds, chosen on validation data, judged query by query on test data.

datasets    what is asked for: folds under a name
spec        what is asked for: systems as entries, and the experiment
provenance  what a cell depends on, as one key, and where results come from
store       finished cells on disk, each written at once and as a whole
training    cells: choose, fit, predict, on all cores
running     the loop around it all
results     per-query numbers, and everything that is made of them
tables      the results as a tidy table, as text, Markdown and LaTeX
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
