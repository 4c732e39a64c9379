"""Training of a network: epochs of mini-batches with early stopping."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np
import torch
from torch import nn

from toprank.compute import FloatArray
from toprank.data.dataset import RankingData
from toprank.errors import DataError
from toprank.evaluation.scores import BoundMetric
from toprank.rankers.early_stopping import EpochStopping, PriorTraining, stopping_options, training_metrics
from toprank.rankers.neural.inputs import EpochPlan, Inputs, plan_epoch
from toprank.rankers.neural.objective import NetworkObjective, NotFinite
from toprank.rankers.neural.parameters import architecture
from toprank.rankers.neural.scoring import (
    NetworkRows,
    chosen_device,
    outputs_of,
    prediction_network,
    scores_of,
    threads_for,
    torch_threads,
)
from toprank.scorers.networks import QueryTable, SetAttention, build, initialize

if TYPE_CHECKING:
    from toprank.rankers.neural.ranker import NeuralRanker


class WorkerGroup(Protocol):
    """Several processes that train the same network, each on a share of the queries of every batch."""

    rank: int
    place: int
    """The index of this process on its machine, from 0."""

    def share(self, plan: EpochPlan) -> EpochPlan:
        """Return the same epoch with this process's share of every batch, which may be empty."""

    def add(self, network: nn.Module, loss: float) -> float:
        """Sum the gradients of all processes, in place, and their losses; a NaN propagates to all."""

    def agreed(self, metrics: Callable[[], dict[str, float]]) -> dict[str, float]:
        """Return the metrics as computed by the first process."""


class TrainedNetwork(NamedTuple):
    """The result of a training."""

    network: Any
    """A PyTorch module for prediction, on the CPU."""
    inputs: Inputs
    gains: FloatArray
    epochs: int
    """Number of epochs of the model that is kept."""
    valid: float | None
    """Its metric on the validation data."""
    judge: BoundMetric | None
    watch: EpochStopping


def train_network(
    ranker: NeuralRanker, data: RankingData, valid: RankingData | None, group: WorkerGroup | None = None
) -> TrainedNetwork:
    """Train with the parameters of a draft ranker, alone or in a group."""
    device = chosen_device(ranker.device, None if group is None else group.place)
    outline = build(architecture(ranker, data.n_features, 1))
    with torch_threads(threads_for(ranker.threads, data.n_documents, outline)) as threads:
        judges = training_metrics(ranker, data if ranker.eval_train else None, valid)
        run = _NetworkRun(ranker, data, device, threads, group)
        held_out = {name: NetworkRows(judge.data.X, run.inputs, device, threads) for name, judge in judges.items()}
        if "train" in held_out:
            held_out["train"] = run.rows

        def metrics() -> dict[str, float]:
            network = prediction_network(run.network, device)
            return {name: judge(run.scores(network, held_out[name], judge.data)) for name, judge in judges.items()}

        judge = judges.get("valid")

        def scores_before(_: NeuralRanker, valid: RankingData) -> FloatArray:
            # Not by `predict`, which expects features: these data contain the input columns of the network.
            return run.scores(prediction_network(run.network, device), held_out["valid"], valid)

        made = 0 if ranker.init_model is None else ranker.init_model.best_epoch_
        watch = EpochStopping(
            steps=ranker.epochs,
            **stopping_options(ranker, judge, scores_before, PriorTraining(made, model=run.weights())),
        )
        _make_epochs(run, watch, metrics if group is None else lambda: group.agreed(metrics))
        weights, epochs, value = watch.kept()
        run.network.load_state_dict(weights)
        network = prediction_network(run.network, torch.device("cpu"))
    return TrainedNetwork(network, run.inputs, run.objective.gains, epochs, value, judge, watch)


