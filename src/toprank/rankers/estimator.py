"""The scikit-learn estimator interface, without importing scikit-learn, which takes a second and which most users never
need.

Parameters, their text form and clones take a few lines, which are here. Tags, metadata routing and the diagram in
notebooks are needed only with scikit-learn, and are then built from its public parts.

In addition, a fitted estimator is one record: the fitted attributes and the parameters of that fit, replaced as a
whole. `fit` trains a copy of the ranker (`unfitted_copy`), which becomes the record once training has succeeded
(`commit`). If a fit fails, the ranker stays as it was; parameters that are changed later take effect at the next fit.
Read the parameters of a fitted ranker from `as_fitted`. Only `threads`, `verbose` and `device` belong to the run and
not to the model, and are read from the ranker itself.
"""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Self
from weakref import WeakKeyDictionary

import numpy as np

from toprank.errors import DataError, warn_user

# `qid` and weights are passed to fit, predict and score without a request. `score` accepts weights because scikit-learn
# would otherwise refuse a search with weights.
_PASSED_ON = {
    "fit": ("qid", "sample_weight"),
    "predict": ("qid",),
    "predict_proba": (),
    "score": ("qid", "sample_weight"),
}
_NOT_ROUTED = ("self", "X", "y")

_WARNED_BY_CLONES: WeakKeyDictionary[Any, set[type[Warning]]] = WeakKeyDictionary()
"""The warnings issued by the clones of an estimator, by estimator; see `__sklearn_clone__`."""
_CLONES: WeakKeyDictionary[Any, set[type[Warning]]] = WeakKeyDictionary()
"""The same sets, by clone."""


class Estimator:
    """Base class whose parameters are the constructor arguments, stored unchanged under their names."""

    _changed_requests: Mapping[str, Mapping[str, bool | str | None]] = MappingProxyType({})
    """Metadata requests by method; an instance whose requests were set has its own."""

    @classmethod
    def _parameters(cls) -> dict[str, inspect.Parameter]:
        arguments = inspect.signature(cls.__init__).parameters
        kinds = (inspect.Parameter.VAR_KEYWORD, inspect.Parameter.VAR_POSITIONAL)
        return {
            name: arguments[name] for name in sorted(arguments) if name != "self" and arguments[name].kind not in kinds
        }

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Return the parameters by name; with `deep`, also the parameters of nested estimators, as
        ``name__parameter``.
        """
        parameters: dict[str, Any] = {}
        for name in self._parameters():
            parameters[name] = value = getattr(self, name)
            if deep and hasattr(value, "get_params") and not isinstance(value, type):
                parameters |= {f"{name}__{inner}": inner_value for inner, inner_value in value.get_params().items()}
        return parameters

    def set_params(self, **parameters: Any) -> Self:
        """Set parameters by name; ``name__parameter`` sets a parameter of a nested estimator."""
        known = self._parameters()
        nested: dict[str, dict[str, Any]] = {}
        for path, value in parameters.items():
            name, divided, inner = path.partition("__")
            if name not in known:
                raise ValueError(
                    f"Invalid parameter {name!r} for estimator {self}. Valid parameters are: {list(known)!r}."
                )
            if divided:
                nested.setdefault(name, {})[inner] = value
            else:
                setattr(self, name, value)
        for name, inner_parameters in nested.items():
            getattr(self, name).set_params(**inner_parameters)
        return self

    def __repr__(self) -> str:
        def is_default(value: Any, default: Any) -> bool:
            return value is default or (type(value) is type(default) and repr(value) == repr(default))

        values = {name: (getattr(self, name, None), of.default) for name, of in self._parameters().items()}
        shown = [f"{name}={value!r}" for name, (value, default) in values.items() if not is_default(value, default)]
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_tags__(self) -> Any:
        from sklearn.utils import Tags, TargetTags

        return Tags(estimator_type=None, target_tags=TargetTags(required=False))

    def __sklearn_is_fitted__(self) -> bool:
        return is_fitted(self)

    def __sklearn_clone__(self) -> Self:
        """Return an unfitted copy for scikit-learn, whose searches and cross-validation fit only such clones.

        All clones of an estimator together issue each warning once; see `warn_once`.
        """
        clone: Self = unfitted(self, for_scikit_learn=True)
        return clone

    def _repr_html_(self) -> str | None:
        from sklearn import get_config
        from sklearn.utils import estimator_html_repr

        return str(estimator_html_repr(self)) if get_config()["display"] == "diagram" else None

    def get_metadata_routing(self) -> Any:
        """Return the arguments that scikit-learn passes on to each method: its `MetadataRequest`."""
        from sklearn.utils.metadata_routing import MetadataRequest

        routing = MetadataRequest(owner=type(self).__name__)
        for method in _PASSED_ON:
            for name, alias in self._requests(method).items():
                getattr(routing, method).add_request(param=name, alias=alias)
        return routing

    def _requests(self, method: str) -> dict[str, bool | str | None]:
        """Return the arguments of a method other than the data, and whether each is passed on (None if undecided)."""
        function = getattr(type(self), method, None)
        taken = () if function is None else inspect.signature(function).parameters
        requests: dict[str, bool | str | None] = {
            name: True if name in _PASSED_ON[method] else None for name in taken if name not in _NOT_ROUTED
        }
        requests |= self._changed_requests.get(method, {})
        return requests

    def _request(self, method: str, requests: dict[str, bool | str | None]) -> Self:
        from sklearn import get_config

        if not get_config()["enable_metadata_routing"]:
            raise RuntimeError("Metadata routing is off; call sklearn.set_config(enable_metadata_routing=True) first.")
        known = self._requests(method)
        for name in requests:
            if name not in known:
                raise TypeError(f"{method} has no argument '{name}' to pass on; it has {list(known)}.")
        changed = self._changed_requests
        self._changed_requests = {**changed, method: {**changed.get(method, {}), **requests}}
        return self

    def set_fit_request(self, **requests: bool | str | None) -> Self:
        """Set which arguments scikit-learn's pipelines and searches pass on to `fit`; see its metadata routing."""
        return self._request("fit", requests)

    def set_predict_request(self, **requests: bool | str | None) -> Self:
        """Set which arguments are passed on to `predict`."""
        return self._request("predict", requests)

    def set_score_request(self, **requests: bool | str | None) -> Self:
        """Set which arguments are passed on to `score`."""
        return self._request("score", requests)

    def warn_once(self, message: str, category: type[Warning]) -> None:
        """Issue a warning; of the clones that scikit-learn makes of an estimator, only the first does."""
        warned = _CLONES.get(self, set())
        if category not in warned:
            warned.add(category)
            warn_user(message, category)


