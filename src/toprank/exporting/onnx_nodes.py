"""The nodes and constants of an ONNX graph, named as they are made."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class GraphNodes:
    """Makes nodes and constants; each call gives the name of what a node computes."""

    INT64 = 7
    FLOAT = 1
    DOUBLE = 11

    def __init__(self, onnx: Any) -> None:
        self._helper, self._numpy = onnx.helper, onnx.numpy_helper
        self.made: list[Any] = []
        self.constants: list[Any] = []
        self._known: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def __call__(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """A node of an operator."""
        name = f"{operator.lower()}_{len(self.made)}"
        self.made.append(self._helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def tensor(self, values: npt.NDArray[Any]) -> Any:
        """Numbers as an attribute."""
        return self._numpy.from_array(np.ascontiguousarray(values))

    def constant(self, values: npt.ArrayLike) -> str:
        """Numbers as an input of nodes; equal ones are held once."""
        array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._known:
            self._known[key] = f"constant_{len(self.constants)}"
            self.constants.append(self._numpy.from_array(array, self._known[key]))
        return self._known[key]
