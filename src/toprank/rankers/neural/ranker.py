"""`NeuralRanker`: neural networks under any loss.

RankNet is a network under logistic pairs; LambdaRank and LambdaLoss networks use their own losses. With attention, the
score of a document depends on the other documents of its query.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any, ClassVar, Literal, Self

import numpy as np
import numpy.typing as npt
from typing_extensions import override

from toprank.compute import FloatArray
from toprank.data.arguments import check_number, check_whole
from toprank.data.arrays import common_index
from toprank.data.dataset import RankingData
from toprank.data.queries import Queries, group_rows
from toprank.errors import DataError, refuse_if, require_extra
from toprank.losses import Loss
from toprank.metrics.measure import Measure
from toprank.rankers.base import by_row, finite
from toprank.rankers.columns import check_init_model
from toprank.rankers.early_stopping import Epoch, Rounds
from toprank.rankers.estimator import available_if, check_is_fitted
from toprank.rankers.formula import Network, Part, dense_layers
from toprank.rankers.neural.inputs import Inputs
from toprank.rankers.probabilities import GradeProbabilities, has_grades
from toprank.rankers.schema import Numbers, State, needed
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.target_encoding import EncodedCategories
from toprank.scorers.expected_gain import grade_probabilities

_INPUTS = {"center": Numbers("features"), "spread": Numbers("features"), "knots": Numbers("knots", "features")}


@dataclass(eq=False, repr=False)
class NeuralRanker(GradeProbabilities):
    """A neural network (PyTorch, the extra ``toprank[neural]``) trained under any loss of `toprank.losses`.

    The objective is the mean loss over queries, minimized by AdamW in mini-batches of whole queries.

    Args:
        loss: a loss or its name.
        network: ``mlp`` scores each document independently; ``attention`` relates the documents of a query, whose order
            has no effect.
        hidden: sizes of the hidden layers of an MLP; an empty list makes a linear function.
        activation: ``relu``, ``gelu``, ``silu`` or ``tanh``.
        norm: normalization after each hidden layer of an MLP: ``none``, ``layer``, or ``batch``, which also normalizes
            the inputs. (Attention has its own layer norms.)
        dropout: fraction of activations dropped in training.
        width: size of the document representation in an attention network.
        n_heads: number of attention heads, which share the width.
        n_layers: number of attention blocks.
        outputs: ``score`` for one output per document. ``grades`` for one per grade: P = softmax, and the score is the
            expected gain Σ_k G(k) P(k), trained under a loss of the score or under ``Multinomial``.
        gain: G for ``outputs="grades"``, a name or a table.
        input_transform: transform of the features: ``standard`` (mean 0, standard deviation 1), ``log1p``
            (sign(x)·log(1 + |x|), then standard), ``quantile`` (fraction of training documents below, then standard) or
            ``none``. Missing features (NaN) become the mean.
        epochs: maximum number of passes over the training data.
        batch_documents: maximum number of documents in a mini-batch, including padding; a larger query is a batch of
            its own. Queries are assigned to new batches in every epoch.
        learning_rate: learning rate of AdamW.
        schedule: ``cosine`` lowers the learning rate to 0 over all `epochs`; ``constant`` does not change it.
        weight_decay: weight decay of AdamW for weight matrices; biases have none.
        max_grad_norm: maximum norm of the gradient of a step; longer gradients are scaled down. None for no limit.
        metric: the metric of the history and of validation.
        convention: the convention of that metric.
        early_stopping: with `valid` data, stop after this many epochs without a better metric, and keep the best epoch.
            None to run all epochs and keep the last.
        eval_train: whether to compute the metric on the training data after each epoch. Default False.
        gpu_loss: ``auto`` computes the loss on NVIDIA GPUs with Triton kernels if the loss has them, and elsewhere with
            our CPU kernels, which are faster there and also serve Apple GPUs. True or False forces one or the other.
        device: ``auto`` (CUDA if available, else the CPU), ``cpu``, ``cuda``, ``cuda:1`` … or ``mps``.
        init_model: a fitted `NeuralRanker` of the same architecture to continue from, with its weights and transform
            and a new optimizer.
        callbacks: functions of an `Epoch`, called after each; one that returns True ends the training.
        seed: seed of all random numbers. On a CPU the same data, seed and number of threads give the same model;
            PyTorch's global generator is neither used nor changed.
        target_encoding: categories to replace by target encodings: ``"auto"`` (categories with many levels, if their
            encoding helps on held-out queries), True (all categories with many levels), False, or a list of names and
            pairs of names; see `toprank.rankers.target_encoding`.
        threads: number of threads; None for as many as the work justifies, up to 8.
        verbose: whether to write the metric and the time left to standard error: about once a second on a terminal, in
            one line that is updated in a notebook, every ten seconds elsewhere.

    An interrupt from the keyboard ends the training with a warning; the best epoch so far is kept (without `valid`, the
    last complete one). If the loss ceases to be finite, the best epoch on validation data is kept; without validation
    data, training fails with an error.

    After fitting: `network_` (PyTorch's module, for prediction), `inputs_` (the transform), `best_epoch_`, `history_`
    (epoch, loss, train, valid), `stopped_` (the reason, in words).

    Cost: that of the network for each document, without padding, and of the loss. Source: Burges et al. 2005 (RankNet);
    Burges, Ragno & Le 2006 (LambdaRank); Pobrotyn et al. 2020, Pang et al. 2020 (self-attention).

    >>> import toprank as tr
    >>> train, valid = tr.split(tr.synthetic(n_queries=60, truth="nonlinear", seed=0), (0.7, 0.3))
    >>> ranker = NeuralRanker("ListNet", hidden=(16,), epochs=3, threads=1).fit(train, valid=valid)
    >>> ranker.best_epoch_ <= 3, ranker.history_["epoch"]
    (True, [1, 2, 3])
    """

    saved_arrays: ClassVar[Mapping[str, Numbers]] = {"gains_": Numbers("grades")}
    saved_values: ClassVar[Mapping[str, Any]] = {
        "best_epoch_": int,
        "history_": dict[str, list[float | None]],
        "stopped_": str,
        **GradeProbabilities.saved_values,
    }

    rounds: ClassVar[Rounds | None] = Rounds(
        "epochs", "best_epoch_", nested=False
    )  # the learning rate depends on the total number
    propagates_infinity: ClassVar[bool] = False  # quantiles hide infinite values
    needs_exclusive_training: ClassVar[bool] = True  # PyTorch has one global number of threads, and one device
    family: ClassVar[str | None] = "networks"
    packages: ClassVar[tuple[str, ...]] = ("torch",)

    loss: Loss | str = "LambdaRank"
    _: KW_ONLY
    network: Literal["mlp", "attention"] = "mlp"
    hidden: Sequence[int] = (128, 64)
    activation: str = "relu"
    norm: Literal["none", "batch", "layer"] = "none"
    dropout: float = 0.1
    width: int = 64
    n_heads: int = 4
    n_layers: int = 2
    outputs: Literal["score", "grades"] = "score"
    gain: str | Sequence[float] = "exponential"
    input_transform: Literal["standard", "log1p", "quantile", "none"] = "log1p"
    epochs: int = 100
    batch_documents: int = 2048
    learning_rate: float = 1e-3
    schedule: Literal["cosine", "constant"] = "cosine"
    weight_decay: float = 0.01
    max_grad_norm: float | None = 1.0
    metric: str | Measure = "ndcg@10"
    convention: str = "standard"
    early_stopping: int | None = 20
    eval_train: bool = False
    gpu_loss: bool | Literal["auto"] = "auto"
    device: str = "auto"
    init_model: NeuralRanker | None = None
    callbacks: Sequence[Callable[[Epoch], Any]] = ()
    seed: int = 0
    target_encoding: EncodedCategories = "auto"
    threads: int | None = None
    verbose: bool = False
    _worker_group: Any = field(init=False)  # the group of processes in distributed training

    @override
    def search_space(self) -> dict[str, Any]:
        shapes: dict[str, Any] = {"hidden": [(64,), (128, 64), (256, 128), (256, 128, 64)]}
        if self.network == "attention":
            shapes = {"width": [32, 64, 128], "n_layers": (1, 4)}
        return {
            **shapes,
            "learning_rate": (1e-4, 1e-2, "log"),
            "dropout": (0.0, 0.5),
            "weight_decay": [0.0, 1e-4, 1e-3, 1e-2, 1e-1],
        }

    # ---- training ----

    @override
    def check_parameters(self) -> None:
        # Not with the other checks, which import PyTorch: search spaces are read without it.
        whole = {"n_heads": 1, "n_layers": 1, "width": 1, "epochs": 1, "batch_documents": 1, "seed": 0}
        for name, least in whole.items():
            check_whole(name, getattr(self, name), least, below=2**31)
        if self.early_stopping is not None:
            check_whole("early_stopping, a number of epochs or None for never,", self.early_stopping, 1)
        check_number("learning_rate", self.learning_rate, above=0)
        if self.max_grad_norm is not None:
            check_number("max_grad_norm", self.max_grad_norm, above=0)
        check_number("weight_decay", self.weight_decay, least=0)
        check_number("dropout", self.dropout, least=0, below=1)

    def _fit(self, data: RankingData, valid: RankingData | None) -> None:
        require_extra("torch", "neural", "NeuralRanker")
        from toprank.rankers.neural.parameters import check_combination
        from toprank.rankers.neural.training import train_network

        if self.init_model is not None:
            check_init_model(self, data)
        check_combination(self)
        trained = train_network(self, data, valid, getattr(self, "_worker_group", None))
        self.network_, self.inputs_, self.gains_, watch = trained.network, trained.inputs, trained.gains, trained.watch
        self.calibration_ = None
        self.best_epoch_, self.history_, self.stopped_ = trained.epochs, watch.history, watch.stopped
        self.l2_ = float(self.weight_decay)
        self.interrupted_ = watch.interrupted
        self.path_: list[dict[str, Any]] = [{"epochs": trained.epochs, "interrupted": watch.interrupted}]
        if (judge := trained.judge) is not None:
            self.path_[0]["valid"] = trained.valid
            self.keep_value(trained.valid, judge.name, judge.convention.name)
        if self._reads_labels and (data.labels == data.labels[0]).all():
            self.warn_constant(
                f"NeuralRanker: all training documents have the label {data.labels[0]:g}, so the scores are "
                "meaningless."
            )
        if watch.unfinished:
            self.warn_unconverged(f"NeuralRanker: {watch.stopped} The model of epoch {trained.epochs} is kept.")

    # ---- prediction ----

    def predict(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Return one score for each document; higher is better.

        Args:
            X: a `RankingData`, or features.
            qid: the query of each row, if X are features and the network is ``attention``; rows of a query need not be
                adjacent. It may be omitted (all rows are one query) only if the ranker was fitted on one query, so that
                a forgotten `qid` is an error. Ignored by an MLP.
        """
        outputs = self._outputs(X, qid)
        if not len(self.gains_):
            return by_row(X, finite(outputs[:, 0]))
        gains = (
            self._calibrated(grade_probabilities(outputs)) * self.gains_
        )  # a matrix product may round differently by row
        return by_row(X, finite(gains.sum(axis=1)))

    def _scores(self, X: Any) -> FloatArray:
        return self.predict(X)

    @override
    def _formula(self) -> Part:
        refuse_if(
            self.network_.shape.network != "mlp",
            "An attention network scores a document by the other documents of its query, which no export format "
            "supports. Train network='mlp', or serve the model itself.",
        )
        inputs = self.inputs_
        mean, nothing, plain = inputs.center, np.zeros_like(inputs.center), inputs.kind == "none"
        how = (nothing, nothing + 1.0, mean) if plain else (mean, inputs.spread, nothing)
        transform: Any = inputs.kind if inputs.kind in ("log1p", "quantile") else "identity"
        network = Network(transform, *how, inputs.knots, dense_layers(self.network_))
        return self._expected(network) if len(self.gains_) else network

    @override
    def query_scores(self, X: FloatArray) -> FloatArray:
        return self.predict(self._data_of(X))

    def _outputs(self, X: Any, qid: npt.ArrayLike | None) -> FloatArray:
        check_is_fitted(self)
        from toprank.rankers.neural import scoring

        common_index(X=X, qid=qid)
        rows = self._prediction_rows(X)
        order, queries = self._grouped(X, qid, rows.shape[0])
        device = scoring.chosen_device(self.device)
        network = self.network_ if device.type == "cpu" else scoring.prediction_network(self.network_, device)
        with scoring.torch_threads(scoring.threads_for(self.threads, rows.shape[0], network)) as threads:
            source = rows if order is None else rows[order]
            prepared = scoring.NetworkRows(source, self.inputs_, device, threads, keep=False)
            outputs = scoring.outputs_of(network, prepared, queries, twins=True)
        if order is None:
            return outputs
        scattered = np.empty_like(outputs)
        scattered[order] = outputs
        return scattered

    def _grouped(self, X: Any, qid: npt.ArrayLike | None, n: int) -> tuple[Any, Queries]:
        """Return the order that groups rows by query, and the queries, if the network uses them."""
        if self.network_.shape.network != "attention":
            return None, Queries([0, n])
        if isinstance(X, RankingData):
            refuse_if(qid is not None, "The data contain their queries; omit qid.")
            return None, X.queries
        if qid is None and self._needs_qid:
            raise DataError(
                "An attention network uses the other documents of the query and was fitted on several queries, but the "
                "features have no qid. Pass the qid of each row, or a RankingData (without qid, all rows are one "
                "query)."
            )
        order, queries, _ = group_rows(qid, None, None, n, regroup=True)
        return order, queries

    @property
    def uses_query_context(self) -> bool:
        """True if the network is ``attention``."""
        return bool(self.network_.shape.network == "attention")

    @property
    def _needs_qid(self) -> bool:
        """True if features need a qid: the network uses query context and was fitted on several queries."""
        return self.uses_query_context and self.training_.get("queries", 1) > 1

    @available_if(has_grades)
    def predict_proba(self, X: Any, qid: npt.ArrayLike | None = None) -> FloatArray:
        """Return P(grade | x), one column for each grade 0 … K − 1; only with ``outputs="grades"``."""
        return by_row(X, self._calibrated(grade_probabilities(self._outputs(X, qid))))

    def _own_probabilities(self, X: Any) -> FloatArray:
        return grade_probabilities(self._outputs(X, None))

    # ---- files ----

    def state(self) -> State:
        """See `Ranker.state`. Training options (callbacks, init_model, a GPU) are not part of the model."""
        state = super().state()
        weights = {name.replace(".", "_"): value.numpy() for name, value in self.network_.state_dict().items()}
        arrays = {
            name: value.astype(np.float32) if value.dtype.kind == "f" else value for name, value in weights.items()
        }
        inputs = dict(zip(_INPUTS, (self.inputs_.center, self.inputs_.spread, self.inputs_.knots), strict=True))
        return state._replace(arrays={**state.arrays, **inputs, **arrays})

    @override
    def _saved_parameters(self) -> dict[str, Any]:
        parameters = super()._saved_parameters()
        return parameters | {
            "callbacks": (),
            "init_model": None,
            "device": "cpu" if parameters["device"] == "cpu" else "auto",
        }

    @classmethod
    @override
    def restore(cls, state: State) -> Self:
        require_extra("torch", "neural", "NeuralRanker")
        from toprank.rankers.neural.scoring import restored_network

        ranker = super().restore(state)
        ranker.callbacks, ranker.hidden, ranker.l2_ = (), tuple(ranker.hidden), float(ranker.weight_decay)
        parts = [numbers.read(name, needed(state.arrays, name)) for name, numbers in _INPUTS.items()]
        ranker.inputs_ = Inputs(ranker.input_transform, *parts)
        other_arrays = {*_INPUTS, *(name.rstrip("_") for name in cls.saved_arrays), *SeenColumns.tables(state.arrays)}
        ranker.network_ = restored_network(ranker, state.arrays, other_arrays)
        return ranker

    @override
    def check_restored(self) -> None:
        from toprank.rankers.neural.scoring import check_inputs

        super().check_restored()
        check_inputs(self)
