"""The names of `toprank.monitoring`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.monitoring.drift import Drift as Drift
from toprank.monitoring.drift import monitor as monitor
from toprank.monitoring.feature_drift import FeatureDrift as FeatureDrift
from toprank.monitoring.forecast import Disagreement as Disagreement
from toprank.monitoring.forecast import ExpectedChange as ExpectedChange
