"""Public names of `toprank.fusion`, for type checkers and for the lazy imports of `__init__.py`."""

from toprank.fusion.combination import METHODS as METHODS
from toprank.fusion.fused import Fused as Fused
from toprank.fusion.fused import fuse as fuse
from toprank.fusion.normalization import NORMALIZATIONS as NORMALIZATIONS
