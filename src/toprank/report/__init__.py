"""HTML reports of comparisons, experiments, explanations, drift and click logs."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
