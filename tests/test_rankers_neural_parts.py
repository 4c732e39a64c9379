"""The parts of a network ranker: gradients through the whole stack, batches of whole queries, input transforms."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import toprank as tr
from toprank import losses
from toprank.errors import DataError
from toprank.losses import triton as native_room
from toprank.losses.triton import gpu_loss_names
from toprank.rankers.former_names import upgraded
from toprank.rankers.neural import scoring as neural_scoring
from toprank.rankers.neural.inputs import Inputs, plan_epoch, plan_prediction
from toprank.rankers.neural.objective import NetworkObjective, NotFinite, _gpu_loss, torch_loss
from toprank.rankers.neural.parameters import architecture, check_combination
from toprank.rankers.neural.scoring import chosen_device, torch_threads
from toprank.scorers.networks import Architecture, QueryTable, build, initialize

EXACT = ["ListNet", "ListMLE", "Logistic", "Squared", "ApproxNDCG"]
sizes_of_queries = st.lists(st.integers(1, 9), min_size=1, max_size=12).map(np.array)


def made(network="mlp", *, n_inputs=4, n_outputs=1, seed=0, **options):
    shape = {"hidden": (6, 5), "activation": "tanh", "norm": "none", "dropout": 0.0, "width": 8}
    shape |= {"n_heads": 2, "n_layers": 2} | options
    one = build(Architecture(network=network, n_inputs=n_inputs, n_outputs=n_outputs, **shape))
    initialize(one, torch.Generator().manual_seed(seed))
    return one.double()


@pytest.fixture(autouse=True, scope="module")
def one_thread():
    """Two threads on a handful of documents would only wait for each other."""
    with torch_threads(1):
        yield


@pytest.fixture(scope="module")
def data():
    plain = tr.synthetic(n_queries=7, n_documents=(1, 8), n_features=4, n_grades=3, seed=1)
    rng = np.random.default_rng(0)
    return plain.replace(
        document_weights=rng.uniform(0.5, 2, plain.n_documents), query_weights=rng.uniform(0.5, 2, plain.n_queries)
    )


def bound_to(loss, data):
    return loss.on(data.labels, data.queries, document_weights=data.document_weights, query_weights=data.query_weights)


# ---- the bridge ----


@pytest.mark.parametrize("name", ["ListNet", "LambdaRank", "Hinge", "Multinomial"])
def test_the_bridge_says_what_the_loss_says(data, name):
    loss = losses.Multinomial(n_grades=3) if name == "Multinomial" else losses.make(name)
    bound = bound_to(loss, data)
    shape = (data.n_documents, 3) if name == "Multinomial" else (data.n_documents,)
    scores = torch.from_numpy(np.random.default_rng(2).normal(size=shape)).requires_grad_()
    judged = bound.at(scores.detach().numpy())
    value = torch_loss(bound)(scores)
    (3.0 * value).backward()
    assert float(value.detach()) == judged.value
    np.testing.assert_array_equal(scores.grad.numpy(), 3.0 * judged.grad)
    parts = [torch_loss(bound, first, first + 1)(scores[rows]) for first, rows in enumerate(data.queries)]
    assert sum(float(part.detach()) for part in parts) == pytest.approx(judged.value)


def test_the_bridge_keeps_the_precision_of_the_scores(data):
    scores = torch.zeros(data.n_documents, requires_grad=True)
    value = torch_loss(bound_to(losses.ListNet(), data))(scores)
    value.backward()
    assert value.dtype == scores.grad.dtype == torch.float32


def test_the_bridge_refuses_what_cannot_be_judged(data):
    value = torch_loss(bound_to(losses.ListNet(), data))
    with pytest.raises(DataError, match=f"3 scores for {data.n_documents} documents"):
        value(torch.zeros(3))
    with pytest.raises(NotFinite, match="not finite"):
        value(torch.full((data.n_documents,), torch.nan))


@pytest.mark.parametrize("kind", ["mlp", "attention"])
@pytest.mark.parametrize("outputs", ["score", "grades"])
@pytest.mark.parametrize("name", [*EXACT, "Multinomial"])
def test_gradients_of_all_weights_are_derivatives(data, name, outputs, kind):
    """From the loss through scores, expected gains, attention and layers to every weight, in double precision."""
    if name == "Multinomial" and outputs == "score":
        return
    wanted = {"loss": name, "outputs": outputs, "gpu_loss": False}
    objective = NetworkObjective.from_ranker(tr.NeuralRanker(**wanted), data, torch.device("cpu"), 1)
    network = made(kind, n_outputs=objective.n_outputs, norm="layer", seed=3)
    plan = plan_epoch(data.queries, 10, np.random.default_rng(0), alike=kind == "attention")
    assert len(plan.batches) > 1
    judge = objective.epoch(plan)
    X = torch.from_numpy(np.array(data.X, dtype=np.float64))

    def value():
        """The mean over the batches: the loss on all queries."""
        total = torch.zeros((), dtype=torch.float64)
        for number, batch in enumerate(plan.batches):
            layout = QueryTable(plan.queries.sizes[slice(*batch)])
            total = total + judge(number, network(X[plan.rows[plan.documents(batch)]], layout))
        return total / len(plan.batches)

    value().backward()
    rng, eps = np.random.default_rng(4), 1e-5
    weights = list(network.parameters())
    directions = [torch.from_numpy(rng.normal(size=tuple(weight.shape))) for weight in weights]
    predicted = sum(float((weight.grad * way).sum()) for weight, way in zip(weights, directions, strict=True))
    ends = []
    for sign in (1.0, -2.0):
        with torch.no_grad():
            for weight, way in zip(weights, directions, strict=True):
                weight += sign * eps * way
            ends.append(float(value()))
    assert predicted == pytest.approx((ends[0] - ends[1]) / (2 * eps), rel=1e-4, abs=1e-8)


def test_batches_add_up_to_the_loss_on_all_queries(data):
    wanted = {"loss": "LambdaRank", "outputs": "score", "gpu_loss": False}
    objective = NetworkObjective.from_ranker(tr.NeuralRanker(**wanted), data, torch.device("cpu"), 1)
    scores = np.random.default_rng(0).normal(size=data.n_documents)
    judged = bound_to(losses.LambdaRank(), data).at(scores)
    for budget in (1, 7, 1000):
        plan = plan_epoch(data.queries, budget, np.random.default_rng(budget))
        judge = objective.epoch(plan)
        outputs = torch.from_numpy(scores[plan.rows]).requires_grad_()
        parts = [judge(i, outputs[plan.documents(batch), None]) for i, batch in enumerate(plan.batches)]
        value = sum(parts) / len(parts)
        value.backward()
        assert float(value.detach()) == pytest.approx(judged.value)
        np.testing.assert_allclose(outputs.grad.numpy(), judged.grad[plan.rows], atol=1e-12)


KNOWS_THE_TOP_GRADE = [
    losses.Squared(gain="err"),
    losses.QuerySquared(gain="err"),
    losses.Logistic("margin", gain="err"),
    losses.Multicategory("err"),
    losses.LambdaRank(gain="err"),
    losses.LambdaRank("dcg(gain=err)"),
    losses.ApproxNDCG(gain="err"),
    losses.Hinge(),
    losses.ListNet(),
    losses.ListMLE(ties="efron"),
    losses.LambdaLoss(),
    losses.Multinomial(),
]


@pytest.mark.parametrize("loss", KNOWS_THE_TOP_GRADE, ids=repr)
def test_native_batches_know_what_is_true_of_all_data(data, loss):
    """The top grade in particular: a batch need not hold a document of it."""
    labels = np.minimum(data.labels, 1.0)
    labels[-1] = 4.0
    rare = data.replace(labels=labels)
    outputs = "grades" if loss.traits.space == "class" else "score"
    wanted = {"loss": loss, "outputs": outputs, "gpu_loss": True}
    objective = NetworkObjective.from_ranker(tr.NeuralRanker(**wanted), rare, torch.device("cpu"), 1)
    shape = (rare.n_documents, objective.n_outputs)
    scores = np.random.default_rng(0).normal(size=shape)
    judged = bound_to(objective.loss, rare).at(scores if outputs == "grades" else scores[:, 0])
    plan = plan_epoch(rare.queries, 1, np.random.default_rng(3))
    judge = objective.epoch(plan)
    leaf = torch.from_numpy(scores[plan.rows]).requires_grad_()
    parts = [judge(i, leaf[plan.documents(batch)]) for i, batch in enumerate(plan.batches)]
    value = sum(parts) / len(parts)
    value.backward()
    assert float(value.detach()) == pytest.approx(judged.value, rel=1e-5)
    expected = judged.grad[plan.rows].reshape(shape)
    np.testing.assert_allclose(leaf.grad.numpy(), expected, rtol=1e-4, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", gpu_loss_names())
def test_only_nvidias_gpus_have_kernels(name, monkeypatch):
    """Elsewhere the bridge computes on the CPU."""
    loss, mps = losses.make(name), torch.device("mps")
    monkeypatch.setattr(native_room, "available", lambda device: device.type == "cuda")
    assert _gpu_loss("auto", loss, mps) is None
    assert _gpu_loss("auto", loss, torch.device("cuda")) is not None
    for device in (mps, torch.device("cpu")):
        with pytest.raises(DataError, match="needs an NVIDIA GPU and Triton, but the device is"):
            _gpu_loss(True, loss, device)
    monkeypatch.setattr(native_room, "available", lambda device: False)
    assert _gpu_loss("auto", loss, torch.device("cuda")) is None


def test_processes_on_one_machine_have_a_gpu_each(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    for name in ("auto", "cuda"):
        assert [str(chosen_device(name, place)) for place in range(4)] == ["cuda:0", "cuda:1"] * 2
        assert str(chosen_device(name)) == "cuda"
    assert [str(chosen_device("cuda:1", place)) for place in range(2)] == ["cuda:1"] * 2  # asked for by number
    assert str(chosen_device("cpu", 1)) == "cpu"
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert str(chosen_device("auto", 1)) == "cpu"


# ---- attention ----


@settings(max_examples=25)
@given(sizes=sizes_of_queries, seed=st.integers(0, 1000))
def test_attention_is_equivariant_and_queries_are_strangers(sizes, seed):
    rng = np.random.default_rng(seed)
    network = made("attention", seed=seed)
    X = torch.from_numpy(rng.normal(size=(sizes.sum(), 4)))
    queries = tr.Queries.from_sizes(sizes)
    with torch.no_grad():
        whole = network(X, QueryTable(sizes)).numpy()
        order = np.concatenate([rows.start + rng.permutation(rows.stop - rows.start) for rows in queries])
        np.testing.assert_allclose(network(X[order], QueryTable(sizes)).numpy(), whole[order], atol=1e-12)
        for rows in queries:
            np.testing.assert_allclose(network(X[rows]).numpy(), whole[rows], atol=1e-12)
        away = X.clone()
        away[0] += 1.0
        changed = np.abs(network(away, QueryTable(sizes)).numpy() - whole)[:, 0] > 1e-9
    assert not changed[sizes[0] :].any()
    assert changed[: sizes[0]].all()  # everybody in the query saw it


@given(sizes=sizes_of_queries)
def test_a_layout_gives_back_what_it_was_given(sizes):
    layout = QueryTable(sizes)
    rows = torch.arange(1.0, 1.0 + 2 * sizes.sum()).view(-1, 2)
    table = layout.table(rows)
    assert table.shape == (len(sizes), sizes.max(), 2)
    assert torch.equal(layout.rows(table), rows)
    assert torch.equal(table.abs().sum(dim=2) > 0, layout.present[:, 0, 0])
    assert layout.full == (sizes.min() == sizes.max())


# ---- networks ----


def test_dropout_leaves_out_its_share_and_keeps_the_mean():
    network = made(hidden=(4000,), dropout=0.25)
    rows = torch.ones(1, 4, dtype=torch.float64)
    seen = {}
    network.output.register_forward_pre_hook(lambda _, arguments: seen.update(inner=arguments[0].detach()))
    network(rows)
    whole = seen["inner"]
    network(rows, None, torch.Generator().manual_seed(0))
    dropped = seen["inner"] == 0
    assert dropped.double().mean() == pytest.approx(0.25, abs=0.03)
    torch.testing.assert_close(seen["inner"][~dropped], (whole / 0.75)[~dropped])


def test_norms_do_what_they_say():
    rows = torch.from_numpy(np.random.default_rng(0).normal(2.0, 3.0, size=(500, 4)))
    network = made(norm="batch", hidden=(8,))
    seen = {}
    network.layer[0].register_forward_pre_hook(lambda _, arguments: seen.update(inputs=arguments[0].detach()))
    network.train()
    for _ in range(200):
        network(rows)
    torch.testing.assert_close(seen["inputs"].mean(dim=0), torch.zeros(4).double(), atol=1e-9, rtol=0)
    torch.testing.assert_close(seen["inputs"].std(dim=0), torch.ones(4).double(), atol=2e-3, rtol=0)
    in_training = network(rows).detach()
    before = network.input_norm.running_mean.clone()
    network(rows[:1])  # a single document: no spread
    assert torch.equal(before, network.input_norm.running_mean)
    network.eval()
    torch.testing.assert_close(network(rows).detach(), in_training, atol=1e-2, rtol=0)


def test_weights_come_from_the_generator_alone():
    torch.manual_seed(0)
    state = torch.get_rng_state()
    one, same, other = made(seed=1), made(seed=1), made(seed=2)
    assert torch.equal(state, torch.get_rng_state())
    for name, weight in one.state_dict().items():
        assert torch.equal(weight, same.state_dict()[name])
        assert not torch.equal(weight, other.state_dict()[name])


# ---- batches ----


@given(sizes=sizes_of_queries, budget=st.integers(1, 30), seed=st.integers(0, 100), alike=st.booleans())
def test_batches_are_whole_queries_within_the_budget(sizes, budget, seed, alike):
    queries = tr.Queries.from_sizes(sizes)
    plan = plan_epoch(queries, budget, np.random.default_rng(seed), alike=alike)
    assert sorted(plan.order.tolist()) == list(range(len(sizes)))
    np.testing.assert_array_equal(plan.queries.sizes, sizes[plan.order])
    wanted = np.concatenate([np.arange(queries.n_documents)[list(queries)[q]] for q in plan.order])
    np.testing.assert_array_equal(plan.rows, wanted)
    assert [first for first, _ in plan.batches] == [0, *(last for _, last in plan.batches[:-1])]
    assert plan.batches[-1][1] == len(sizes)
    for first, last in plan.batches:
        inside = plan.queries.sizes[first:last]
        used = inside.max() * len(inside) if alike else inside.sum()
        assert used <= budget or len(inside) == 1  # a query larger than the budget is a batch of its own
        assert plan.documents((first, last)) == slice(*plan.queries.offsets[[first, last]].tolist())


def test_epochs_differ_and_chance_is_even():
    queries = tr.Queries.from_sizes(np.full(20, 3))
    rng = np.random.default_rng(0)
    first = [plan_epoch(queries, 6, rng).order[0] for _ in range(300)]
    assert len(set(first)) == 20
    again = [plan_epoch(queries, 6, np.random.default_rng(7)).order for _ in range(2)]
    np.testing.assert_array_equal(*again)


def padding_waste(plan):
    """Padded places for each document, where every batch is padded to its longest query."""
    sizes = plan.queries.sizes
    padded = sum(int(sizes[first:last].max()) * (last - first) for first, last in plan.batches)
    return padded / plan.queries.n_documents - 1.0


def test_attention_pads_little():
    rng = np.random.default_rng(0)
    heavy = np.minimum(5 * rng.pareto(0.8, 3000) + 5, 1000).astype(np.int64)
    for sizes in (heavy, rng.integers(60, 181, 1000)):
        queries = tr.Queries.from_sizes(sizes)
        assert padding_waste(plan_epoch(queries, 2048, rng, alike=True)) < 0.12
        assert padding_waste(plan_prediction(queries, 2048)) < 0.03
        assert padding_waste(plan_epoch(queries, 2048, rng)) > 0.3


# ---- transforms ----


def test_transforms_are_their_formulas():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(3, 2, 400), -rng.lognormal(1, 1, 400), rng.integers(0, 3, 400), np.ones(400)])
    X[5, 0] = np.nan
    logs = np.sign(X) * np.log(1 + np.abs(X))
    for kind, mapped in (("standard", X), ("log1p", logs)):
        spread = np.nanstd(mapped, axis=0)
        wanted = (mapped - np.nanmean(mapped, axis=0)) / np.where(spread > 1e-12, spread, 1)
        np.testing.assert_allclose(Inputs.from_data(kind, X).rows(X), np.nan_to_num(wanted), atol=1e-5)
    plain = Inputs.from_data("none", X).rows(X)
    np.testing.assert_allclose(plain[6:], X[6:], rtol=1e-6)
    assert plain[5, 0] == pytest.approx(np.nanmean(X[:, 0]), rel=1e-5)


def test_quantiles_are_shares_of_smaller_values():
    rng = np.random.default_rng(0)
    X = np.column_stack([rng.lognormal(3, 2, 501), rng.integers(0, 3, 501).astype(float)])
    X[7, 0] = np.nan
    rows = Inputs.from_data("quantile", X).rows(X).astype(np.float64)
    assert rows[7, 0] == 0.0
    present = np.arange(501) != 7
    values = X[present]
    below = (values[:, None, :] > values[None, :, :]).mean(axis=1)
    same = (values[:, None, :] == values[None, :, :]).mean(axis=1)
    shares = below + same / 2
    wanted = (shares - shares.mean(axis=0)) / shares.std(axis=0)
    np.testing.assert_allclose(rows[present], wanted, atol=0.02)
    np.testing.assert_allclose(rows[present].std(axis=0), 1.0, rtol=1e-3)
    far = Inputs.from_data("quantile", X).rows(np.array([[1e9, 9.0], [-1e9, -9.0]]))
    assert (far[0] >= rows.max(axis=0) - 1e-6).all()
    assert (far[1] <= rows.min(axis=0) + 1e-6).all()


def test_a_feature_that_nobody_has_or_that_never_varies_says_nothing():
    X = np.column_stack([np.full(10, np.nan), np.full(10, 7.0), np.arange(10.0)])
    for kind in ("standard", "log1p", "quantile"):
        rows = Inputs.from_data(kind, X).rows(X)
        assert np.abs(rows[:, :2]).max() < 1e-12
        assert rows[:, 2].any()


def test_the_parameters_are_checked_and_make_a_plain_shape():
    shape = architecture(tr.NeuralRanker(hidden=[np.int64(8), 4], dropout=0), 3, 1)
    assert shape.hidden == (8, 4)
    assert [type(size) for size in (*shape.hidden, shape.dropout)] == [int, int, float]
    with pytest.raises(DataError, match="epochs"):
        check_combination(tr.NeuralRanker(epochs=0))


def test_parameters_are_read_by_their_names_of_before():
    ranker = tr.NeuralRanker("ListNet", hidden=(4,), epochs=1, max_grad_norm=0.5, gpu_loss=False)
    state = ranker.fit(tr.synthetic(n_queries=5, seed=0)).state()
    parameters = state.values["parameters"]
    former = {"clip" if name == "max_grad_norm" else "native" if name == "gpu_loss" else name: value
              for name, value in parameters.items()}  # fmt: skip
    assert former.keys() != parameters.keys()
    metadata = {"kind": "NeuralRanker", "state": {**state.values, "parameters": former}}
    restored = tr.NeuralRanker.restore(state._replace(values=upgraded(metadata)["state"]))
    assert (restored.max_grad_norm, restored.gpu_loss) == (0.5, False)
    metadata["state"]["parameters"] = former | parameters
    with pytest.raises(DataError, match="no parameter"):
        upgraded(metadata)


def test_a_training_goes_by_the_parameters_that_it_began_with():
    """A callback that changes the ranker changes the next training."""
    train = tr.synthetic(n_queries=10, seed=0)
    options = {"hidden": [4], "epochs": 3, "threads": 1}
    ranker = tr.NeuralRanker("ListNet", **options)

    def meddle(_):
        ranker.hidden.append(2)
        ranker.set_params(epochs=1, learning_rate=1e3, loss="Squared", seed=5, callbacks=())

    ranker.callbacks = [meddle]
    ranker.fit(train)
    undisturbed = tr.NeuralRanker("ListNet", **(options | {"hidden": [4]})).fit(train)
    assert ranker.predict(train).tobytes() == undisturbed.predict(train).tobytes()
    assert ranker.as_fitted.epochs == ranker.best_epoch_ == 3


# ---- twins ----


@pytest.mark.parametrize("options", [{}, {"network": "attention"}, {"outputs": "grades", "loss": "Multinomial"}])
@pytest.mark.parametrize("unsteady", [False, True])
def test_equal_rows_of_a_query_get_equal_scores(options, unsteady, monkeypatch):
    """Wherever they stand; `unsteady` networks round by the place of a row, as products of matrices may."""
    train = tr.synthetic(n_queries=30, n_features=5, n_grades=3, seed=0).replace(feature_names=None)
    ranker = tr.NeuralRanker(**{"loss": "ListNet", "epochs": 1, "threads": 1} | options).fit(train)
    if unsteady:
        kind = type(ranker.network_)
        inner = kind.forward

        def forward(self, rows, *more):
            place = torch.arange(len(rows), dtype=torch.float64)[:, None]
            return inner(self, rows, *more) * (1 + place * 2.0**-50)

        monkeypatch.setattr(kind, "forward", forward)
    rng = np.random.default_rng(0)
    distinct = np.round(rng.normal(size=(9, 5)), 1)
    for size in (5, 7, 11, 30, 101):
        which = rng.integers(0, 9, 3 * size)
        X, qid = distinct[which], np.repeat(np.arange(3), size)
        X[::2] = np.where(X[::2] == 0.0, -0.0, X[::2])
        scores = ranker.predict(X, qid=qid)
        groups = {(query, row): set() for query, row in zip(qid.tolist(), which.tolist(), strict=True)}
        for query, row, score in zip(qid.tolist(), which.tolist(), scores.tolist(), strict=True):
            groups[query, row].add(score)
        assert all(len(found) == 1 for found in groups.values())
        assert len(set(scores)) > 3
        data = tr.RankingData(X, rng.integers(0, 3, len(X)), qid=qid)
        back = tr.RankingData(X[::-1], data.labels[::-1], qid=qid[::-1])
        assert tr.evaluate(ranker.predict(data), data, "ndcg@10").mean == pytest.approx(
            tr.evaluate(ranker.predict(back), back, "ndcg@10").mean, abs=1e-12
        )


@given(st.lists(st.sampled_from([-(2**63), -1, 0, 1, 7, 2**62, 2**63 - 1]), max_size=12))
def test_numbers_that_occur_more_than_once_are_found_at_all_their_places(numbers):
    keys = np.array(numbers, np.int64)
    assert neural_scoring._repeated(keys).tolist() == [i for i, one in enumerate(numbers) if numbers.count(one) > 1]


def test_keys_that_clash_make_no_twins(monkeypatch):
    train = tr.synthetic(n_queries=20, n_features=4, seed=0)
    ranker = tr.NeuralRanker("ListNet", hidden=(4,), epochs=1, threads=1).fit(train)
    scores = ranker.predict(train)
    monkeypatch.setattr(neural_scoring, "_keys", lambda rows: np.zeros(len(rows), np.int64))
    np.testing.assert_array_equal(ranker.predict(train), scores)
