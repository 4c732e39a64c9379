"""The options that rankers with a solver share, checked before any work is done."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from toprank.data.checks import check_flag, check_number, check_whole
from toprank.errors import DataError, Remedy
from toprank.metrics.conventions import Convention
from toprank.metrics.parsing import parse

if TYPE_CHECKING:
    from toprank.rankers.base import Ranker

__all__ = ["TO_CHOOSE", "check_solver_options", "tolerances_of"]

TO_CHOOSE = Remedy("valid= data to choose among them.", "--valid data to choose among them.")


def check_solver_options(ranker: Ranker) -> None:
    """Refuse what means nothing, also where there are no validation data and nothing would be judged by it."""
    parse(ranker.metric)
    Convention.of(ranker.convention)
    check_flag("scale", ranker.scale)
    if ranker.max_iterations is not None:
        check_whole("max_iterations", ranker.max_iterations, 1)


def tolerances_of(tolerance: Any, valid: Any) -> list[float | None]:
    """The tolerances to reach one after another, the loosest first; several need data to choose among them.

    >>> tolerances_of([1e-6, 1e-2], valid="some data")
    [0.01, 1e-06]
    """
    if tolerance is None:
        return [None]
    several = [tolerance] if np.ndim(tolerance) == 0 else list(tolerance)
    for one in several:
        check_number("tolerance", one, least=0)
    if not several:
        raise DataError("tolerance must be a number, several, or None, not an empty list.")
    if len(several) > 1 and valid is None:
        raise DataError("Several tolerances were given, but no", remedy=TO_CHOOSE)
    return sorted(several, reverse=True)