def is_clone(estimator: Estimator) -> bool:
    """Return whether an estimator was made by scikit-learn's `clone`, or is a copy of such a clone."""
    return estimator in _CLONES


def unfitted(value: Any, *, for_scikit_learn: bool = False) -> Any:
    """Return an unfitted ranker with the same parameters; other values are copied.

    `for_scikit_learn` makes clones of it and of nested estimators; copies of clones are clones.
    """
    if isinstance(value, list | tuple):
        return type(value)([unfitted(member, for_scikit_learn=for_scikit_learn) for member in value])
    if isinstance(value, type) or not hasattr(value, "get_params"):
        return copy.deepcopy(value)
    if not isinstance(value, Estimator):
        from sklearn.base import clone

        return clone(value)
    parameters = value.get_params(deep=False)
    copied = type(value)(
        **{name: unfitted(inner, for_scikit_learn=for_scikit_learn) for name, inner in parameters.items()}
    )
    if value._changed_requests:
        copied._changed_requests = value._changed_requests
    if value in _CLONES or for_scikit_learn:
        _CLONES[copied] = _CLONES[value] if value in _CLONES else _WARNED_BY_CLONES.setdefault(value, set())
    return copied


def is_learned(name: str) -> bool:
    """Return whether an attribute name ends in an underscore, like all fitted attributes."""
    return name.endswith("_") and not name.startswith("__")


def is_fitted(estimator: Any) -> bool:
    """Return whether an estimator is fitted."""
    return any(map(is_learned, vars(getattr(estimator, "as_fitted", estimator))))


def check_is_fitted(estimator: Any) -> None:
    """Raise scikit-learn's `NotFittedError` for an unfitted estimator."""
    if not isinstance(estimator, Estimator) and hasattr(estimator, "ranker"):
        raise DataError(f"A {type(estimator).__name__} is the result of a search; use its `ranker`.")
    if not is_fitted(estimator):
        from sklearn.exceptions import NotFittedError

        raise NotFittedError(
            f"This {type(estimator).__name__} instance is not fitted yet. Call 'fit' with appropriate arguments before "
            "using this estimator."
        )


