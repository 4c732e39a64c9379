"""Networks on a GPU by the clock: what a step takes, how much of it the GPU is busy, a whole `fit`, and `predict`.

    python benchmarks/neural_gpu.py [--losses ListNet,LambdaRank] [--native auto] [--documents 2000000] [--predict 0]

Needs an NVIDIA GPU, PyTorch and Triton. A step is timed over whole epochs, the profiler off; the time that the GPU is
busy is the sum of its kernels in one more epoch under the profiler.
"""

from __future__ import annotations

import argparse
import time

import numpy as np
import torch

from toprank.data.dataset import RankingData
from toprank.data.queries import Queries
from toprank.rankers.neural.ranker import NeuralRanker
from toprank.rankers.neural.training import _NetworkRun


def make_data(n: int, d: int, low: int = 60, high: int = 181) -> RankingData:
    rng = np.random.default_rng(0)
    sizes = rng.integers(low, high, n // low)
    sizes = sizes[: int(np.searchsorted(np.cumsum(sizes), n)) + 1]
    sizes[-1] -= sizes.sum() - n
    X = rng.standard_normal((n, d), dtype=np.float32)
    truth = X[:, :10] @ rng.normal(size=10) * 0.3 + rng.normal(size=n)
    labels = np.digitize(truth, np.quantile(truth, [0.52, 0.75, 0.93, 0.98])).astype(np.float64)
    return RankingData(X, labels, queries=Queries.from_sizes(sizes[sizes > 0]))


def step_times(
    data: RankingData, loss: str, budget: int, hidden: tuple[int, ...], native: object
) -> tuple[float, float]:
    """Milliseconds of a step by the clock, and of the GPU's work in it."""
    ranker = NeuralRanker(loss, hidden=hidden, batch_documents=budget, epochs=100, device="cuda", gpu_loss=native)
    run = _NetworkRun(ranker, data, torch.device("cuda"), 4)
    for number in range(3):
        run.epoch(number, 0)
    steps = len(run._planned(np.random.default_rng(0)).batches)
    torch.cuda.synchronize()
    best = np.inf
    for number in range(3, 6):
        begin = time.perf_counter()
        run.epoch(number, 0)
        torch.cuda.synchronize()
        best = min(best, time.perf_counter() - begin)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
        run.epoch(6, 0)
        torch.cuda.synchronize()
    busy = sum(event.self_device_time_total for event in profile.key_averages()) / 1e6
    return 1e3 * best / steps, 1e3 * busy / steps


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--losses", default="ListNet,ListMLE,Logistic,LambdaRank,ApproxNDCG")
    parser.add_argument("--native", default="auto", choices=["auto", "true", "false"])
    parser.add_argument("--documents", type=int, default=2_000_000)
    parser.add_argument("--predict", type=int, default=8_000_000)
    given = parser.parse_args()
    if not torch.cuda.is_available():  # `make bench` runs every script
        print("Nothing is measured: PyTorch finds no NVIDIA GPU.")
        return
    native = {"auto": "auto", "true": True, "false": False}[given.native]
    data = make_data(400_000, 136)
    for budget in (4096, 16384):
        for loss in given.losses.split(","):
            clock, busy = step_times(data, loss, budget, (128, 128), native)
            print(
                f"{loss:12s} {budget:6d} documents: {clock:6.3f} ms a step, GPU busy {busy:6.3f} ms, "
                f"ratio {clock / busy:5.2f}"
            )
    if given.documents:
        data = make_data(given.documents, 136)
        for call in (1, 2):
            begin = time.perf_counter()
            NeuralRanker(
                "LambdaRank", hidden=(256, 256), batch_documents=16384, epochs=3, device="cuda", gpu_loss=native
            ).fit(data)
            print(f"fit, call {call}: {time.perf_counter() - begin:.2f} s")
    for features in (46, 136) if given.predict else ():
        ranker = NeuralRanker("ListNet", epochs=2, device="cuda").fit(make_data(100_000, features))
        data = make_data(given.predict, features)
        times = []
        for _ in range(4):  # the first one warms up
            begin = time.perf_counter()
            ranker.predict(data)
            times.append(time.perf_counter() - begin)
        print(f"predict {given.predict:,} × {features}: {min(times[1:]):.2f} s")


if __name__ == "__main__":
    main()
