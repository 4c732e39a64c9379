"""The public names of `toprank.solvers` and their modules, for type checkers and for lazy imports in `__init__.py`."""

from toprank.solvers.averaging import AveragedStochastic as AveragedStochastic
from toprank.solvers.base import Callback as Callback
from toprank.solvers.base import HasHessian as HasHessian
from toprank.solvers.base import HasHessianProduct as HasHessianProduct
from toprank.solvers.base import Objective as Objective
from toprank.solvers.base import Penalty as Penalty
from toprank.solvers.base import Solution as Solution
from toprank.solvers.base import Solver as Solver
from toprank.solvers.base import StopOptimization as StopOptimization
from toprank.solvers.bundle import Bundle as Bundle
from toprank.solvers.first_order import LBFGS as LBFGS
from toprank.solvers.first_order import GradientDescent as GradientDescent
from toprank.solvers.newton import Newton as Newton
from toprank.solvers.proximal import Proximal as Proximal