_NONE_BY_DEFAULT = ("encoding_", "columns_", "text_")


class Recorded(Estimator):
    """An estimator whose fitted attributes are read from its record.

    A ranker in training, or while it is read from a file, is a draft: it has no record, and holds its attributes
    itself. The record is such a draft, made immutable.
    """

    _record: ClassVar[Any] = None
    _sealed: ClassVar[bool] = False

    @property
    def as_fitted(self) -> Self:
        """The ranker with the parameters and attributes of its last fit; a draft returns itself."""
        return self if self._record is None else self._record

    def unfitted_copy(self) -> Self:
        """Return an unfitted copy with the current parameters, for `fit` to train."""
        draft = copy.copy(self)
        for name in [name for name in vars(draft) if name == "_record" or is_learned(name)]:
            del vars(draft)[name]
        if self in _CLONES:
            _CLONES[draft] = _CLONES[self]
        return draft._owning()

    def draft(self) -> Self:
        """Return a draft of the fitted ranker, to derive another ranker from it."""
        draft = copy.copy(self.as_fitted)
        vars(draft).pop("_sealed", None)
        return draft

    def commit(self, draft: Self) -> Self:
        """Replace the record by a draft in one assignment; nothing of an earlier fit remains."""
        mine, known = vars(self), vars(draft)
        parameters = self._parameters()
        for name in [name for name in mine if name in known and name not in parameters and known[name] is mine[name]]:
            del known[name]  # an attribute of the ranker, not of the fit
        for name, value in known.items():
            if name not in parameters and isinstance(value, np.ndarray):
                known[name] = _unchanging(value)
        known["_sealed"] = True
        for name in [name for name in mine if is_learned(name)]:
            del mine[name]
        mine["_record"] = draft
        return self

    def finalized(self) -> Self:
        """Turn the attributes of a draft into its record, with the current parameters."""
        draft = copy.copy(self)._owning()
        parameters = self._parameters()
        for name in [name for name in vars(self) if name not in parameters]:
            del vars(self)[name]
        return self.commit(draft)

    def _owning(self) -> Self:
        """Copy the lists, dictionaries and arrays among the parameters, to protect them from outside changes."""
        known = vars(self)
        known |= {name: _own(known[name]) for name in self._parameters() if name in known}
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        if self._sealed:
            raise AttributeError(f"{name} is part of a fitted record, which is immutable; fit again to change it.")
        if self._record is None or not is_learned(name):
            object.__setattr__(self, name, value)
            return
        changed = copy.copy(self._record)
        vars(changed)[name] = value
        vars(self)["_record"] = changed

    def __delattr__(self, name: str) -> None:
        if self._record is None or not is_learned(name) or name not in vars(self._record):
            object.__delattr__(self, name)
            return
        changed = copy.copy(self._record)
        del vars(changed)[name]
        vars(self)["_record"] = changed

    def __getattr__(self, name: str) -> Any:
        record = self._record
        if record is not None and name in vars(record):
            return vars(record)[name]
        if name in _NONE_BY_DEFAULT:
            return None
        return object.__getattribute__(self, name)  # raises AttributeError


def _own(value: Any) -> Any:
    """Return a copy of a parameter; nested estimators and functions are not copied."""
    if type(value) in (list, tuple):
        return type(value)(_own(item) for item in value)
    if type(value) is dict:
        return {name: _own(item) for name, item in value.items()}
    return _unchanging(value.copy()) if type(value) is np.ndarray else value


def _unchanging(array: Any) -> Any:
    """Return a read-only view of an array, which other code may own."""
    view = array.view()
    view.flags.writeable = False
    return view


def available_if(check: Callable[[Any], bool]) -> Callable[[Callable[..., Any]], Any]:
    """Decorate a method that exists only if `check` is true for the instance, also for `hasattr`."""
    return partial(_Available, check)


class _Available:
    def __init__(self, check: Callable[[Any], bool], method: Callable[..., Any]) -> None:
        self.check, self.method = check, method
        self.__doc__, self.__wrapped__ = method.__doc__, method

    def __get__(self, instance: Any, owner: type) -> Any:
        if instance is None:
            return self.method
        if not self.check(instance):
            raise AttributeError(f"This {owner.__name__} has no attribute {self.method.__name__!r}")
        return self.method.__get__(instance, owner)
