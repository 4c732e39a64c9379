"""Cost of an ONNX model for a batch of rows, computed before it is run: the size of every array, and the operations.

A file of a kilobyte can request any number of values, by broadcasting, by concatenating an array with itself, or by a
product of rows with rows. Therefore the shape of every array is computed here for a given number of rows, node by node,
until the total exceeds the limit. Models whose shapes depend on values of the rows are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from typing import Any, NamedTuple

from toprank.errors import DataError, refuse_if

Shape = tuple[int, ...]

_LIKE_FIRST = {
    "Abs", "BatchNormalization", "Cast", "Ceil", "Clip", "Dropout", "Elu", "Erf", "Exp", "Floor", "Gelu", "HardSigmoid",
    "HardSwish", "Identity", "IsInf", "IsNaN", "LayerNormalization", "LeakyRelu", "Log", "LogSoftmax", "Mish", "Neg",
    "Not", "Reciprocal", "Relu", "Round", "Selu", "Sigmoid", "Sign", "Softmax", "Softplus", "Softsign", "Sqrt", "Swish",
    "Tanh", "ThresholdedRelu",
}  # fmt: skip
ELEMENTWISE = {"Binarizer", "Imputer", "Normalizer", "Scaler"}
"""Operators of ai.onnx.ml whose output has the shape of the input."""
_BROADCAST = {
    "Add", "And", "Div", "Equal", "Greater", "GreaterOrEqual", "Less", "LessOrEqual", "Max", "Mean", "Min", "Mul", "Or",
    "PRelu", "Pow", "Sub", "Sum", "Where", "Xor",
}  # fmt: skip
_REDUCING = {"ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum"}
TREES = {"TreeEnsembleRegressor", "TreeEnsemble"}
_MAX_AXES = 8
_MAX_LIST = 64  # values in a list of axes or sizes


class TooLargeError(DataError):
    """The cost of a batch exceeds the limit; a smaller batch may not."""


class BatchCost(NamedTuple):
    """The cost of a batch."""

    cells: int
    """Number of values in all computed arrays."""
    work: int
    """Number of values read and written, plus multiplications in matrix products."""
    shapes: Mapping[str, Shape]


class _Node(NamedTuple):
    """A node as the functions below need it: input shapes, and the values of short lists such as axes and sizes."""

    kind: str
    options: Mapping[str, Any]
    inputs: Sequence[Shape | None]
    lists: Sequence[list[int] | None]
    """The values of each input that is a short list of integers in the file."""
    outputs: int

    def shape(self, number: int = 0) -> Shape:
        if number >= len(self.inputs) or (shape := self.inputs[number]) is None:
            raise DataError(f"its operator {self.kind} has too few inputs")
        return shape

    def whole_list(self, number: int, option: str) -> list[int] | None:
        """Return integers that are an input, or an attribute in earlier versions; None if there is neither."""
        if number < len(self.inputs) and self.inputs[number] is not None:
            if (numbers := self.lists[number]) is None:
                raise DataError(f"the output sizes of its operator {self.kind} are not constants")
            return numbers
        attribute = self.options.get(option)
        return None if attribute is None else [int(number) for number in attribute]

    def axis(self, otherwise: int, axes: int) -> int:
        """Return an axis, which may be counted from the end."""
        return _within(self.kind, int(self.options.get("axis", otherwise)), axes)


def cost_of(onnx: Any, graph: Any, input_name: str, shape: Shape, most_cells: int, most_work: int) -> BatchCost:
    """Return the cost of the graph for an input of this shape; raise if it exceeds the limits."""
    shapes: dict[str, Shape] = {tensor.name: tuple(tensor.dims) for tensor in graph.initializer}
    lists = {tensor.name: numbers for tensor in graph.initializer if (numbers := _short_list(onnx, tensor)) is not None}
    shapes[input_name] = shape
    cells, work = 0, 0
    for node in graph.node:
        options = {option.name: onnx.helper.get_attribute_value(option) for option in node.attribute}
        if node.op_type == "Constant":
            size, short = _constant(onnx, options)
            if short is not None:
                lists[node.output[0]] = short
            made, product = [size], 0
        else:
            inputs = [_known(shapes, name) for name in node.input]
            seen = _Node(node.op_type, options, inputs, [lists.get(name) for name in node.input], len(node.output))
            made = KNOWN[node.op_type](seen)
            product = _work(seen, made) + sum(prod(shape) for shape in inputs if shape is not None)
        refuse_if(
            len(node.output) > len(made),
            f"its operator {node.op_type} has {len(node.output)} outputs, of which {len(made)} are supported",
        )
        shapes.update(zip(node.output, made, strict=False))
        more = sum(max(1, prod(shape)) for shape in made)
        cells, work = cells + more, work + more + product
        if cells > most_cells:
            raise TooLargeError(f"its arrays have more than {most_cells:,} values for {_counted(shape[0])}")
        if work > most_work:
            raise TooLargeError(
                f"{_counted(shape[0])} would take more than {most_work:,} operations, too many for a file of this size"
            )
        refuse_if(
            any(len(shape) > _MAX_AXES for shape in made),
            f"its operator {node.op_type} has an output with more than {_MAX_AXES} axes",
        )
    return BatchCost(cells, work, shapes)


def _counted(rows: int) -> str:
    return "one row" if rows == 1 else f"{rows:,} rows"


def _known(shapes: Mapping[str, Shape], name: str) -> Shape | None:
    refuse_if(name and name not in shapes, f"its array {name[:40]!r} is undefined")
    return shapes[name] if name else None


def _short_list(onnx: Any, tensor: Any) -> list[int] | None:
    """Return the values of a tensor that may contain axes or sizes, else None."""
    if tensor.data_type not in (6, 7) or len(tensor.dims) > 1 or prod(tensor.dims) > _MAX_LIST:
        return None
    return [int(number) for number in onnx.numpy_helper.to_array(tensor).reshape(-1)]


def _constant(onnx: Any, options: Mapping[str, Any]) -> tuple[Shape, list[int] | None]:
    if (tensor := options.get("value")) is not None:
        return tuple(tensor.dims), _short_list(onnx, tensor)
    for name in ("value_int", "value_ints", "value_float", "value_floats"):
        if (value := options.get(name)) is not None:
            many = name.endswith("s")
            short = [int(number) for number in (value if many else [value])] if "int" in name else None
            return (len(value),) if many else (), None if short is None or len(short) > _MAX_LIST else short
    raise DataError("its constants are not numbers")


def _work(node: _Node, made: Sequence[Shape]) -> int:
    """Return the operations in addition to one for each value read and written."""
    if node.kind == "MatMul":
        return prod(made[0]) * node.shape(0)[-1]
    if node.kind == "Gemm":
        return prod(made[0]) * node.shape(0)[0 if node.options.get("transA") else -1]
    if node.kind in TREES:  # no path is longer than the number of nodes; the depth of trees is limited separately
        return made[0][0] * len(node.options.get("nodes_featureids", ()))
    return 0


# ---- shapes, by operator ----


def _within(kind: str, axis: int, axes: int) -> int:
    place = axis + axes if axis < 0 else axis
    refuse_if(not 0 <= place < axes, f"its operator {kind} names an axis that does not exist")
    return place


def _like_first(node: _Node) -> list[Shape]:
    return [node.shape()] * (2 if node.kind == "Dropout" else 1)


def _broadcast(node: _Node) -> list[Shape]:
    return [_joint(node.kind, [node.shape(number) for number in range(len(node.inputs))])]


def _joint(kind: str, shapes: Sequence[Shape]) -> Shape:
    axes = max(map(len, shapes), default=0)
    joint = []
    for sizes in zip(*((1,) * (axes - len(shape)) + shape for shape in shapes), strict=True):
        several = {size for size in sizes if size != 1}
        refuse_if(len(several) > 1, f"it is inconsistent (its operator {kind} joins arrays with incompatible shapes)")
        joint.append(several.pop() if several else 1)
    return tuple(joint)


def _matmul(node: _Node) -> list[Shape]:
    a, b = node.shape(0), node.shape(1)
    refuse_if(
        not a or not b or a[-1] != b[-2 if len(b) > 1 else 0],
        "it is inconsistent (its operator MatMul multiplies arrays with incompatible shapes)",
    )
    above = _joint("MatMul", [a[:-2], b[:-2]])
    return [above + a[-2:-1] + (b[-1:] if len(b) > 1 else ())]


def _gemm(node: _Node) -> list[Shape]:
    a, b = node.shape(0), node.shape(1)
    refuse_if(
        len(a) != 2 or len(b) != 2, "it is inconsistent (its operator Gemm multiplies arrays that are not matrices)"
    )
    a, b = (a[::-1] if node.options.get("transA") else a), (b[::-1] if node.options.get("transB") else b)
    refuse_if(a[1] != b[0], "it is inconsistent (its operator Gemm multiplies arrays with incompatible shapes)")
    return [(a[0], b[1])]


def _reduced(node: _Node) -> list[Shape]:
    shape, axes = node.shape(), node.whole_list(1, "axes")
    if not axes and node.options.get("noop_with_empty_axes"):
        return [shape]
    gone = {_within(node.kind, axis, len(shape)) for axis in axes} if axes else set(range(len(shape)))
    return [_without(shape, gone, bool(node.options.get("keepdims", 1)))]


def _arg_max(node: _Node) -> list[Shape]:
    shape = node.shape()
    return [_without(shape, {node.axis(0, len(shape))}, bool(node.options.get("keepdims", 1)))]


def _without(shape: Shape, axes: set[int], kept: bool) -> Shape:
    return tuple(1 if place in axes else size for place, size in enumerate(shape) if kept or place not in axes)


def _concat(node: _Node) -> list[Shape]:
    shapes = [node.shape(number) for number in range(len(node.inputs))]
    axis = node.axis(0, len(node.shape()))
    refuse_if(
        len({(*shape[:axis], *shape[axis + 1 :]) for shape in shapes}) > 1 or len({len(shape) for shape in shapes}) > 1,
        "it is inconsistent (its operator Concat joins arrays with incompatible shapes)",
    )
    return [(*shapes[0][:axis], sum(shape[axis] for shape in shapes), *shapes[0][axis + 1 :])]


def _flatten(node: _Node) -> list[Shape]:
    shape = node.shape()
    axis = len(shape) if node.options.get("axis", 1) == len(shape) else node.axis(1, len(shape))
    return [(prod(shape[:axis]), prod(shape[axis:]))]


def _gather(node: _Node) -> list[Shape]:
    shape, indices = node.shape(0), node.shape(1)
    axis = node.axis(0, len(shape))
    return [shape[:axis] + indices + shape[axis + 1 :]]


def _columns(node: _Node) -> list[Shape]:
    """ArrayFeatureExtractor: select columns by index."""
    return [(*(node.shape(0)[:-1] or (1,)), prod(node.shape(1)))]


def _reshape(node: _Node) -> list[Shape]:
    shape, wanted = node.shape(), node.whole_list(1, "shape")
    if wanted is None:
        raise DataError("its operator Reshape has too few inputs")
    copied = not node.options.get("allowzero")
    sizes = [shape[i] if size == 0 and copied and i < len(shape) else size for i, size in enumerate(wanted)]
    rest = prod(size for size in sizes if size != -1)
    if -1 in sizes and rest > 0:
        sizes[sizes.index(-1)] = prod(shape) // rest
    refuse_if(
        min(sizes, default=0) < 0 or prod(sizes) != prod(shape),
        "it is inconsistent (its operator Reshape has an incompatible shape)",
    )
    return [tuple(sizes)]


def _slice(node: _Node) -> list[Shape]:
    shape, starts, ends = node.shape(), node.whole_list(1, "starts"), node.whole_list(2, "ends")
    if starts is None or ends is None:
        raise DataError("its operator Slice has too few inputs")
    axes, steps = node.whole_list(3, "axes"), node.whole_list(4, "steps")
    axes, steps = axes or list(range(len(starts))), steps or [1] * len(starts)
    refuse_if(
        not len(starts) == len(ends) == len(axes) == len(steps) or 0 in steps,
        "it is inconsistent (its operator Slice has lists of several lengths, or a step of 0)",
    )
    left = list(shape)
    for start, end, axis, step in zip(starts, ends, axes, steps, strict=True):
        place = _within("Slice", axis, len(shape))
        left[place] = len(range(shape[place])[start:end:step])
    return [tuple(left)]


def _split(node: _Node) -> list[Shape]:
    shape, sizes = node.shape(), node.whole_list(1, "split")
    axis = node.axis(0, len(shape))
    if sizes is None:
        each = -(-shape[axis] // max(1, node.outputs))
        sizes = [max(0, min(each, shape[axis] - each * number)) for number in range(node.outputs)]
    refuse_if(
        min(sizes, default=0) < 0 or sum(sizes) != shape[axis],
        "it is inconsistent (the parts of its operator Split do not sum to the whole)",
    )
    return [(*shape[:axis], size, *shape[axis + 1 :]) for size in sizes]


def _squeeze(node: _Node) -> list[Shape]:
    shape, axes = node.shape(), node.whole_list(1, "axes")
    gone = {_within("Squeeze", axis, len(shape)) for axis in axes} if axes is not None else None
    gone = {place for place, size in enumerate(shape) if size == 1} if gone is None else gone
    refuse_if(
        any(shape[place] != 1 for place in gone),
        "it is inconsistent (its operator Squeeze drops an axis that is not of size 1)",
    )
    return [_without(shape, gone, False)]


def _unsqueeze(node: _Node) -> list[Shape]:
    shape, axes = node.shape(), node.whole_list(1, "axes")
    if axes is None or len(axes) > _MAX_AXES:
        raise DataError(f"its operator Unsqueeze names no axes, or more than {_MAX_AXES}")
    total = len(shape) + len(axes)
    new = {_within("Unsqueeze", axis, total) for axis in axes}
    refuse_if(len(new) < len(axes), "it is inconsistent (its operator Unsqueeze names an axis twice)")
    rest = iter(shape)
    return [tuple(1 if place in new else next(rest) for place in range(total))]


def _one_each(node: _Node) -> list[Shape]:
    """One number for each row."""
    shape = node.shape()
    return [(shape[0] if len(shape) > 1 else 1, 1)]


LEARNED: dict[str, Callable[[_Node], list[Shape]]] = {
    "ArrayFeatureExtractor": _columns,
    "LinearRegressor": _one_each,
    **dict.fromkeys(ELEMENTWISE, _like_first),
}
"""Operators of ai.onnx.ml, except trees."""

KNOWN: dict[str, Callable[[_Node], list[Shape]]] = {
    **dict.fromkeys(_LIKE_FIRST, _like_first),
    **dict.fromkeys(_BROADCAST, _broadcast),
    **dict.fromkeys(_REDUCING, _reduced),
    **dict.fromkeys(TREES, _one_each),
    **LEARNED,
    "ArgMax": _arg_max,
    "Concat": _concat,
    "Flatten": _flatten,
    "Gather": _gather,
    "Gemm": _gemm,
    "MatMul": _matmul,
    "Reshape": _reshape,
    "Slice": _slice,
    "Split": _split,
    "Squeeze": _squeeze,
    "Unsqueeze": _unsqueeze,
}
"""Supported operators (except Constant), and the functions for their output shapes."""
