"""YetiRank for the shared matrix: its noise belongs to places, so the order of rows matters in any one draw."""

from __future__ import annotations

from typing import Any

from toprank.losses.base import Loss
from toprank.losses.yetirank import YetiRank

DRAWN: dict[str, Any] = {"silent": True, "order_dependent": True, "random": True}

CASES: list[tuple[str, Loss, dict[str, Any]]] = [
    ("yetirank", YetiRank(), DRAWN),
    ("yetirank-one-order", YetiRank(permutations=1, decay=1, gain="exponential"), DRAWN),
    ("yetirank-real", YetiRank(seed=3), {**DRAWN, "labels": "real"}),
    ("yetirank-ndcg@3", YetiRank(metric="ndcg@3"), DRAWN),
    ("yetirank-map", YetiRank(metric="map"), {**DRAWN, "labels": "binary"}),
    ("yetirank-mrr", YetiRank(metric="mrr"), {**DRAWN, "labels": "binary"}),
    ("yetirank-err", YetiRank(metric="err"), DRAWN),
]
