"""Gains, discounts, conventions and measures: rankings become numbers.

>>> from toprank import metrics
>>> metrics.parse("ndcg@10")
NDCG(k=10, gain=None, discount=None, blank=None)
"""

from toprank.metrics.binary import AP, RR, Precision, Recall, RPrecision, Success
from toprank.metrics.conventions import CONVENTIONS, Convention, Discount, Gain
from toprank.metrics.evaluation import Evaluation, Judge, evaluate, evaluate_under_all
from toprank.metrics.graded import DCG, ERR, NDCG, RBP, ApproxERR, AvgNDCG
from toprank.metrics.measure import Custom, Measure
from toprank.metrics.pairs import OWA, KendallTau, PairwiseAccuracy, SpearmanRho, TCriterion
from toprank.metrics.parsing import MEASURES, parse, parse_all
from toprank.metrics.ranking import Ranked, ranking

__all__ = [
    "evaluate", "evaluate_under_all", "Evaluation", "Judge", "Convention", "CONVENTIONS",
    "parse", "parse_all", "MEASURES", "Measure", "Custom", "Gain", "Discount",
    "DCG", "NDCG", "AvgNDCG", "ERR", "ApproxERR", "RBP",
    "AP", "RR", "Precision", "Recall", "Success", "RPrecision",
    "TCriterion", "PairwiseAccuracy", "KendallTau", "SpearmanRho", "OWA", "Ranked", "ranking",
]  # fmt: skip
