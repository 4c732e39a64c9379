"""The names of `toprank.theory`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.theory.bounds import PerQuery as PerQuery
from toprank.theory.bounds import regret as regret
from toprank.theory.bounds import t_regret as t_regret
from toprank.theory.bounds import theorem2_bound as theorem2_bound
from toprank.theory.bounds import theorem3_bound as theorem3_bound
from toprank.theory.bounds import theorem6_factor as theorem6_factor
from toprank.theory.population import Minimum as Minimum
from toprank.theory.population import Population as Population
from toprank.theory.population import optimal_order as optimal_order
from toprank.theory.population import order_agrees as order_agrees
from toprank.theory.population import population_minimizer as population_minimizer
from toprank.theory.top_bounds import bound_11 as bound_11
from toprank.theory.top_bounds import theorem4_bound as theorem4_bound
from toprank.theory.top_bounds import theorem4_constant as theorem4_constant
