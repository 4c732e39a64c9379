"""`AnnotatedArray`: base class of arrays with attributes that describe their values."""

from __future__ import annotations

from typing import Any

import numpy as np


# NumPy 2.5 does not allow subclasses of the alias NDArray.
class AnnotatedArray(np.ndarray[Any, np.dtype[Any]]):
    """An array with attributes that derived arrays lose: computed results, slices and unpickled copies are plain."""

    def __array_wrap__(self, array: Any, context: Any = None, return_scalar: bool = False) -> Any:
        if array is self:  # changed in place
            return self
        return array[()] if np.ndim(array) == 0 else np.asarray(array)

    def __reduce__(self) -> Any:
        return np.asarray(self).__reduce__()

    def __repr__(self) -> str:
        return repr(np.asarray(self))
