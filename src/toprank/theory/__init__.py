"""Theory as tools: regret and its bounds, the generalisation factor, and consistency checked by computation.

Sources: Cossock and Zhang, "Statistical Analysis of Bayes Optimal Subset Ranking" (Cossock & Zhang 2008), and
Proposition 1 of Yang et al. 2010. Letters: a query has m documents, f (`scores`) ranks them, f_B (`bayes_scores`) are
their expected gains given the features, c_1 ≥ c_2 ≥ … ≥ 0 weigh the ranks, and r_B is the ranking by f_B.

>>> from toprank import theory
>>> scores, bayes_scores = [0.2, 0.9, 0.4], [0.7, 0.5, 0.0]
>>> theory.regret(scores, bayes_scores, k=1).mean <= theory.theorem2_bound(scores, bayes_scores, k=1).mean
True
"""

from toprank.theory.bounds import (
    PerQuery,
    bound_11,
    regret,
    t_regret,
    theorem2_bound,
    theorem3_bound,
    theorem4_bound,
    theorem4_constant,
    theorem6_factor,
)
from toprank.theory.population import Minimum, Population, optimal_order, order_agrees, population_minimiser

__all__ = [
    "regret",
    "t_regret",
    "PerQuery",
    "theorem2_bound",
    "theorem3_bound",
    "theorem4_bound",
    "theorem4_constant",
    "bound_11",
    "theorem6_factor",
    "Population",
    "population_minimiser",
    "Minimum",
    "order_agrees",
    "optimal_order",
]
