"""Does a ranker still meet what it was trained for? Drift of features and scores, and the DCG to expect."""

from toprank.monitoring.drift import Disagreement, Drift, ExpectedChange, monitor
from toprank.monitoring.shifts import Shift

__all__ = ["Disagreement", "Drift", "ExpectedChange", "Shift", "monitor"]
