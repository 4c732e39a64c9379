"""Public names of `toprank.monitoring` for type checkers; `__init__.py` imports them lazily."""

from toprank.monitoring.drift import Drift as Drift
from toprank.monitoring.drift import monitor as monitor
from toprank.monitoring.feature_drift import FeatureDrift as FeatureDrift
from toprank.monitoring.forecast import Disagreement as Disagreement
from toprank.monitoring.forecast import ExpectedChange as ExpectedChange
