"""Learning to rank, focused on the top of the list.

Names are imported at first use, so that `import toprank` is fast. The stub `__init__.pyi` lists all public names with
their modules, one import per line.
"""

from __future__ import annotations

from toprank.lazy_imports import lazy_exports

__version__ = "0.1.0"
_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES, "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)
