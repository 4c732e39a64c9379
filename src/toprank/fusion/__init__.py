"""Runs of several systems become one."""

from toprank.fusion.combining import METHODS
from toprank.fusion.fused import Fused, fuse
from toprank.fusion.normalizing import NORMALIZATIONS

__all__ = ["METHODS", "NORMALIZATIONS", "Fused", "fuse"]
