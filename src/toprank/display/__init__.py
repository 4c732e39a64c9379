"""How results look: in a terminal, in a notebook, as Markdown, LaTeX or a frame; and how work in progress is told."""

from toprank.lazy_imports import lazy_exports

_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES]
