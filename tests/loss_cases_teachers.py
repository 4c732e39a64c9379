"""Losses that learn from a teacher, and losses made of others, for the shared matrix."""

from __future__ import annotations

from typing import Any

from toprank.losses.base import Loss
from toprank.losses.composed import Gumbel, Mix
from toprank.losses.hinges import OWPC
from toprank.losses.lambdas import LambdaRank
from toprank.losses.listmle import ListMLE
from toprank.losses.pairwise import Hinge, Logistic
from toprank.losses.pointwise import Squared
from toprank.losses.smooth import ApproxNDCG
from toprank.losses.softmax import ListNet, Multicategory
from toprank.losses.teachers import MarginMSE, SoftLogistic, SoftmaxKL
from toprank.losses.yetirank import YetiRank

DRAWN: dict[str, Any] = {"order_dependent": True, "random": True}

CASES: list[tuple[str, Loss, dict[str, Any]]] = [
    ("margin-mse", MarginMSE(), {}),
    ("soft-logistic", SoftLogistic(), {}),
    ("soft-logistic-warm", SoftLogistic(temperature=3.0), {}),
    ("softmax-kl", SoftmaxKL(), {}),
    ("softmax-kl-warm", SoftmaxKL(temperature=2.5), {}),
    ("mix", Mix(), {}),
    ("mix-pairs", Mix(SoftLogistic(), Logistic(), weight=0.8), {}),
    ("mix-kinks", Mix(MarginMSE(), Hinge(), weight=0.1), {}),
    ("mix-smooth", Mix(SoftmaxKL(), ApproxNDCG(), weight=0.1), {}),
    ("mix-labels", Mix(Squared(gain=None), Multicategory(gain=None), weight=0.3), {"labels": "real"}),
    ("mix-inexact", Mix(LambdaRank(), ListNet(), weight=0.9), {}),
    ("mix-drawn", Mix(YetiRank(), MarginMSE(), weight=0.9), DRAWN),
    ("gumbel", Gumbel(), DRAWN),
    ("gumbel-one", Gumbel(ListMLE(), samples=1, temperature=0.5, seed=4), {**DRAWN, "silent": True}),
    ("gumbel-gains", Gumbel(Squared(gain=None), samples=2), {**DRAWN, "labels": "real"}),
    ("gumbel-approx-ndcg", Gumbel(ApproxNDCG(), samples=3, temperature=2.0), DRAWN),
    ("gumbel-owpc", Gumbel(OWPC(), samples=2), {**DRAWN, "silent": True}),
    ("gumbel-yetirank", Gumbel(YetiRank(), samples=2), {**DRAWN, "silent": True}),
    ("gumbel-mix", Gumbel(Mix(), samples=2), DRAWN),
]
