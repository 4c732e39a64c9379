"""Pairwise losses, OWPC and SVM-map for the shared matrix."""

from __future__ import annotations

from toprank.losses.hinges import OWPC, SVMmap
from toprank.losses.pairwise import Exponential, Hinge, Logistic, SquaredHinge

PAIR_WEIGHTS = (
    ("one", "exponential", {}),
    ("difference", "exponential", {"labels": "real"}),
    ("margin", "linear", {}),
)

CASES = [
    (f"{loss.__name__.lower()}-{pair_weight}", loss(pair_weight=pair_weight, gain=gain), {"silent": True, **options})
    for loss in (Hinge, SquaredHinge, Logistic, Exponential)
    for pair_weight, gain, options in PAIR_WEIGHTS
]
CASES += [(f"owpc-{weights}", OWPC(weights=weights), {"silent": True}) for weights in ("1/j", "constant", "max")]
CASES += [
    ("owpc-top", OWPC(weights="top", p=40), {"silent": True, "labels": "real"}),
    ("owpc-exp", OWPC(weights="exp", p=50), {"silent": True, "labels": "binary"}),
    ("svm-map", SVMmap(), {"silent": True, "labels": "binary", "document_weights": False}),
    ("svm-map-graded", SVMmap(threshold=2), {"silent": True, "document_weights": False, "scale": 0.3}),
]
