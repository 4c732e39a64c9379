"""The sections of a page, by subject: what is computed, how it is drawn, and its heading."""

from toprank.report.panels.curves import CUTOFFS, LEARNING
from toprank.report.panels.explained import EXPLAINED
from toprank.report.panels.features import FEATURES
from toprank.report.panels.queries import HARDEST
from toprank.report.panels.scores import CALIBRATION, SCORES
from toprank.report.panels.slices import SLICES
from toprank.report.panels.verdicts import DIFFERENCES, RESULTS, WINS

__all__ = ["PANELS"]

PANELS = (RESULTS, DIFFERENCES, SLICES, WINS, CUTOFFS, SCORES, CALIBRATION, LEARNING, FEATURES, EXPLAINED, HARDEST)
"""In the order of the page; the explorer follows, in the room that they leave."""
