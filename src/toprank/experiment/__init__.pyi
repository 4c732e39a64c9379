"""The names of `toprank.experiment`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.experiment.results import Results as Results
from toprank.experiment.spec import Experiment as Experiment
from toprank.experiment.store import Cell as Cell
from toprank.experiment.store import Failure as Failure
