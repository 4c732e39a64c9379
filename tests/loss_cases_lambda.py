"""LambdaRank and LambdaLoss for the shared matrix."""

from __future__ import annotations

from typing import Any

from toprank.losses.base import Loss
from toprank.losses.lambdas import LambdaLoss, LambdaRank

PAIRS: dict[str, Any] = {"silent": True}

CASES: list[tuple[str, Loss, dict[str, Any]]] = [
    ("lambdarank-ndcg", LambdaRank(), PAIRS),
    ("lambdarank-ndcg@3", LambdaRank("ndcg@3", sigma=2.0), PAIRS),
    ("lambdarank-ndcg-truncated", LambdaRank(truncation=2), PAIRS),
    ("lambdarank-ndcg-norm", LambdaRank(norm=True), {**PAIRS, "scale": 0.01}),
    ("lambdarank-ndcg-real", LambdaRank(gain="linear"), {**PAIRS, "labels": "real"}),
    ("lambdarank-dcg", LambdaRank("dcg(discount=letor)", gain=(0.0, 1.0, 2.0, 3.0, 5.0)), PAIRS),
    ("lambdarank-map", LambdaRank("map"), {**PAIRS, "labels": "binary"}),
    ("lambdarank-map@3-truncated", LambdaRank("map@3(norm=min)", truncation=4), PAIRS),
    ("lambdarank-err", LambdaRank("err", norm=True), {**PAIRS, "scale": 0.01}),
    ("lambdarank-err@2", LambdaRank("err@2"), PAIRS),
    ("lambdarank-mrr", LambdaRank("mrr"), {**PAIRS, "labels": "binary"}),
    ("lambdarank-mrr@2", LambdaRank("mrr@2(rel=2)", truncation=3), PAIRS),
    ("lambdaloss-arp1", LambdaLoss("arp1"), {}),
    ("lambdaloss-arp2", LambdaLoss("arp2", sigma=2.0), PAIRS),
    ("lambdaloss-arp2-real", LambdaLoss("arp2"), {**PAIRS, "labels": "real"}),
    ("lambdaloss-ndcg1", LambdaLoss("ndcg1"), {}),
    ("lambdaloss-ndcg2", LambdaLoss("ndcg2"), PAIRS),
    ("lambdaloss-ndcg2++", LambdaLoss("ndcg2++", sigma=0.5, mu=5.0), PAIRS),
]
