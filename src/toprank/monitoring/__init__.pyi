"""Public names of `toprank.monitoring`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.monitoring.drift import Drift as Drift
from toprank.monitoring.drift import monitor as monitor
from toprank.monitoring.feature_drift import FeatureDrift as FeatureDrift
from toprank.monitoring.forecast import Disagreement as Disagreement
from toprank.monitoring.forecast import ExpectedChange as ExpectedChange
