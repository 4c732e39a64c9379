"""Losses in score space: value, gradient and curvature, per query.

A loss is a frozen value: `losses.ListNet(alpha=2.0)`. Bound to data it judges scores:

>>> from toprank import Queries, losses
>>> bound = losses.ListNet().on([1, 0, 0], Queries([0, 3]))
>>> round(bound.at([0.0, 0.0, 0.0]).value, 4)
1.0986
"""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any

from toprank.errors import DataError, UnknownNameError
from toprank.importing import first_use
from toprank.losses.base import Block, BoundLoss, Curvature, Diagonal, Eval, Judgments, Loss, Traits, Want

_OF_MODULES = {
    "pointwise": "Squared QuerySquared ModifiedSquared PowerRegression CrossEntropy ImportanceWeightedSquared",
    "ordinal": "Multinomial Ordinal",
    "pairwise": "Hinge SquaredHinge Logistic Exponential",
    "hinges": "OWPC SVMmap",
    "lambdas": "LambdaRank LambdaLoss",
    "softmax": "ListNet Multicategory XENDCG",
    "listmle": "ListMLE PListMLE CostSensitiveListMLE",
    "cosine": "Cosine",
    "smooth": "ApproxNDCG ApproxMRR ApproxMetric SoftRank NeuralNDCG",
    "safe": "SafeDCG",
    "boltzrank": "BoltzRank",
    "yetirank": "YetiRank",
}
_LOSSES = {name: module for module, names in _OF_MODULES.items() for name in names.split()}
_HOMES = {**_LOSSES, "check_loss": "checking"}

__all__ = [
    "Block", "BoundLoss", "Curvature", "Diagonal", "Eval", "Judgments", "Loss", "Traits", "Want",
    "check_loss", "from_spec", "make", "names", "to_spec",
    "Squared", "QuerySquared", "ModifiedSquared", "PowerRegression", "CrossEntropy", "ImportanceWeightedSquared",
    "Multinomial", "Ordinal", "Hinge", "SquaredHinge", "Logistic", "Exponential", "OWPC", "SVMmap", "LambdaRank",
    "LambdaLoss", "ListNet", "Multicategory", "XENDCG", "ListMLE", "PListMLE", "CostSensitiveListMLE", "Cosine",
    "ApproxNDCG", "ApproxMRR", "ApproxMetric", "SoftRank", "NeuralNDCG", "SafeDCG", "BoltzRank", "YetiRank",
]  # fmt: skip

if TYPE_CHECKING:
    from toprank.losses.boltzrank import BoltzRank
    from toprank.losses.checking import check_loss
    from toprank.losses.cosine import Cosine
    from toprank.losses.hinges import OWPC, SVMmap
    from toprank.losses.lambdas import LambdaLoss, LambdaRank
    from toprank.losses.listmle import CostSensitiveListMLE, ListMLE, PListMLE
    from toprank.losses.ordinal import Multinomial, Ordinal
    from toprank.losses.pairwise import Exponential, Hinge, Logistic, SquaredHinge
    from toprank.losses.pointwise import (
        CrossEntropy,
        ImportanceWeightedSquared,
        ModifiedSquared,
        PowerRegression,
        QuerySquared,
        Squared,
    )
    from toprank.losses.safe import SafeDCG
    from toprank.losses.smooth import ApproxMetric, ApproxMRR, ApproxNDCG, NeuralNDCG, SoftRank
    from toprank.losses.softmax import XENDCG, ListNet, Multicategory
    from toprank.losses.yetirank import YetiRank


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'toprank.losses' has no attribute '{name}'")
    value = getattr(first_use(f"toprank.losses.{_HOMES[name]}"), name)
    globals()[name] = value
    return value


def names() -> tuple[str, ...]:
    """The names of all losses."""
    return tuple(_LOSSES)


def make(loss: Loss | str, **options: Any) -> Loss:
    """The loss of that name (capitals and punctuation do not matter), or the loss itself.

    >>> make("list-net", alpha=2.0)
    ListNet(alpha=2.0, psi='linear', top_k=1)
    """
    if isinstance(loss, Loss):
        if not isinstance(getattr(loss, "traits", None), Traits):
            raise DataError(
                f"{type(loss).__name__} does not say what is true of it, by which solvers are chosen: give the class "
                "traits = toprank.losses.Traits(convex=…, smooth=…)."
            )
        return loss
    if not isinstance(loss, str):
        raise DataError(f"A loss is a value of toprank.losses or its name, not {type(loss).__name__}.")
    by_key = {_key(name): name for name in _LOSSES}
    if _key(loss) not in by_key:
        raise UnknownNameError("loss", loss, _LOSSES)
    kind = __getattr__(by_key[_key(loss)])
    known = {field.name for field in fields(kind)}
    for option in options:
        if option not in known:
            raise UnknownNameError(f"option of {kind.__name__}", option, sorted(known))
    try:
        made: Loss = kind(**options)
    except TypeError:
        given = ", ".join(f"{name}={value!r}" for name, value in options.items())
        raise DataError(f"{kind.__name__} cannot be made from {given}: a value is of the wrong kind.") from None
    return made


def _key(name: str) -> str:
    return "".join(letter for letter in name.lower() if letter.isalnum())


def to_spec(loss: Loss) -> dict[str, Any]:
    """The loss as plain values for a file; refused where it holds a function of yours."""
    spec: dict[str, Any] = {"name": type(loss).__name__}
    if spec["name"] not in _LOSSES:
        raise DataError(f"{spec['name']} is not a loss of toprank; a model file can name only those.")
    for field in fields(loss):
        value = getattr(loss, field.name)
        if callable(value) or getattr(value, "function", None) is not None:
            raise DataError(f"{field.name} of {spec['name']} is a function of yours, which a model file cannot hold.")
        if isinstance(value, tuple):
            value = [float(number) for number in value]
        spec[field.name] = value if isinstance(value, str | int | float | bool | list | None) else str(value)
    return spec


def from_spec(spec: dict[str, Any]) -> Loss:
    """The loss that `to_spec` wrote down."""
    options = {name: value for name, value in spec.items() if name != "name"}
    for name, value in options.items():
        if isinstance(value, list):
            if not all(isinstance(number, int | float) for number in value):
                raise DataError(f"{name} of {spec['name']} is a list of numbers, and cannot be {value!r}.")
            options[name] = tuple(value)
    return make(spec["name"], **options)
