"""`tune`: a search for hyper-parameters that learns from its trials (Optuna), on validation data and nothing else."""

from __future__ import annotations

from toprank.tuning.search import Standing
from toprank.tuning.space import default_space
from toprank.tuning.tuner import Tuned, tune

__all__ = ["Standing", "Tuned", "default_space", "tune"]
