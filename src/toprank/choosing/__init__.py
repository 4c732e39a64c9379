"""Choose a ranker on queries that it did not learn from, and on nothing else.

Three strategies: `grid` tries the values of a system's grid, `tuning` learns from its trials where to look next
(Optuna), `automatic` tries a portfolio of systems within a budget and blends the best few.
"""

from __future__ import annotations

from typing import Any

from toprank.choosing.space import default_space

__all__ = ["AUTO", "default_space", "is_auto"]

AUTO = "auto"
"""The name of the automatic choice among those of systems."""


def is_auto(name: Any) -> bool:
    """Whether the automatic choice is asked for in place of a system; capitals do not matter."""
    return isinstance(name, str) and name.strip().lower() == AUTO
