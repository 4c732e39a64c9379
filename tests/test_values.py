"""Every record of the package: none can be changed but those named here, and results show themselves as tables."""

from __future__ import annotations

import importlib
import pkgutil

import toprank
from toprank.display.tables import DisplayMixin
from toprank.rankers.base import Ranker

CHANGE = {
    "toprank.experiment.running._Place": "where a run stands",
    "toprank.data.query_context.QueryContextFeatures": "an estimator of scikit-learn: fit gives it attributes",
    "toprank.serving.event_log._Open": "a file that grows",
}
"""Records that change, with the reason; and rankers, whose `fit` swaps what they have learned."""


def records():
    for module in pkgutil.walk_packages(toprank.__path__, "toprank."):
        if module.name.rpartition(".")[2] not in ("__main__", "_kernels"):
            for one in list(vars(importlib.import_module(module.name)).values()):
                if isinstance(one, type) and one.__module__ == module.name and "__dataclass_params__" in vars(one):
                    yield f"{module.name}.{one.__name__}", one


def test_records_are_frozen_and_results_show_themselves():
    found = dict(records())
    assert len(found) > 200
    changing = {name for name, one in found.items() if not one.__dataclass_params__.frozen}
    assert {name for name in changing if not issubclass(found[name], Ranker)} == set(CHANGE)
    shown = [one for one in found.values() if issubclass(one, DisplayMixin)]
    assert len(shown) > 15
    for one in shown:
        assert not one.__dataclass_params__.repr, f"{one.__name__} hides the table that it shows itself as"
