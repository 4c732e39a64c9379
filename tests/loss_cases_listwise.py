"""Listwise losses for the shared matrix."""

from __future__ import annotations

from toprank.losses.boltzrank import BoltzRank
from toprank.losses.cosine import Cosine
from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
from toprank.losses.softmax import XENDCG, CalibratedSoftmax, ListNet, Multicategory
from toprank.losses.unique import UniqueSoftmax

_SILENT = {"silent": True}
_BY_ROW = {"order_dependent": True}
_DRAWN = {"order_dependent": True, "random": True}

CASES = [
    ("listnet", ListNet(), {}),
    ("listnet-exponential", ListNet(alpha=0.3, psi="exponential"), {}),
    ("listnet-top-2", ListNet(top_k=2, alpha=0.7), {"labels": "real"}),
    ("listnet-top-3", ListNet(top_k=3, alpha=0.1, psi="exponential"), {}),
    ("listnet-permutation", ListNet(top_k=None, alpha=0.5), {}),
    ("multicategory", Multicategory(), {}),
    ("multicategory-linear", Multicategory(gain="linear"), {"labels": "real"}),
    ("multicategory-gains", Multicategory(gain=None), {"labels": "real"}),
    ("multicategory-binary", Multicategory(gain=(0.0, 1.0)), {"labels": "binary"}),
    ("calibrated-softmax", CalibratedSoftmax(), {}),
    ("calibrated-softmax-gains", CalibratedSoftmax(anchor=0.3, gain=None), {"labels": "real"}),
    ("unique-softmax", UniqueSoftmax(), _SILENT),
    ("unique-softmax-real", UniqueSoftmax(gain="linear"), {**_SILENT, "labels": "real"}),
    ("unique-softmax-binary", UniqueSoftmax(gain=(0.0, 2.0)), {**_SILENT, "labels": "binary"}),
    ("unique-softmax-all-terms", UniqueSoftmax(gain=(1.0, 2.0, 4.0, 8.0, 16.0)), _SILENT),
    ("xendcg", XENDCG(), _DRAWN),
    ("xendcg-expected", XENDCG(gamma=0.5), {}),
    ("listmle-efron", ListMLE(), _SILENT),
    ("listmle-breslow", ListMLE(ties="breslow"), {**_SILENT, "labels": "binary"}),
    ("listmle-random", ListMLE(ties="random", seed=1), {**_SILENT, **_DRAWN}),
    ("listmle-file", ListMLE(ties="file"), {**_SILENT, **_BY_ROW}),
    ("listmle-distinct", ListMLE(), {**_SILENT, "labels": "real"}),
    ("listmle-without-lowest", ListMLE(lowest=False), {**_SILENT, "labels": "binary"}),
    ("plistmle", PListMLE(), _SILENT),
    ("plistmle-published", PListMLE("published", ties="breslow"), _SILENT),
    ("plistmle-file", PListMLE("reciprocal", ties="file"), {**_SILENT, **_BY_ROW}),
    ("cs-listmle", CostSensitiveListMLE(), _SILENT),
    ("cs-listmle-breslow", CostSensitiveListMLE(1.5, ties="breslow", lowest=False), _SILENT),
    ("cosine", Cosine(), {}),
    ("cosine-linear", Cosine(psi="linear", epsilon=0.5), {"labels": "real"}),
    ("cosine-centered", Cosine(centered=True), _SILENT),
    ("cosine-targets", Cosine(centered="targets"), _SILENT),
    ("cosine-targets-linear", Cosine(psi="linear", centered="targets", epsilon=0.5), {"labels": "real", **_SILENT}),
    ("boltzrank", BoltzRank(), _DRAWN),
    ("boltzrank-all", BoltzRank(alpha=0.5, psi="exponential", coupling=2.0, samples=5040), {}),
]
