"""Choose a ranker on queries that it did not learn from, and on nothing else.

Three strategies: `grid` tries the values of a system's grid, `tuning` learns from its trials where to look next
(Optuna), `automatic` tries a portfolio of systems within a budget and blends the best few.
"""

from __future__ import annotations

from toprank.model_selection.space import default_space

__all__ = ["AUTO", "default_space"]

AUTO = "auto"
"""The name of the automatic choice among those of systems; capitals do not matter."""
