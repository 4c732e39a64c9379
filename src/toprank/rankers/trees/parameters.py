"""Parameters of a `TreeRanker`: validation, and translation to LightGBM's parameters, including threads.

A fork copies the memory of LightGBM's thread pool (OpenMP) but not its threads, so the child process would wait for
them forever. With one thread it does not use the pool.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from toprank.compute import FloatArray, available_threads
from toprank.data.arguments import check_callbacks, check_number, check_whole
from toprank.data.dataset import RankingData
from toprank.display.progress import ProgressLine, in_notebook
from toprank.errors import DataError, UnknownNameError, warn_user
from toprank.rankers.trees.cores import FreeCores, free_cores, leaves_busy_cores

if TYPE_CHECKING:
    from toprank.rankers.source import Source
    from toprank.rankers.trees.ranker import TreeRanker

_forked = False


class ForkedTreesWarning(UserWarning):
    """Several threads were requested for trees in a process forked from one that had used LightGBM."""


def allowed_threads(threads: int, explicit: bool) -> int:
    """Return the number of threads, or one in a forked process, with a warning if several were requested explicitly."""
    if not _forked or threads == 1:
        return threads
    if explicit:
        warn_user(
            "This process was forked from one that had used LightGBM, whose threads do not survive a fork, so trees "
            "use one thread. For more, start processes with the 'spawn' or 'forkserver' method of multiprocessing.",
            ForkedTreesWarning,
        )
    return 1


def _keep_to_one_thread() -> None:
    global _forked
    basic = sys.modules.get("lightgbm.basic")
    if basic is not None:
        _forked = True
        basic._safe_call(basic._LIB.LGBM_SetMaxThreads(1))


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_keep_to_one_thread)


_FRACTION: dict[str, Any] = {"least": 0, "most": 1}
_NOT_NEGATIVE: dict[str, Any] = {"least": 0}
_NUMBERS: dict[str, dict[str, Any]] = {
    "min_sum_hessian_in_leaf": _NOT_NEGATIVE, "lambda_l1": _NOT_NEGATIVE, "min_gain_to_split": _NOT_NEGATIVE,
    "max_delta_step": {}, "path_smooth": _NOT_NEGATIVE, "feature_fraction_bynode": {"above": 0, "most": 1},
    "top_rate": _FRACTION, "other_rate": _FRACTION, "drop_rate": _FRACTION, "skip_drop": _FRACTION,
    "monotone_penalty": _NOT_NEGATIVE, "cat_smooth": _NOT_NEGATIVE, "cat_l2": _NOT_NEGATIVE, "histogram_pool_size": {},
}  # fmt: skip
_INTEGERS = {
    "max_depth": -(2**31), "max_drop": -(2**31), "max_cat_threshold": 1, "max_cat_to_onehot": 1,
    "min_data_per_group": 1, "min_data_in_bin": 1, "bin_construct_sample_cnt": 1, "num_grad_quant_bins": 2,
}  # fmt: skip
_FLAGS = (
    "extra_trees", "uniform_drop", "xgboost_dart_mode", "enable_bundle", "use_missing", "zero_as_missing",
    "feature_pre_filter", "force_col_wise", "force_row_wise", "use_quantized_grad", "quant_train_renew_leaf",
    "stochastic_rounding",
)  # fmt: skip
_NAMES = {
    "data_sample_strategy": ("bagging", "goss"),
    "monotone_constraints_method": ("basic", "intermediate", "advanced"),
}
BY_FEATURE = ("feature_contri", "interaction_constraints", "max_bin_by_feature")
_LIGHTGBM_PARAMS = (*_NUMBERS, *_INTEGERS, *_FLAGS, *_NAMES, *BY_FEATURE)
"""LightGBM parameters that `lightgbm_params` accepts. Invalid values are refused here, because LightGBM writes its own
errors to the standard error of the process, whatever its verbosity."""
_BUILT_IN_PARAMS = ("lambdarank_truncation_level", "lambdarank_norm", "sigmoid", "label_gain")
_COLUMNS_PER_THREAD = 8
_CELLS_PER_THREAD = 1 << 18
_PREFIX, _BUILT_IN = "lightgbm:", ("lambdarank", "rank_xendcg")


def built_in(loss: Any) -> str | None:
    """Return LightGBM's name of the objective if `loss` is one of LightGBM's own, else None.

    >>> built_in("lightgbm:lambdarank"), built_in("LambdaRank")
    ('lambdarank', None)
    """
    if not isinstance(loss, str) or not loss.lower().startswith(_PREFIX):
        return None
    name = loss.lower().removeprefix(_PREFIX)
    if name not in _BUILT_IN:
        raise UnknownNameError("loss", loss, [_PREFIX + known for known in _BUILT_IN])
    return name


def training_threads(threads: int | None, data: RankingData) -> FreeCores:
    """Return the requested number of threads, or as many as the work justifies.

    On a busy machine, synchronization can make training a hundred times slower. Processes that opted in
    (`toprank.rankers.trees.cores`) therefore check the load first.
    """
    if threads is not None:
        return FreeCores(allowed_threads(available_threads(threads), explicit=True), "")
    enough = 1 + data.n_documents * data.n_features // _CELLS_PER_THREAD
    useful = allowed_threads(min(available_threads(), enough), explicit=False)
    if useful == 1 or not leaves_busy_cores():
        return FreeCores(useful, "")
    free = free_cores()
    return free if free.threads < useful else FreeCores(useful, "")


class BareColumns(NamedTuple):
    """Number and names of features, without data."""

    n_features: int
    feature_names: tuple[str, ...] | None = None


class InitialTrees(NamedTuple):
    """Trees from which training continues."""

    booster: Any
    rounds: int
    intercept: FloatArray
    """The constant of each output."""
    gains: FloatArray
    """G of each grade; empty if the output is the score."""


def check_combination(ranker: TreeRanker) -> None:
    """Refuse invalid combinations of parameters, and LightGBM's callbacks."""
    _check_callbacks(ranker.callbacks)
    initial_trees(ranker)
    if ranker.lightgbm_params is not None and not isinstance(ranker.lightgbm_params, Mapping):
        raise DataError(
            f"lightgbm_params takes a dictionary such as {{'max_depth': 6}}, not {ranker.lightgbm_params!r}."
        )
    if ranker.outputs == "grades":
        if built_in(ranker.loss):
            raise DataError(f"{ranker.loss} has one score per document; with outputs='grades' use a loss of toprank.")
        if ranker.monotone is not None:
            raise DataError(
                "monotone constrains the score, so it does not support outputs='grades' with one output per grade."
            )
    _sampling(ranker)
    _lightgbm_params(ranker)


