"""The half of `clicks.py` that clax runs: it fits a model to sessions in a file of arrays, until it gets no better.

    PYTHON benchmarks/_clax.py SESSIONS.npz PBM BATCH RATE

PYTHON has clax; toprank is not needed. clax gets every advantage: the sessions lie in memory as the arrays it wants,
its step is compiled once and bound to the model, and its seconds are of training alone: neither reading, nor compiling,
nor the likelihood of the held-out sessions after each epoch is among them.
"""

from __future__ import annotations

import json
import resource
import sys
import time
from typing import Any

import clax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

LONGEST = 600  # processor seconds after which it is not waited for
PATIENCE = 3  # epochs without a better likelihood after which it is over


def spent() -> float:
    """Processor seconds of this process, all threads together."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def batch_of(sessions: dict[str, Any], rows: Any) -> dict[str, Any]:
    """Some sessions, as clax has them: documents and positions are numbered from 1, and 0 stands for none."""
    shown = sessions["pair"][rows]
    return {
        "query_doc_ids": shown + 1,
        "positions": np.broadcast_to(np.arange(1, shown.shape[1] + 1, dtype=np.int32), shown.shape),
        "clicks": sessions["clicks"][rows].astype(np.int32),
        "mask": np.ones(shown.shape, dtype=bool),
    }


@nnx.jit
def likelihoods(model: Any, batch: dict[str, Any]) -> Any:
    """The log-likelihood of each session."""
    return -model.compute_loss(batch, aggregate=False).sum(axis=-1)


@nnx.jit
def learn(model: Any, optimizer: Any, batch: dict[str, Any]) -> None:
    """One step along the slope of a batch."""
    _, slopes = nnx.value_and_grad(lambda model: model.compute_loss(batch).mean())(model)
    optimizer.update(slopes)


def held_out_likelihood(model: Any, sessions: dict[str, Any], size: int = 10_000) -> float:
    """Of a held-out impression, in the mean; the last batch is filled up, so that nothing is compiled again."""
    rows = np.flatnonzero(sessions["held_out"])
    parts = [rows[begin : begin + size] for begin in range(0, len(rows), size)]
    values = [np.asarray(likelihoods(model, batch_of(sessions, np.resize(part, size)))) for part in parts]
    together = np.concatenate([value[: len(part)] for value, part in zip(values, parts, strict=True)])
    return float(together.mean(dtype=np.float64)) / sessions["pair"].shape[1]


def model_of(name: str, sessions: dict[str, Any]) -> Any:
    """A model of clax as it comes."""
    pairs, depth, rngs = int(sessions["n_pairs"]), sessions["pair"].shape[1], nnx.Rngs(0)
    if name == "PBM":
        return clax.PositionBasedModel(positions=depth, query_doc_pairs=pairs, rngs=rngs)
    return clax.DynamicBayesianNetwork(query_doc_pairs=pairs, rngs=rngs)


def with_our_parameters(name: str, sessions: dict[str, Any]) -> Any:
    """A model of clax that says what ours says."""
    model = model_of(name, sessions)
    for part in ("attraction", "examination", "satisfaction"):
        if part in sessions:
            theirs, logits = getattr(model, part), np.append(0, logit(sessions[part]))
            theirs.baseline.value = jnp.zeros(1)
            theirs.embeddings.embedding.value = jnp.asarray(logits[:, None], dtype=jnp.float32)
    if "continuation" in sessions:
        model.continuation.weight.value = jnp.asarray(logit(sessions["continuation"]), dtype=jnp.float32)
    return model


def logit(chance: Any) -> Any:
    """What clax learns in place of a probability; 80 is certain in its single precision."""
    with np.errstate(divide="ignore"):
        return np.clip(np.log(chance) - np.log1p(-chance), -80, 80)


def settled(model: Any) -> None:
    """Wait for what was asked of the model."""
    model.attraction.embeddings.embedding.value.block_until_ready()


def main() -> None:
    """Print what was measured as JSON."""
    path, name, size, rate = sys.argv[1], sys.argv[2], int(sys.argv[3]), float(sys.argv[4])
    with np.load(path) as file:
        sessions = dict(file)
    agreed = held_out_likelihood(with_our_parameters(name, sessions), sessions)
    train, model = np.flatnonzero(~sessions["held_out"]), model_of(name, sessions)
    step = nnx.cached_partial(learn, model, nnx.ModelAndOptimizer(model, optax.adamw(rate)))
    used = spent()
    step(batch_of(sessions, train[:size]))
    settled(model)
    compiling = spent() - used
    rng, seconds, processor, epochs = np.random.default_rng(0), 0.0, 0.0, []
    while True:
        start, used = time.perf_counter(), spent()
        order = rng.permutation(train)
        for begin in range(0, len(order) - size + 1, size):
            step(batch_of(sessions, order[begin : begin + size]))
        settled(model)
        seconds, processor = seconds + time.perf_counter() - start, processor + spent() - used
        reached = {"log-likelihood": held_out_likelihood(model, sessions), "seconds": seconds, "processor": processor}
        if hasattr(model, "continuation"):
            reached["continuation"] = float(model.continuation.prob()[0])
        epochs.append(reached)
        best = max(range(len(epochs)), key=lambda number: epochs[number]["log-likelihood"])
        if processor > LONGEST or len(epochs) - 1 - best >= PATIENCE:
            break
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    told = {"epochs": epochs, "best": best, "compiling": compiling, "peak MiB": round(peak)}
    print(json.dumps(told | {"log-likelihood of our parameters": agreed}))


if __name__ == "__main__":
    main()
