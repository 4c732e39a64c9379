"""Where a search looks when it is not told: by kind of ranker, by loss, and by the system's grid.

Rankers and losses are named, not imported: the space of a network can be looked at without PyTorch.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from toprank.systems import System, get

__all__ = ["default_space"]

Plain = dict[str, Any]

_NETWORKS: Plain = {
    "learning_rate": (1e-4, 1e-2, "log"),
    "dropout": (0.0, 0.5),
    "weight_decay": [0.0, 1e-4, 1e-3, 1e-2, 1e-1],
}
_RANKERS: Mapping[str, Plain] = {
    "TreeRanker": {
        "num_leaves": (4, 128, "log"),
        "learning_rate": (0.02, 0.3, "log"),
        "min_data_in_leaf": (5, 200, "log"),
        "l2": [0.0, 0.1, 1.0, 10.0],  # values, because a logarithmic range cannot hold the default of 0
        "feature_fraction": (0.3, 1.0),
        "row_fraction": (0.5, 1.0),  # every objective can sample rows; not every one of LightGBM's samples queries
    },
    "NeuralRanker": {"hidden": [(64,), (128, 64), (256, 128), (256, 128, 64)], **_NETWORKS},
    "NeuralRanker, attention": {"width": [32, 64, 128], "n_layers": (1, 4), **_NETWORKS},
}
_LOSSES: Mapping[str, Plain] = {
    "LambdaRank": {"loss.sigma": (0.3, 4.0, "log")},
    "LambdaLoss": {"loss.sigma": (0.3, 4.0, "log"), "loss.mu": (1.0, 30.0, "log")},
    "ListNet": {"loss.alpha": (0.1, 10.0, "log")},
    "BoltzRank": {"loss.alpha": (0.1, 10.0, "log")},
    "CostSensitiveListMLE": {"loss.pcf": (1.0, 6.0)},
    "PowerRegression": {"loss.power": (2.0, 8.0)},
    "ImportanceWeightedSquared": {"loss.delta": (0.1, 2.0, "log"), "loss.u": (0.1, 10.0, "log")},
    "ApproxNDCG": {"loss.temperature": (0.01, 1.0, "log")},
    "ApproxMRR": {"loss.temperature": (0.01, 1.0, "log")},
    "ApproxMetric": {"loss.temperature": (0.01, 1.0, "log")},
    "NeuralNDCG": {"loss.temperature": (0.1, 10.0, "log")},
    "SoftRank": {"loss.noise": (0.1, 10.0, "log")},
}


def default_space(system: System | str) -> Plain:
    """The space that `tune` searches for a system, in plain values, to look at or to change.

    Trees and networks have spaces of their own; other rankers are searched between the ends of the system's grid. To
    these come the hyper-parameters of the loss. A system with none of them has an empty space.

    >>> default_space("ListNet")
    {'l2': (0.0001, 0.1, 'log'), 'loss.alpha': (0.1, 10.0, 'log')}
    >>> {**default_space("LambdaMART"), "num_leaves": (4, 16)}["num_leaves"]
    (4, 16)
    """
    chosen = get(system) if isinstance(system, str) else system
    of_loss = _LOSSES.get(chosen.loss or "", {})
    known = {name.removeprefix("loss.") for name in of_loss}
    form = ", attention" if chosen.options.get("network") == "attention" else ""
    own = _RANKERS.get(chosen.ranker + form)
    if own is None:
        own = {name: _between(values) for name, values in chosen.grid.items() if name not in known}
    return {**own, **of_loss}


def _between(values: tuple[Any, ...]) -> Any:
    """A grid as a range, on the scale on which its values are even; a grid of words, or of one value, as it is."""
    numbers = all(isinstance(value, int | float) and not isinstance(value, bool) for value in values)
    if not numbers or len(set(values)) < 2:
        return list(values)
    low, high = min(values), max(values)
    return (low, high, "log") if low > 0 else (low, high)
