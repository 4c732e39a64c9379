"""The names of `toprank.theory`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.theory.bounds import PerQuery as PerQuery
from toprank.theory.bounds import cossock_zhang_theorem2 as cossock_zhang_theorem2
from toprank.theory.bounds import cossock_zhang_theorem3 as cossock_zhang_theorem3
from toprank.theory.bounds import cossock_zhang_theorem6_factor as cossock_zhang_theorem6_factor
from toprank.theory.bounds import regret as regret
from toprank.theory.bounds import t_regret as t_regret
from toprank.theory.population import Minimum as Minimum
from toprank.theory.population import Population as Population
from toprank.theory.population import optimal_order as optimal_order
from toprank.theory.population import order_agrees as order_agrees
from toprank.theory.population import population_minimizer as population_minimizer
from toprank.theory.top_bounds import cossock_zhang_equation11 as cossock_zhang_equation11
from toprank.theory.top_bounds import cossock_zhang_theorem4 as cossock_zhang_theorem4
from toprank.theory.top_bounds import cossock_zhang_theorem4_constant as cossock_zhang_theorem4_constant
