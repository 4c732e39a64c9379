"""Display of results in terminals, notebooks, Markdown, LaTeX and data frames; plots and progress output."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
