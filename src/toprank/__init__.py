"""Learning to rank, focused on the top of the list.

Names are imported when they are first used, so that `import toprank` costs next to nothing. Which there are, and where
they live, is said once: by the imports of the stub `__init__.pyi`, one a line.
"""

from __future__ import annotations

from toprank.lazy_imports import lazy_exports

__version__ = "0.1.0"
_HOMES, __getattr__ = lazy_exports(__name__)
__all__ = [*_HOMES, "__version__"]


def __dir__() -> list[str]:
    return sorted(__all__)
