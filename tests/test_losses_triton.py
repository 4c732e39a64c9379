"""The losses for GPUs against the reference: value and gradient, for every loss, shape and dtype."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loss_cases import LOSSES, Problem, labels_of_kind, random_scores
from support import interpreted
from toprank import losses
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import Loss

torch = pytest.importorskip("torch", reason="losses for GPUs need PyTorch: pip install 'toprank[neural]'")

pytest.importorskip("triton", reason="losses for GPUs are Triton kernels; it comes with PyTorch for CUDA on Linux")

from toprank.losses import triton as room  # noqa: E402 - only where torch is
from toprank.losses.triton import available, gpu_loss, gpu_loss_names  # noqa: E402

MORE = [
    ("approx-dcg", losses.ApproxMetric("dcg@2", temperature=0.5, gain=(0.0, 1.0, 1.0, 3.0, 5.0)), {"silent": True}),
    ("multicategory-table", losses.Multicategory((0.0, 1.0, 2.0, 4.0, 9.0)), {}),
    ("squared-err-gain", losses.Squared(gain="err", max_grade=5), {}),
    ("logistic-margin-labels", losses.Logistic("margin", gain=None), {"labels": "real", "silent": True}),
    ("logistic-margin-err", losses.Logistic("margin", gain="err"), {"silent": True}),
    ("lambdarank-options", losses.LambdaRank("ndcg@4", truncation=2, sigma=0.3, norm=True), {"silent": True}),
    ("lambdarank-gains", losses.LambdaRank("ndcg(gain=linear,discount=letor)", truncation=3), {"silent": True}),
]
CASES = [case for case in [*LOSSES, *MORE] if gpu_loss(case[1]) is not None]
WITHOUT = [case for case in LOSSES if gpu_loss(case[1]) is None]
SILENT = [case for case in CASES if case[2].get("silent")]
PLAIN = [case for case in CASES if not case[2].get("random")]  # others draw by row
SMOOTH = [case for case in CASES if case[1].traits.smooth and case[1].traits.exact_gradient]
DTYPES = {"float32": (np.float32, 3e-5), "float64": (np.float64, 1e-10)}

every_case = pytest.mark.parametrize(("name", "loss", "options"), CASES, ids=[case[0] for case in CASES])


def tensors(device="cpu", dtype=torch.float64, *arrays):
    return [None if a is None else torch.as_tensor(np.array(a), dtype=dtype, device=device) for a in arrays]


def bound(loss, labels, queries, weights=(None, None), dtype=torch.float64, device="cpu"):
    """Scores of all documents to the mean over queries."""
    offsets = torch.tensor(queries.offsets.copy(), device=device)
    labels, of_documents, of_queries = tensors(device, dtype, labels, *weights)
    frame = room.Frame(labels, offsets, of_documents)
    prepared, scale = gpu_loss(loss)(frame), frame.part.scale if of_queries is None else of_queries
    part = room.BatchPart(frame.part.offsets, scale / scale.sum(), frame.n_documents, frame.part.longest)
    return lambda scores: prepared.value(scores, part, prepared.columns)


def judged(bound_loss, scores, dtype=torch.float64, device="cpu"):
    """Value and gradient of a loss for a GPU."""
    (leaf,) = tensors(device, dtype, scores)
    leaf.requires_grad_()
    value = bound_loss(leaf)
    assert value.shape == ()
    value.backward()
    return value.item(), leaf.grad.double().cpu().numpy()


def agree(value, grad, expected, tolerance):
    assert np.isfinite(value)
    assert np.isfinite(grad).all()
    assert abs(value - expected.value) <= tolerance * max(1.0, abs(expected.value))
    np.testing.assert_allclose(grad, expected.grad, rtol=0, atol=tolerance * max(1e-3, np.abs(expected.grad).max()))


def same_as_reference(loss, labels, queries, scores, weights, kind, device="cpu"):
    """The reference works in float64 on the very numbers that it is given."""
    dtype, tolerance = DTYPES[kind]
    if device == "cuda":
        tolerance = max(tolerance, 1e-6)  # a compiled kernel takes its constants in single precision
    labels, scores = (np.asarray(array, dtype=dtype).astype(np.float64) for array in (labels, scores))
    weights = [None if w is None else np.asarray(w, dtype=dtype).astype(np.float64) for w in weights]
    expected = loss.on(labels, queries, document_weights=weights[0], query_weights=weights[1]).at(scores)
    work = getattr(torch, kind)
    made = bound(loss, labels, queries, weights, work, device)
    # A sum of exponentials of scores cannot be more exact than the scores themselves.
    spacing = 8 * np.finfo(np.float64).eps * max(1.0, np.abs(scores).max())
    agree(*judged(made, scores, work, device), expected, tolerance + spacing)


@st.composite
def problems(draw, options):
    """Ragged labels, scores and weights: one-document queries, ties of either kind, scores far apart."""
    sizes = draw(st.lists(st.integers(1, 8), min_size=1, max_size=6))
    n, rng = sum(sizes), np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    kind = options.get("labels", "graded")
    labels = labels_of_kind(kind, max(n, 5), rng)[:n]
    if kind != "real":
        labels = np.minimum(labels, draw(st.integers(0, 4)))
    scores = random_scores(rng, n, options)
    scores = {"near": scores, "tied": np.round(scores), "equal": 0 * scores, "far": np.round(scores) * 1e8}[
        draw(st.sampled_from(["near", "tied", "equal", "far"]))
    ]
    weights = [rng.uniform(0.2, 2.0, n) * rng.integers(0, 3, n), rng.uniform(0.2, 2.0, len(sizes))]
    weights = [w if draw(st.booleans()) and w.any() else None for w in weights]
    return labels, Queries.from_sizes(sizes), scores, weights


def usable(loss, labels):
    """A multinomial likelihood without n_grades takes as many columns as there are grades: here always five."""
    return losses.Multinomial(n_grades=5) if loss == losses.Multinomial() else loss


@interpreted
@pytest.mark.parametrize("kind", DTYPES)
@every_case
@settings(max_examples=2, deadline=None)  # the interpreter takes its time
@given(data=st.data())
def test_value_and_gradient_are_the_references(name, loss, options, kind, data):
    labels, queries, scores, weights = data.draw(problems(options))
    same_as_reference(usable(loss, labels), labels, queries, scores, weights, kind)


@interpreted
@every_case
def test_queries_of_several_blocks_give_the_same(name, loss, options):
    """Long and short queries together: none fills its last block of rows or columns."""
    rng, queries = np.random.default_rng(5), Queries.from_sizes([1, 33, 2, 71])
    n = queries.n_documents
    labels, scores = labels_of_kind(options.get("labels", "graded"), n, rng), random_scores(rng, n, options)
    scores[20:40] = np.round(scores[20:40])
    weights = [rng.uniform(0.5, 2.0, n), None]
    same_as_reference(loss, labels, queries, scores, weights, "float64")


@interpreted
@every_case
def test_a_part_with_room_to_spare_gives_the_same(name, loss, options):
    """What a recorded step sees: columns gathered by row, empty queries at the end, rows that belong to nobody."""
    problem = Problem.of(loss, options)
    loss = usable(loss, problem.labels)
    labels, scores = tensors("cpu", torch.float64, problem.labels, problem.scores)
    queries, offsets = problem.queries, torch.tensor(problem.queries.offsets.copy())
    frame = room.Frame(labels, offsets)
    whole = gpu_loss(loss)(frame)
    _, grad = whole.evaluate(scores, frame.part, whole.columns)
    chosen, n = range(len(queries) - 1, -1, -6), queries.n_documents  # each costs a run of the interpreter
    rows = np.concatenate([np.arange(*queries.offsets[q : q + 2]) for q in chosen])
    expected = sum(whole.evaluate(*alone(whole, scores, queries, q))[0] for q in chosen)
    ends = np.cumsum([0, *(queries.sizes[q] for q in chosen)])
    spare = torch.tensor([*rows, 0, 0, 0])
    part = room.BatchPart(
        torch.tensor([*ends, ends[-1], ends[-1]]),
        torch.tensor([1.0] * len(chosen) + [0.0, 0.0], dtype=torch.float64),
        len(spare),
        int(queries.sizes.max()),
    )
    found, slopes = whole.evaluate(scores[spare], part, whole.take(spare))
    assert n == len(grad)
    torch.testing.assert_close(found, expected, rtol=1e-10, atol=1e-12)
    torch.testing.assert_close(slopes[: len(rows)], grad[rows], rtol=1e-10, atol=1e-12)
    assert not slopes[len(rows) :].any()


def alone(whole, scores, queries, q):
    """One query as a part of its own."""
    rows = torch.arange(*queries.offsets[q : q + 2])
    offsets = torch.tensor([0, len(rows)])
    return scores[rows], room.BatchPart(offsets, scores.new_ones(1), len(rows), len(rows)), whole.take(rows)


@interpreted
@pytest.mark.parametrize(("name", "loss", "options"), PLAIN, ids=[case[0] for case in PLAIN])
def test_a_batch_is_the_mean_of_its_queries(name, loss, options):
    problem = Problem.of(loss, options)
    loss = usable(loss, problem.labels) if loss == losses.Multinomial() else loss
    if name in ("logistic-margin-err", "squared-err-gain"):
        loss = type(loss)(**{**vars(loss), "max_grade": 5.0})  # else the top grade is the largest of the batch
    # Queries of 5, 1 and 7 documents: enough to tell a mean from a sum, and each costs a run of the interpreter.
    queries = Queries(problem.queries.offsets[:4])
    labels, scores = problem.labels[: queries.n_documents], problem.scores[: queries.n_documents]
    value, grad = judged(bound(loss, labels, queries), scores)
    alone = [judged(bound(loss, labels[rows], Queries([0, rows.stop - rows.start])), scores[rows]) for rows in queries]
    np.testing.assert_allclose(value, np.mean([v for v, _ in alone]), rtol=1e-10)
    np.testing.assert_allclose(grad, np.concatenate([g for _, g in alone]) / len(queries), atol=1e-10)


@interpreted
@pytest.mark.parametrize(("name", "loss", "options"), SILENT, ids=[case[0] for case in SILENT])
def test_queries_that_say_nothing_contribute_nothing(name, loss, options):
    queries = Queries.from_sizes([1, 4, 3])
    labels, scores = np.array([1.0, 1, 1, 1, 1, 1, 0, 0]), np.array([3.0, 1e8, -1e8, 2, 2, 0, 0.1, 0.2])
    value, grad = judged(bound(loss, labels, queries), scores)
    only, _ = judged(bound(loss, labels[5:], Queries([0, 3])), scores[5:])
    assert not grad[:5].any()
    assert grad[5:].any()
    np.testing.assert_allclose(value, only / 3, rtol=1e-12)


@interpreted
@pytest.mark.parametrize(("name", "loss", "options"), SMOOTH, ids=[case[0] for case in SMOOTH])
def test_autograd_agrees_with_finite_differences(name, loss, options):
    """Along a random direction, which any wrong element would show: the interpreter is slow for one a document."""
    problem, rng, step = Problem.of(loss, options), np.random.default_rng(3), 1e-6
    made = bound(loss, problem.labels, problem.queries, (problem.document_weights, None))
    _, grad = judged(made, problem.scores)
    direction = rng.normal(size=problem.scores.shape)
    ends = [float(made(*tensors("cpu", torch.float64, problem.scores + s * direction))) for s in (step, -step)]
    assert (ends[0] - ends[1]) / (2 * step) == pytest.approx((grad * direction).sum(), rel=1e-5, abs=1e-6)


@interpreted
@pytest.mark.parametrize("loss", [losses.ListNet(), losses.ListMLE(), losses.LambdaRank()], ids=str)
def test_it_is_a_node_like_any_other(loss):
    labels, queries = np.array([2.0, 0, 1]), Queries([0, 3])
    made = bound(loss, labels, queries, dtype=torch.float32)
    value, grad = judged(made, [0.5, 0.25, -1.0], torch.float32)
    leaf = torch.tensor([0.5, 0.25, -1.0], requires_grad=True)
    (3.0 * made(2.0 * leaf / 2.0)).backward()  # a chain before and after it
    np.testing.assert_allclose(leaf.grad.numpy(), 3.0 * grad, rtol=1e-5)
    coarse = torch.tensor([0.5, 0.25, -1.0], dtype=torch.bfloat16, requires_grad=True)
    made(coarse).backward()
    assert coarse.grad.dtype == torch.bfloat16
    np.testing.assert_allclose(coarse.grad.float().numpy(), grad, atol=0.01 * np.abs(grad).max())
    with torch.no_grad():
        assert float(made(leaf)) == value


@interpreted
def test_whole_number_labels_are_taken_as_float32():
    made = bound(losses.ListNet(), [1, 0], Queries([0, 2]), dtype=torch.int64)
    assert made(torch.zeros(2, dtype=torch.float64)).dtype == torch.float32


# --- where there is none --------------------------------------------------------------------------------------------


def test_the_common_losses_have_a_native_version():
    assert set(gpu_loss_names()) <= set(losses.names())
    for name in gpu_loss_names():
        assert gpu_loss(losses.make(name)) is not None


@pytest.mark.parametrize(("name", "loss", "options"), WITHOUT, ids=[case[0] for case in WITHOUT])
def test_the_others_have_none(name, loss, options):
    """Only these hyper-parameters keep a loss with a version for GPUs from having one."""
    exceptions = {
        "ListNet": loss.__dict__.get("top_k") != 1,
        "LambdaRank": loss.__dict__.get("metric") != "ndcg",
        "ApproxMetric": loss.__dict__.get("metric") != "ndcg",
        "ListMLE": loss.__dict__.get("ties") in ("random", "file"),
        "CostSensitiveListMLE": loss.__dict__.get("ties") in ("random", "file"),
        "PListMLE": loss.__dict__.get("ties") in ("random", "file") or loss.__dict__.get("discount") == "published",
    }
    kind = type(loss).__name__
    assert kind not in gpu_loss_names() or exceptions[kind]


class Louder(losses.ListNet):
    """A loss of the user: what `bind` does is their business."""


@pytest.mark.parametrize(
    "loss",
    [
        losses.ListNet(top_k=None),
        losses.Multicategory(np.sqrt),
        losses.Logistic("margin", gain=np.sqrt),
        losses.LambdaRank(gain=np.sqrt),
        losses.LambdaRank("ndcg", gain=np.sqrt, truncation=3),
        losses.ApproxNDCG(gain=np.sqrt),
        losses.ApproxMetric("ndcg(discount=letor)"),
        losses.Squared(gain=np.sqrt),
        losses.Exponential(),
        Louder(),
    ],
    ids=repr,
)
def test_hyper_parameters_without_a_native_version_give_none(loss):
    assert isinstance(loss, Loss)
    assert gpu_loss(loss) is None


def test_scores_without_a_column_for_each_grade_are_refused_in_a_sentence():
    with pytest.raises(DataError, match="needs scores with 3 columns"):
        bound(losses.Multinomial(n_grades=3), [1, 0], Queries([0, 2]))(torch.zeros(2, 2))
    with pytest.raises(DataError, match="as many columns as there are grades"):
        bound(losses.Multinomial(), [1, 0], Queries([0, 2]))(torch.zeros(2))


# --- on a GPU -------------------------------------------------------------------------------------------------------


def test_a_triton_that_fails_is_named_and_done_without(monkeypatch):
    """No C compiler, an old GPU: the losses must go on, and say why they are slow."""

    def broken(*_):
        raise OSError("no compiler")

    monkeypatch.setattr(room, "by_rank", broken)
    with pytest.warns(RuntimeWarning, match="Triton is installed but does not work here"):
        assert available.__wrapped__(torch.device("cpu")) is False


def test_without_a_gpu_there_are_no_kernels(monkeypatch):
    monkeypatch.setattr(room, "interpreted", lambda: False)
    assert available.__wrapped__(torch.device("cpu")) is False


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@pytest.mark.parametrize("kind", DTYPES)
@every_case
def test_a_gpu_agrees_with_the_reference(name, loss, options, kind):
    assert available(torch.device("cuda"))
    problem, rng = Problem.of(loss, options), np.random.default_rng(7)
    long = Queries.from_sizes([150, 1, 33, 64, 90, 3])  # several blocks of documents, and none that is full
    labels = labels_of_kind(options.get("labels", "graded"), long.n_documents, rng)
    generic = random_scores(rng, long.n_documents, options)
    for scores in (generic, np.round(generic), np.round(generic) * 1e8, 0 * generic):
        for weights in ([None, None], [rng.uniform(0.2, 2.0, len(labels)), rng.uniform(0.2, 2.0, 6)]):
            same_as_reference(loss, labels, long, scores, weights, kind, "cuda")
    same_as_reference(loss, problem.labels, problem.queries, problem.scores, [None, None], kind, "cuda")


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@every_case
def test_a_gpu_gives_the_same_bits_again(name, loss, options):
    problem = Problem.of(loss, options)
    made = bound(loss, problem.labels, problem.queries, (None, None), torch.float32, "cuda")
    (value, grad), (again, gradient) = (judged(made, problem.scores, torch.float32, "cuda") for _ in range(2))
    assert value == again
    assert (grad == gradient).all()
