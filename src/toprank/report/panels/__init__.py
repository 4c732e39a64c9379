"""The sections of a comparison report, by subject."""

from toprank.report.panels.curves import CUTOFFS, LEARNING
from toprank.report.panels.explained import EXPLAINED
from toprank.report.panels.features import FEATURES
from toprank.report.panels.queries import HARDEST
from toprank.report.panels.scores import CALIBRATION, SCORES
from toprank.report.panels.slices import SLICES
from toprank.report.panels.verdicts import DIFFERENCES, RESULTS, WINS

__all__ = ["PANELS"]

PANELS = (RESULTS, DIFFERENCES, SLICES, WINS, CUTOFFS, SCORES, CALIBRATION, LEARNING, FEATURES, EXPLAINED, HARDEST)
"""Panels in page order. The explorer follows them and uses the remaining bytes."""
