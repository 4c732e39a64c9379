"""The names of `toprank.fusion`, and where they live: read by type checkers, and by `__init__.py` as it starts."""

from toprank.fusion.combination import METHODS as METHODS
from toprank.fusion.fused import Fused as Fused
from toprank.fusion.fused import fuse as fuse
from toprank.fusion.normalization import NORMALIZATIONS as NORMALIZATIONS