def _sampling(ranker: TreeRanker) -> dict[str, Any]:
    """Return LightGBM's sampling parameters: rows, or whole queries for its own lambdarank. Our losses sample queries
    themselves.
    """
    objective = built_in(ranker.loss)
    if ranker.row_fraction < 1 and ranker.query_fraction < 1 and objective is not None:
        raise DataError("LightGBM's own objectives sample rows or queries, not both; set one of the fractions to 1.")
    if ranker.row_fraction < 1:
        return {"bagging_fraction": ranker.row_fraction, "bagging_freq": 1}
    if ranker.query_fraction < 1 and objective is not None:
        if objective != "lambdarank":
            raise DataError(f"{ranker.loss} cannot sample whole queries; use row_fraction, or the loss XENDCG.")
        return {"bagging_fraction": ranker.query_fraction, "bagging_freq": 1, "bagging_by_query": True}
    return {}


def _lightgbm_params(ranker: TreeRanker) -> dict[str, Any]:
    """Return the `lightgbm_params`."""
    lightgbm_params = dict(ranker.lightgbm_params or {})
    names = [*_LIGHTGBM_PARAMS, *(_BUILT_IN_PARAMS if built_in(ranker.loss) else ())]
    for name in lightgbm_params:
        if name not in names:
            raise UnknownNameError("LightGBM parameter for lightgbm_params=", str(name), names)
    if "force_row_wise" in lightgbm_params or "force_col_wise" in lightgbm_params:
        lightgbm_params = {"force_row_wise": False, "force_col_wise": False} | lightgbm_params
    _check_lightgbm_params(lightgbm_params)
    if lightgbm_params.get("data_sample_strategy") == "goss":
        if _sampling(ranker):
            raise DataError("GOSS samples rows by their gradients; leave row_fraction and query_fraction at 1.")
        if lightgbm_params.get("top_rate", 0.2) + lightgbm_params.get("other_rate", 0.1) > 1:
            raise DataError("top_rate and other_rate of GOSS must sum to at most 1.")
    return lightgbm_params


