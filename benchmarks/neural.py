"""One epoch of a network on a CPU: ragged batches against the padded ones of the usual libraries.

    python benchmarks/neural.py [--documents 200000] [--features 136] [--epochs 3] [--repeats 3] [--threads 2]

Goal: an epoch of an MLP 2 × 128 at least 2 times faster than the padded approach, on 2 CPU threads.

The padded approach is what the usual libraries do: a `DataLoader` collects a number of queries, each padded to the
longest of the batch (or of the whole data, "slate"); rows of padding go through the network, and a mask keeps them out
of the loss, which works on whole tables (for LambdaRank, tables of all pairs). Layers, optimizer and documents per
batch are the same. Trainings take turns and the fastest epoch of each decides, so that a busy machine does little harm.
For GPUs see neural_gpu.py.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.rankers.neural.inputs import EpochPlan, plan_epoch
from toprank.rankers.neural.scoring import torch_threads

GRADES = [0.52, 0.75, 0.93, 0.98]


def sizes_of(kind: str, n: int, rng: np.random.Generator) -> np.ndarray:
    """Even: 60 to 180 documents. Ragged: 5 to 1,000, most of them short."""
    if kind == "even":
        sizes = rng.integers(60, 181, n // 60)
    else:
        sizes = np.clip(30 * rng.pareto(1.1, n // 5) + 5, 5, 1000).astype(np.int64)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n)) + 1]
    sizes[-1] -= sizes.sum() - n
    return sizes[sizes > 0]


def make_data(kind: str, n: int, d: int) -> RankingData:
    rng = np.random.default_rng(0)
    X = rng.normal(size=(n, d)).astype(np.float32)
    truth = X[:, :10] @ rng.normal(size=10) * 0.3 + np.sin(2 * X[:, 10]) + rng.normal(size=n)
    labels = np.digitize(truth, np.quantile(truth, GRADES)).astype(np.float64)
    return RankingData(X, labels, queries=Queries.from_sizes(sizes_of(kind, n, rng)))


# ---- the padded approach ----


def padded_listnet(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    wanted = torch.softmax(labels.masked_fill(~mask, -torch.inf), dim=1)
    logs = torch.log_softmax(scores.masked_fill(~mask, -torch.inf), dim=1)
    return -(wanted * logs.masked_fill(~mask, 0.0)).sum(dim=1).mean()


def padded_lambdarank(scores: Tensor, labels: Tensor, mask: Tensor) -> Tensor:
    order = scores.detach().masked_fill(~mask, -torch.inf).argsort(dim=1, descending=True)
    s, y, real = scores.gather(1, order), labels.gather(1, order), mask.gather(1, order)
    gains = torch.where(real, torch.exp2(y) - 1, 0.0)
    discounts = 1.0 / torch.log2(torch.arange(y.shape[1], dtype=y.dtype) + 2.0)
    ideal = (gains.sort(dim=1, descending=True).values * discounts).sum(dim=1).clamp(min=1e-9)
    delta = (gains[:, :, None] - gains[:, None, :]).abs() * (discounts[:, None] - discounts[None, :]).abs()
    delta = delta / ideal[:, None, None]
    pairs = (y[:, :, None] > y[:, None, :]) & real[:, :, None] & real[:, None, :]
    terms = torch.nn.functional.softplus(-(s[:, :, None] - s[:, None, :]))
    return (terms * delta * pairs).sum(dim=(1, 2)).mean()


PADDED = {"ListNet": padded_listnet, "LambdaRank": padded_lambdarank}


class Padded:
    """Training on padded batches."""

    def __init__(self, data: RankingData, name: str, budget: int, slate: bool) -> None:
        queries = [
            (torch.from_numpy(np.array(data.X[rows])), torch.from_numpy(data.labels[rows].astype(np.float32)))
            for rows in data.queries
        ]
        count = max(1, round(budget / float(data.queries.sizes.mean())))
        rng = torch.Generator().manual_seed(0)
        self.batches = torch.utils.data.DataLoader(
            queries, batch_size=count, shuffle=True, collate_fn=self.collate, generator=rng
        )
        self.longest = int(data.queries.sizes.max()) if slate else 0
        layers = torch.nn.Linear(data.n_features, 128), torch.nn.Linear(128, 128), torch.nn.Linear(128, 1)
        relu = torch.nn.ReLU()
        self.network, self.loss = torch.nn.Sequential(layers[0], relu, layers[1], relu, layers[2]), PADDED[name]
        self.optimizer = torch.optim.AdamW(self.network.parameters(), lr=1e-3, fused=True)

    def collate(self, queries: list[tuple[Tensor, Tensor]]) -> tuple[Tensor, Tensor, Tensor]:
        """Padded features and labels, and which of them are documents."""
        X, labels = self.pad([rows for rows, _ in queries]), self.pad([labels for _, labels in queries])
        sizes = torch.tensor([len(labels) for _, labels in queries])
        return X, labels, torch.arange(X.shape[1])[None, :] < sizes[:, None]

    def pad(self, parts: list[Tensor]) -> Tensor:
        """A table of the queries, zeros at their ends."""
        table = torch.nn.utils.rnn.pad_sequence(parts, batch_first=True)
        more = self.longest - table.shape[1]
        if more > 0:
            table = torch.cat([table, table.new_zeros(table.shape[0], more, *table.shape[2:])], dim=1)
        return table

    def epoch(self) -> float:
        """Seconds of one pass over the data."""
        begin = time.perf_counter()
        for X, labels, mask in self.batches:
            scores = self.network(X).squeeze(2)
            value = self.loss(scores, labels, mask)
            self.optimizer.zero_grad(set_to_none=True)
            value.backward()
            self.optimizer.step()
        return time.perf_counter() - begin


# ---- ours ----


class Ragged:
    """`NeuralRanker`, an epoch at a time: the training goes on in the same run."""

    def __init__(self, data: RankingData, name: str, budget: int, threads: int, epochs: int) -> None:
        self.data, self.epochs = data, epochs
        self.options: dict[str, Any] = {
            "loss": name,
            "hidden": (128, 128),
            "dropout": 0.0,
            "batch_documents": budget,
            "max_grad_norm": None,
            "threads": threads,
            "device": "cpu",
            "epochs": epochs,
        }

    def run(self) -> list[float]:
        """Seconds of each epoch but the first."""
        from toprank.rankers.neural.ranker import NeuralRanker

        stamps: list[float] = []
        NeuralRanker(**self.options, callbacks=[lambda now: stamps.append(now.seconds)]).fit(self.data)
        return np.diff(stamps).tolist()


def padding_waste(plan: EpochPlan) -> float:
    """Padded places for each document, where every batch is padded to its longest query."""
    sizes = plan.queries.sizes
    padded = sum(int(sizes[first:last].max()) * (last - first) for first, last in plan.batches)
    return padded / plan.queries.n_documents - 1.0


def on_cpu(n: int, d: int, budget: int, epochs: int, repeats: int, threads: int) -> None:
    for kind, longest in (("even", "60 to 180"), ("ragged", "5 to 1,000")):
        data = make_data(kind, n, d)
        waste = padding_waste(plan_epoch(data.queries, budget, np.random.default_rng(0)))
        alike = padding_waste(plan_epoch(data.queries, budget, np.random.default_rng(0), alike=True))
        print(f"\n{data.n_queries:,} queries of {longest} documents, {n:,} × {d}, batches of {budget:,} documents")
        print(
            f"  padding to the longest of the batch: {waste:.0%} more rows; by similar length (attention): {alike:.0%}"
        )
        for name in PADDED:
            with torch_threads(threads):
                ours = Ragged(data, name, budget, threads, epochs + 1)
                others = {"batch": Padded(data, name, budget, False), "slate": Padded(data, name, budget, True)}
                times: dict[str, list[float]] = {"ours": [], "batch": [], "slate": []}
                heavy = kind == "ragged" and name == "LambdaRank"  # tables of up to 1,000 × 1,000 pairs: minutes
                for repeat in range(repeats):
                    times["ours"] += ours.run()
                    for which, padded in others.items():
                        if not heavy:
                            times[which] += [padded.epoch() for _ in range(epochs)]
                        elif which == "batch" and repeat == 0:
                            times[which] += [padded.epoch()]
            best = min(times["ours"])
            print(f"  {name:<12} ours {best:6.2f} s an epoch", end="")
            for which, what in (("batch", "padded to the batch"), ("slate", "padded to all")):
                if times[which]:
                    print(f";  {what} {min(times[which]):6.2f} s = {min(times[which]) / best:4.1f} times ours", end="")
            print()


# ---- on a GPU ----


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--documents", type=int, default=200_000)
    parser.add_argument("--features", type=int, default=136)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--batch-documents", type=int, default=4096)
    given = parser.parse_args()
    on_cpu(given.documents, given.features, given.batch_documents, given.epochs, given.repeats, given.threads)
