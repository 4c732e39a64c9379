"""Choose a ranker by its metric on held-out queries.

Three strategies: `grid` evaluates every combination of a system's grid, `tuning` searches with Optuna, and `automatic`
evaluates a portfolio of systems within a time budget and blends the best few.
"""

from __future__ import annotations

from toprank.model_selection.space import default_space

__all__ = ["AUTO", "default_space"]

AUTO = "auto"
"""The name that selects `AutoRanker` instead of a system; case does not matter."""
