"""The sections of a page, one module each: what is computed, how it is drawn, and its heading."""

from toprank.report.panels.calibration import CALIBRATION
from toprank.report.panels.cutoffs import CUTOFFS
from toprank.report.panels.differences import DIFFERENCES
from toprank.report.panels.features import FEATURES
from toprank.report.panels.hardest import HARDEST
from toprank.report.panels.learning import LEARNING
from toprank.report.panels.results import RESULTS
from toprank.report.panels.scores import SCORES
from toprank.report.panels.wins import WINS

__all__ = ["PANELS"]

PANELS = (RESULTS, DIFFERENCES, WINS, CUTOFFS, SCORES, CALIBRATION, LEARNING, FEATURES, HARDEST)
"""In the order of the page; the explorer follows, in the room that they leave."""
