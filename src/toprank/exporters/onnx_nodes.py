"""Builder for the nodes and constants of an ONNX graph, which are named as they are added."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt


class GraphNodes:
    """Builder of nodes and constants; each call returns the name of the node's output."""

    INT64 = 7
    FLOAT = 1
    DOUBLE = 11

    def __init__(self, onnx: Any) -> None:
        self._helper, self._numpy = onnx.helper, onnx.numpy_helper
        self.nodes: list[Any] = []
        self.constants: list[Any] = []
        self._names: dict[tuple[str, tuple[int, ...], bytes], str] = {}

    def __call__(self, operator: str, *inputs: str, domain: str = "", **attributes: Any) -> str:
        """Add a node for an operator."""
        name = f"{operator.lower()}_{len(self.nodes)}"
        self.nodes.append(self._helper.make_node(operator, list(inputs), [name], domain=domain, **attributes))
        return name

    def tensor(self, values: npt.NDArray[Any]) -> Any:
        """Return an array as an attribute."""
        return self._numpy.from_array(np.ascontiguousarray(values))

    def constant(self, values: npt.ArrayLike) -> str:
        """Add an array as an input of nodes; equal arrays are stored once."""
        array = np.ascontiguousarray(values) if np.ndim(values) else np.asarray(values)
        key = (array.dtype.str, array.shape, array.tobytes())
        if key not in self._names:
            self._names[key] = f"constant_{len(self.constants)}"
            self.constants.append(self._numpy.from_array(array, self._names[key]))
        return self._names[key]