def check_features(ranker: TreeRanker, n_features: int) -> None:
    """Refuse `lightgbm_params` for features that do not exist."""
    lightgbm_params = ranker.lightgbm_params or {}
    for name in ("feature_contri", "max_bin_by_feature"):
        numbers = lightgbm_params.get(name)
        if numbers is not None and len(numbers) != n_features:
            raise DataError(f"lightgbm_params['{name}'] has {len(numbers)} numbers for {n_features} features.")
    for feature in (feature for group in lightgbm_params.get("interaction_constraints", ()) for feature in group):
        if feature >= n_features:
            raise DataError(
                f"lightgbm_params['interaction_constraints'] contains {feature}; the last feature is {n_features - 1}."
            )


def _check_lightgbm_params(lightgbm_params: Mapping[str, Any]) -> None:
    """Refuse values that LightGBM would refuse."""
    for name, value in lightgbm_params.items():
        called = f"lightgbm_params['{name}']"
        if name in _NUMBERS:
            check_number(called, value, **_NUMBERS[name])
        elif name in _INTEGERS:
            check_whole(called, value, _INTEGERS[name], below=2**31)
        elif name in _NAMES and value not in _NAMES[name]:
            raise UnknownNameError(called, str(value), _NAMES[name])
        elif (name in _FLAGS or name == "lambdarank_norm") and not (isinstance(value, bool | int) and value in (0, 1)):
            raise DataError(f"{called} must be True or False, not {value!r}.")
        elif name == "lambdarank_truncation_level":
            check_whole(called, value, 1, below=2**31)
        elif name == "sigmoid":
            check_number(called, value, above=0)
        elif name in ("feature_contri", "label_gain", "max_bin_by_feature"):
            for feature in _listed(called, value):
                if name == "max_bin_by_feature":
                    check_whole(f"every number of {called}", feature, 2, below=2**31)
                else:
                    check_number(f"every number of {called}", feature, least=0)
        elif name == "interaction_constraints":
            for group in _listed(called, value):
                for feature in _listed(f"every group of {called}", group):
                    check_whole(f"every feature of {called}", feature, 0)
    if lightgbm_params.get("force_row_wise") and lightgbm_params.get("force_col_wise"):
        raise DataError("lightgbm_params= sets both force_row_wise and force_col_wise; drop one of them.")


def _listed(called: str, value: Any) -> list[Any]:
    if isinstance(value, str) or not isinstance(value, Sequence | np.ndarray):
        raise DataError(f"{called} must be a list, not {value!r}.")
    return list(value)


def initial_trees(ranker: TreeRanker) -> InitialTrees | None:
    """Return the trees of `init_model`, to continue from; refuse other outputs."""
    before = ranker.init_model
    if before is None:
        return None
    outputs = before.as_fitted.outputs
    if outputs != ranker.outputs:
        raise DataError(f"init_model has outputs='{outputs}', so training cannot continue with '{ranker.outputs}'.")
    return InitialTrees(before.booster_, before.best_iteration_, before.intercept_, before.gains_)


def _check_callbacks(callbacks: Any) -> None:
    check_callbacks(callbacks, "a Round")
    for callback in callbacks:
        if type(callback).__module__.partition(".")[0] == "lightgbm":
            raise DataError(
                f"{type(callback).__name__.strip('_')} is a LightGBM callback, which does not accept a Round. Use "
                "early_stopping=, verbose= and history_, or a function of your own."
            )


