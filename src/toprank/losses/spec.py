"""Losses as plain values for a file: the name and the options."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from toprank.errors import DataError
from toprank.losses.base import Loss, make, names

__all__ = ["from_spec", "to_spec"]


def to_spec(loss: Loss) -> dict[str, Any]:
    """The loss as plain values for a file; refused where it holds a function of yours."""
    spec: dict[str, Any] = {"name": type(loss).__name__}
    if spec["name"] not in names():
        raise DataError(f"{spec['name']} is not a loss of toprank; a model file can name only those.")
    for field in fields(loss):
        value = getattr(loss, field.name)
        if callable(value) or getattr(value, "function", None) is not None:
            raise DataError(f"{field.name} of {spec['name']} is a function of yours, which a model file cannot hold.")
        if isinstance(value, Loss):
            spec[field.name] = to_spec(value)
            continue
        if isinstance(value, tuple):
            value = [float(number) for number in value]
        spec[field.name] = value if isinstance(value, str | int | float | bool | list | None) else str(value)
    return spec


def from_spec(spec: dict[str, Any]) -> Loss:
    """The loss that `to_spec` wrote down."""
    options = {name: value for name, value in spec.items() if name != "name"}
    for name, value in options.items():
        if isinstance(value, dict):
            options[name] = from_spec(value)
        elif isinstance(value, list):
            if not all(isinstance(number, int | float) for number in value):
                raise DataError(f"{name} of {spec['name']} is a list of numbers, and cannot be {value!r}.")
            options[name] = tuple(value)
    if "name" not in spec:
        raise DataError("A loss has no name.")
    return make(spec["name"], **options)