def _make_epochs(run: _NetworkRun, watch: EpochStopping, metrics: Callable[[], dict[str, float]]) -> None:
    """Run the epochs until the end or an interrupt from the keyboard."""
    try:
        with watch.interruptible():
            while not watch.over and watch.done < watch.last:
                loss = run.epoch(watch.done, watch.first)
                watch.note(metrics(), run.weights(), loss=loss)
    except NotFinite:
        number = watch.done + 1
        if not watch.has_best:
            raise DataError(
                f"Training diverges: in epoch {number} the scores or the loss are not finite. Lower learning_rate, set "
                "max_grad_norm, or check for labels with an extremely large gain."
            ) from None
        watch.end_early(f"Training diverges: in epoch {number} the scores or the loss are not finite.")


class _NetworkRun:
    """The state of a training."""

    def __init__(
        self,
        ranker: NeuralRanker,
        data: RankingData,
        device: torch.device,
        threads: int,
        group: WorkerGroup | None = None,
    ) -> None:
        self.ranker, self.data, self.device, self.worker_group = ranker, data, device, group
        self.objective = NetworkObjective.from_ranker(ranker, data, device, threads)
        before = ranker.init_model
        self.network = build(architecture(ranker, data.n_features, self.objective.n_outputs))
        if before is None:
            self.inputs = Inputs.from_data(ranker.input_transform, data.X, data.feature_names, threads)
            initialize(self.network, torch.Generator().manual_seed(ranker.seed))
            if self.objective.start is not None:
                with torch.no_grad():
                    self.network.output.bias.copy_(torch.from_numpy(self.objective.start))
        else:
            self.inputs = before.inputs_
            weights = {name: value.clone() for name, value in before.network_.state_dict().items()}
            self.network.load_state_dict(weights, assign=True)
        self.network = self.network.to(device, torch.float32)
        # For shift-invariant losses the gradient of the bias is rounding noise, which AdamW would scale up.
        self.network.output.bias.requires_grad_(not self.objective.blind_to_shifts)
        self.rows = NetworkRows(data.X, self.inputs, device, threads)
        self.optimizer = _optimizer(self.network, ranker, device)
        self.dropout_rng = torch.Generator(device)
        self.resident = self._resident()

    def weights(self) -> dict[str, Any]:
        """Return a copy of the weights, on the CPU."""
        return {name: value.detach().cpu().clone() for name, value in self.network.state_dict().items()}

    def epoch(self, number: int, first: int) -> float:
        """Run one pass over the training data, with number `number` from 0; return the mean loss of its batches.

        Random numbers depend only on the seed and the epoch number.
        """
        ranker, rng = self.ranker, np.random.default_rng([self.ranker.seed, number])
        # Each process of a group drops its own activations.
        self.dropout_rng.manual_seed(
            int(rng.integers(1 << 62)) + (0 if self.worker_group is None else self.worker_group.rank)
        )
        self.network.train()
        objective = self.objective.resampled(ranker.seed, number)
        plan_rng = np.random.default_rng([ranker.seed, number, 1])
        if self.resident is not None:
            order, firsts = self.resident.batches(plan_rng)
            mean: float = self.resident.epoch(objective, order, firsts, self._rates(number - first, len(firsts) - 1))
        else:
            mean = self._batch_by_batch(objective, self._planned(plan_rng), number - first)
        if not math.isfinite(mean):
            raise NotFinite("The loss is not finite.")
        return mean

    def _rates(self, epochs: int, steps: int) -> FloatArray:
        """Return the learning rate of each step of an epoch, after `epochs` epochs."""
        ranker = self.ranker
        progress = (epochs + np.arange(steps) / steps) / ranker.epochs
        return ranker.learning_rate * np.array([_factor(ranker.schedule, share) for share in progress.tolist()])

    def _batch_by_batch(self, objective: NetworkObjective, plan: EpochPlan, epochs: int) -> float:
        """Run an epoch whose steps are launched by the host."""
        judge, weights = objective.epoch(plan), list(self.network.parameters())
        total = torch.zeros((), dtype=torch.float64 if self.device.type != "mps" else torch.float32).to(self.device)
        for place, rate in enumerate(self._rates(epochs, len(plan.batches)).tolist()):
            for parameters in self.optimizer.param_groups:
                parameters["lr"] = rate
            for weight in weights:
                weight.grad = None
            if self.worker_group is None:
                total += self._backward(plan, place, judge)
            else:
                total += self._backward_together(self.worker_group, plan, place, judge)
            if self.ranker.max_grad_norm is not None:
                nn.utils.clip_grad_norm_(weights, self.ranker.max_grad_norm)
            self.optimizer.step()
        return float(total) / len(plan.batches)

    def _planned(self, rng: np.random.Generator) -> EpochPlan:
        """Return the batches of an epoch."""
        alike = isinstance(self.network, SetAttention)
        plan = plan_epoch(self.data.queries, self.ranker.batch_documents, rng, alike=alike)
        return plan if self.worker_group is None else self.worker_group.share(plan)

    def _resident(self) -> Any:
        """Return steps that run on the device; None if the host must launch them.

        The host must if the loss has no GPU implementation, the rows do not fit on the device, the shapes of batches
        vary (attention), padding would have an effect (batch norm), or other processes take part.
        """
        on_device = self.rows.whole is not None and self.rows.whole.device.type == self.device.type
        by_row = not isinstance(self.network, SetAttention) and self.ranker.norm != "batch"
        if self.objective.gpu_loss is None or self.worker_group is not None or not on_device or not by_row:
            return None
        from toprank.rankers.neural.resident import ResidentSteps

        assert self.rows.whole is not None

        return ResidentSteps(
            self.objective,
            self.rows.whole,
            self.network,
            self.optimizer,
            self.dropout_rng,
            budget=self.ranker.batch_documents,
            max_grad_norm=self.ranker.max_grad_norm,
        )

    def _backward(self, plan: EpochPlan, place: int, judge: Any) -> torch.Tensor:
        """Return the loss of a batch, and leave its gradient in the weights."""
        batch, attention = plan.batches[place], isinstance(self.network, SetAttention)
        layout = QueryTable(plan.queries.sizes[slice(*batch)], self.device) if attention else None
        rows = self.rows.take(plan.rows[plan.documents(batch)])
        loss: torch.Tensor = judge(place, self.network(rows, layout, self.dropout_rng))
        loss.backward()  # type: ignore[no-untyped-call]
        return loss.detach()

    def _backward_together(self, group: WorkerGroup, plan: EpochPlan, place: int, judge: Any) -> float:
        """Return the loss over the shares of all processes; a failure in one must not block the others."""
        first, last = plan.batches[place]
        try:
            loss = float(self._backward(plan, place, judge)) if first < last else 0.0
        except NotFinite:
            loss = math.nan
        return group.add(self.network, loss)

    def scores(self, network: nn.Module, rows: NetworkRows, data: RankingData) -> FloatArray:
        """Return scores of data by a copy of the network for prediction."""
        scores = scores_of(outputs_of(network, rows, data.queries), self.objective.gains)
        if not np.isfinite(scores).all():
            raise NotFinite("A score is not finite.")
        return scores


def _factor(schedule: str, progress: float) -> float:
    """Return the factor of the learning rate after a fraction of the training."""
    return 1.0 if schedule == "constant" else 0.5 * (1.0 + math.cos(math.pi * progress))


def _optimizer(network: nn.Module, ranker: NeuralRanker, device: torch.device) -> torch.optim.Optimizer:
    """Return AdamW with weight decay on matrices only, not on biases and norms."""
    decayed = [weight for weight in network.parameters() if weight.ndim > 1]
    free = [weight for weight in network.parameters() if weight.ndim <= 1]
    groups = [{"params": decayed, "weight_decay": ranker.weight_decay}, {"params": free, "weight_decay": 0.0}]
    if device.type != "cuda":
        return torch.optim.AdamW(groups, lr=ranker.learning_rate, fused=device.type == "cpu")
    rate = torch.tensor(ranker.learning_rate, device=device)  # a tensor, for recorded steps
    return torch.optim.AdamW(groups, lr=rate, fused=True, capturable=True)