def lightgbm_parameters(ranker: TreeRanker, data: RankingData, outputs: int, categorical: list[int]) -> dict[str, Any]:
    """Return LightGBM's parameters for training on these data."""
    threads, why = training_threads(ranker.threads, data)
    if why and ranker.verbose and not in_notebook():
        ProgressLine()(why)
    parameters: dict[str, Any] = {
        "boosting": ranker.boosting,
        "num_leaves": ranker.num_leaves,
        "learning_rate": ranker.learning_rate,
        "min_data_in_leaf": ranker.min_data_in_leaf,
        "lambda_l2": ranker.l2,
        "feature_fraction": ranker.feature_fraction,
        "max_bin": ranker.max_bin,
        "seed": ranker.seed,
        "num_threads": threads,
        "deterministic": True,
        "feature_pre_filter": False,  # LightGBM cannot train if it has filtered all features
        "metric": "None",
        "verbosity": -1,
    }
    if outputs > 1:
        parameters["num_class"] = outputs
    # By default LightGBM times both layouts of its histograms and uses the faster one, which is not reproducible.
    # Column-wise histograms parallelize over features, row-wise ones over rows, which is better for few features.
    by_rows = data.n_features < _COLUMNS_PER_THREAD * threads
    parameters["force_row_wise" if by_rows else "force_col_wise"] = True
    directions = ranker.directions_of_columns(data)
    if directions is not None:
        both = [column for column in categorical if directions[column]]
        if both:
            raise DataError(f"Feature {both[0]} (from 0) cannot be both categorical and monotone.")
        parameters["monotone_constraints"] = directions
    return parameters | _sampling(ranker) | _lightgbm_params(ranker)


def monotone_directions(monotone: Any, data: RankingData | Source | BareColumns) -> list[int] | None:
    """Return −1, 0 or 1 for each feature, or None without constraints."""
    if monotone is None:
        return None
    if isinstance(monotone, Mapping):
        directions = [0] * data.n_features
        for feature, direction in monotone.items():
            directions[place_of(feature, data, "monotone")] = direction
    elif isinstance(monotone, Iterable) and not isinstance(monotone, str):
        directions = list(monotone)
    else:
        raise DataError(f"monotone must be a list such as [1, 0, -1] or a dictionary, not {monotone!r}.")
    if len(directions) != data.n_features:
        raise DataError(f"monotone has {len(directions)} directions for {data.n_features} features.")
    if any(direction not in (-1, 0, 1) for direction in directions):
        raise DataError("monotone must contain 1 (increasing), -1 (decreasing) or 0 (unconstrained) for each feature.")
    return [int(direction) for direction in directions]


def categorical_columns(categorical: Sequence[int | str], data: RankingData) -> list[int]:
    """Return the indices of categorical columns; their values must be integers from 0, or missing."""
    if isinstance(categorical, str) or not isinstance(categorical, Iterable):
        raise DataError(f"categorical must be a list of features, such as [0, 3], not {categorical!r}.")
    columns = sorted({place_of(feature, data, "categorical") for feature in categorical})
    coded = () if data.encoding is None else data.encoding.categories
    for column in columns:
        if column in coded:
            continue
        values = data.X[:, column]
        values = np.asarray(values.data if data.is_sparse else values)
        wrong = (values < 0) | (values != np.floor(values)) | (values >= 2**31)
        wrong &= ~np.isnan(values)
        if wrong.any():
            raise DataError(
                f"Feature {column} (from 0) is categorical but contains {values[np.argmax(wrong)]:g}; categories must "
                "be integers from 0, or NaN. Encode them first."
            )
    return sorted({*columns, *coded})


def place_of(feature: Any, data: RankingData | Source | BareColumns, role: str) -> int:
    """Return the index of a feature given by name or index; `role` is the parameter that contains it."""
    if isinstance(feature, str):
        names = data.feature_names
        if names is None:
            raise DataError(
                f"{role} contains the feature name '{feature}', but the features have no names; use indices."
            )
        if feature not in names:
            raise UnknownNameError("feature", feature, names)
        return int(names.index(feature))
    if isinstance(feature, bool) or not isinstance(feature, int | np.integer) or not 0 <= feature < data.n_features:
        raise DataError(f"{role} contains the feature {feature!r}; indices are from 0 to {data.n_features - 1}.")
    return int(feature)
