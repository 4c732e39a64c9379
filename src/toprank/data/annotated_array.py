"""`AnnotatedArray`: the base of arrays that know what their numbers belong to."""

from __future__ import annotations

from typing import Any

import numpy as np


# Not of the alias NDArray: NumPy 2.5 lets nobody inherit from it.
class AnnotatedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array with attributes that nothing inherits: computed results, parts and unpickled copies are plain."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:  # changed in place
            return self
        return array[()] if np.ndim(array) == 0 else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))
