"""Ranking theory: regret and its bounds, the generalization factor, and numerical checks of consistency.

Sources: Cossock and Zhang, "Statistical Analysis of Bayes Optimal Subset Ranking" (Cossock & Zhang 2008), and
Proposition 1 of Yang et al. 2010. Notation: a query has m documents, f (`scores`) ranks them, f_B (`bayes_scores`) are
their expected gains given the features, c_1 ≥ c_2 ≥ … ≥ 0 are the weights of the ranks, and r_B is the ranking by f_B.

>>> from toprank import theory
>>> scores, bayes_scores = [0.2, 0.9, 0.4], [0.7, 0.5, 0.0]
>>> theory.regret(scores, bayes_scores, k=1).mean <= theory.cossock_zhang_theorem2(scores, bayes_scores, k=1).mean
True
"""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
