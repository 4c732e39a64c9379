"""Learning to rank, focused on the top of the list.

Names are imported when they are first used, so that `import toprank` costs next to nothing. Which there are, and where
they live, is said once: by the imports of the stub `__init__.pyi`, one a line.
"""

from __future__ import annotations

from os.path import dirname
from typing import Any

from toprank.importing import first_use

__version__ = "0.1.0"


def _homes() -> dict[str, str]:
    """The module of each name; a room's is `toprank`."""
    with open(f"{dirname(__file__)}/__init__.pyi", encoding="utf-8") as stub:
        words = [line.split() for line in stub if line.startswith("from ")]
    return {name: home for _, home, _, name, *_ in words}


_HOMES = _homes()
__all__ = [*_HOMES, "__version__"]


def __getattr__(name: str) -> Any:
    home = _HOMES.get(name)
    if home is None:
        raise AttributeError(f"module 'toprank' has no attribute '{name}'")
    value = first_use(f"toprank.{name}") if home == "toprank" else getattr(first_use(home), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
