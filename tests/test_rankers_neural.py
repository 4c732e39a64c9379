"""Networks: trained for what the loss says, on whole queries, keeping what validation prefers."""

from __future__ import annotations

import re
import sys
import threading
import zipfile

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import toprank as tr
from forecasts import check_calibration, check_forecasts
from support import interpreted
from toprank import losses
from toprank.errors import DataError, FormatError, MissingExtraError, UnknownNameError
from toprank.losses.triton import gpu_loss_names
from toprank.rankers.base import ConstantScoresWarning, ConvergenceWarning
from toprank.rankers.early_stopping import EpochStopping
from toprank.rankers.neural import resident as neural_resident
from toprank.rankers.neural import training as neural_training
from toprank.rankers.neural.scoring import chosen_device, threads_for, torch_threads

GAINS = np.array([0.0, 1.0, 3.0])


def network(loss="LambdaRank", **options):
    """A small, fast ranker. One thread: on small data two would wait for each other."""
    small = {"hidden": (16,), "width": 8, "n_heads": 2, "n_layers": 1, "epochs": 5, "threads": 1, "device": "cpu"}
    return tr.NeuralRanker(loss, **small | options)


@pytest.fixture(scope="module")
def data():
    return tr.synthetic(
        n_queries=60, n_documents=(1, 15), n_features=4, n_grades=3, truth="nonlinear", noise=0.3, seed=3
    )


@pytest.fixture(scope="module")
def halves():
    whole = tr.synthetic(n_queries=200, n_documents=(5, 20), n_features=5, n_grades=4, truth="nonlinear", seed=1)
    return tr.split(whole, (0.6, 0.4))


def ndcg(ranker, data):
    return tr.evaluate(ranker.predict(data), data).mean["ndcg@10"]


# ---- what is learned ----


@pytest.mark.parametrize("outputs", ["score", "grades"])
@pytest.mark.parametrize("name", ["LambdaRank", "Squared", "Multinomial"])
def test_a_network_sees_what_a_line_does_not(name, outputs):
    whole = tr.synthetic(n_queries=300, n_documents=(5, 20), n_features=3, n_grades=3, truth="nonlinear", seed=2)
    train, test = tr.split(whole, (0.6, 0.4))
    if name == "Multinomial" and outputs == "score":
        with pytest.raises(DataError, match="outputs='grades'"):
            network(name).fit(train)
        return
    options = {"hidden": (32, 16), "epochs": 15, "batch_documents": 128, "learning_rate": 0.01}
    ranker = network(name, outputs=outputs, **options).fit(train)
    assert ndcg(ranker, test) > ndcg(tr.LinearRanker("ListNet").fit(train), test) + 0.03
    assert ranker.history_["loss"][-1] < ranker.history_["loss"][0]


def test_attention_learns_what_depends_on_the_other_documents():
    """Relevant is who lies nearest to the query's mean: no function of a document's own features."""
    rng = np.random.default_rng(0)
    n_queries, size = 300, 10
    X = rng.normal(size=(n_queries, size, 2)) + 3 * rng.normal(size=(n_queries, 1, 2))
    far = np.linalg.norm(X - X.mean(axis=1, keepdims=True), axis=2)
    labels = (far.argsort(axis=1).argsort(axis=1) < 3).astype(float)
    qid = np.repeat(np.arange(n_queries), size)
    train, test = tr.split(tr.RankingData(X.reshape(-1, 2), labels.ravel(), qid=qid), (0.7, 0.3))
    shared = {"epochs": 15, "learning_rate": 0.01, "batch_documents": 200, "dropout": 0.0}
    together = network("ListNet", network="attention", width=16, **shared).fit(train)
    alone = network("ListNet", hidden=(32, 32), **shared).fit(train)
    assert ndcg(together, test) > ndcg(alone, test) + 0.2


def test_grade_outputs_are_probabilities(halves):
    train, test = halves
    ranker = network("Multinomial", outputs="grades", epochs=15, learning_rate=0.01, batch_documents=256).fit(train)
    chances = ranker.predict_proba(test)
    assert chances.shape == (test.n_documents, 4)
    np.testing.assert_allclose(chances.sum(axis=1), 1.0)
    np.testing.assert_allclose(ranker.predict(test), chances @ (2.0 ** np.arange(4) - 1))
    labels = test.labels.astype(int)
    shares = np.bincount(train.labels.astype(int)) / train.n_documents
    assert np.log(chances[np.arange(len(labels)), labels]).mean() > np.log(shares[labels]).mean() + 0.05
    with pytest.raises(AttributeError, match="predict_proba"):
        _ = network().fit(train).predict_proba
    assert not hasattr(network().fit(train), "expected_dcg")
    assert not hasattr(network(outputs="grades"), "classes_")  # not fitted


def test_what_to_expect_of_grades(halves):
    train, test = halves
    check_forecasts(network("Multinomial", outputs="grades", learning_rate=0.01).fit(train), test)


def test_grades_under_a_ranking_loss_are_calibrated(halves, tmp_path):
    train, rest = halves
    held_out, test = tr.split(rest, (0.5, 0.5))
    ranker = network("ListNet", outputs="grades", learning_rate=0.01).fit(train)
    check_calibration(ranker, held_out, test, tmp_path / "m.toprank")
    assert not hasattr(network().fit(train), "calibrate")


@pytest.mark.parametrize("loss", ["LambdaRank", "Squared"])
def test_labels_that_are_all_alike_are_said(data, loss):
    with pytest.warns(ConstantScoresWarning, match="all training documents have the label 1"):
        network(loss, epochs=1).fit(data.replace(labels=np.ones(data.n_documents)))


@interpreted
def test_kernels_of_the_gpu_and_the_bridge_train_the_same_network(data):
    train, test = tr.split(data, (0.6, 0.4))
    heavy = train.replace(
        document_weights=np.random.default_rng(0).uniform(0.5, 2, train.n_documents),
        query_weights=np.random.default_rng(1).uniform(0.0, 2, train.n_queries),
    )
    options = {"batch_documents": 100, "dropout": 0.0, "epochs": 3}
    reference = network("ListMLE", gpu_loss=False, **options).fit(heavy)
    ranker = network("ListMLE", gpu_loss=True, **options).fit(heavy)
    np.testing.assert_array_equal(  # on a CPU the bridge is what "auto" means
        network("ListMLE", **options).fit(heavy).predict(test), reference.predict(test)
    )
    np.testing.assert_allclose(ranker.history_["loss"], reference.history_["loss"], rtol=1e-4)
    np.testing.assert_allclose(ranker.predict(test), reference.predict(test), atol=1e-3)


@interpreted
@pytest.mark.parametrize("loss", ["LambdaRank", "XENDCG", "Squared"])
def test_steps_of_the_device_are_those_of_the_host(data, loss, monkeypatch):
    """Batches with rows and queries to spare, planned on the device, against the very batches one by one."""
    train, test = tr.split(data, (0.6, 0.4))
    heavy = train.replace(query_weights=np.random.default_rng(1).uniform(0.0, 2, train.n_queries))
    options = {"gpu_loss": True, "epochs": 3, "dropout": 0.0, "batch_documents": 80}
    by_device = network(loss, **options).fit(heavy)
    with monkeypatch.context() as patch:
        patch.setattr(neural_training._NetworkRun, "_resident", lambda self: None)
        by_host = network(loss, **options).fit(heavy)
    np.testing.assert_allclose(by_device.history_["loss"], by_host.history_["loss"], rtol=1e-5)
    np.testing.assert_allclose(by_device.predict(test), by_host.predict(test), atol=1e-4)


@pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no CUDA device on this machine")
@pytest.mark.parametrize("dropout", [0.0, 0.3])
@pytest.mark.parametrize("loss", gpu_loss_names())
def test_recorded_steps_are_those_taken_one_by_one(halves, loss, dropout, monkeypatch):
    train, _ = halves
    outputs = "grades" if loss == "Multinomial" else "score"
    options = {"device": "cuda", "epochs": 4, "dropout": dropout, "batch_documents": 100, "outputs": outputs}
    recorded = network(loss, **options).fit(train)
    monkeypatch.setattr(neural_resident, "_N_WARMUP_STEPS", 10**9)
    taken = network(loss, **options).fit(train)
    np.testing.assert_allclose(recorded.history_["loss"], taken.history_["loss"], rtol=1e-6)
    np.testing.assert_allclose(recorded.predict(train), taken.predict(train), atol=1e-5)


@interpreted
def test_the_mean_over_queries_does_not_depend_on_the_batches(data):
    """With a vanishing learning rate the reported loss is the loss of the model, whatever the batches."""
    train, _ = tr.split(data, (0.6, 0.4))
    for gpu_loss in (True, False):
        for budget in (1, 100, 10**6):
            options = {"epochs": 1, "dropout": 0.0, "learning_rate": 1e-30, "gpu_loss": gpu_loss}
            ranker = network("ListNet", batch_documents=budget, **options).fit(train)
            value = losses.ListNet().on(train.labels, train.queries).at(ranker.predict(train)).value
            assert ranker.history_["loss"][0] == pytest.approx(value, rel=1e-5)


def test_constants_come_first(data):
    """Where the loss minds shifts the network starts at the best constant; grades start at their shares."""
    nothing = {"epochs": 1, "learning_rate": 1e-30}
    ranker = network("Squared", **nothing).fit(data)
    bias = float(ranker.network_.output.bias[0])
    bound = losses.Squared().on(data.labels, data.queries)
    around = [bound.at(np.full(data.n_documents, bias + shift)).value for shift in (-0.01, 0.0, 0.01)]
    assert min(around) == around[1]
    grades = network("Multinomial", outputs="grades", **nothing).fit(data)
    shares = np.bincount(data.labels.astype(int)) + 1.0
    chances = np.exp(grades.network_.output.bias.numpy())
    np.testing.assert_allclose(chances / chances.sum(), shares / shares.sum(), rtol=1e-5)


@pytest.mark.filterwarnings("ignore::toprank.rankers.base.ConstantScoresWarning")
@pytest.mark.parametrize("kind", ["mlp", "attention"])
def test_queries_of_one_document_or_one_grade_do_no_harm(kind):
    X = np.random.default_rng(0).normal(size=(12, 3))
    qid = [0, 1, 2, 2, 2, 3, 3, 3, 3, 4, 5, 5]
    for labels in (np.zeros(12), np.arange(12) % 3 * 1.0):
        for name in ("LambdaRank", "ListNet", "Squared", "ListMLE"):
            ranker = network(name, network=kind, batch_documents=1, norm="batch").fit(X, labels, qid=qid)
            assert np.isfinite(ranker.predict(X, qid=qid)).all()


def test_labels_beyond_31(data):
    high = data.replace(labels=data.labels * 30)
    for loss in ("LambdaRank", "Squared", "ListNet"):
        assert np.isfinite(network(loss).fit(high).predict(high)).all()


# ---- epochs ----


def test_early_stopping_keeps_the_best_epoch(halves):
    train, valid = halves
    ranker = network(epochs=60, early_stopping=3, learning_rate=0.02, eval_train=True).fit(train, valid=valid)
    judged = ranker.history_["valid"]
    assert len(judged) < 60
    assert ranker.best_epoch_ == np.argmax(judged) + 1 == len(judged) - 3
    assert ranker.history_["epoch"] == list(range(1, len(judged) + 1))
    assert len(ranker.history_["train"]) == len(ranker.history_["loss"]) == len(judged)
    assert "3 epochs" in ranker.stopped_
    assert ndcg(ranker, valid) == pytest.approx(max(judged), abs=1e-12)
    assert ranker.training_["valid"] == {"ndcg@10": max(judged), "convention": "standard"}
    assert ranker.path_ == [{"epochs": ranker.best_epoch_, "interrupted": False, "valid": max(judged)}]


def test_metric_convention_and_direction_are_ours(halves):
    train, valid = halves
    ranker = network(metric="owa", convention="letor4", early_stopping=3, epochs=8).fit(train, valid=valid)
    judged = ranker.history_["valid"]
    assert ranker.best_epoch_ == np.argmin(judged) + 1
    expected = tr.evaluate(ranker.predict(valid), valid, "owa", convention="letor4").mean["owa"]
    assert min(judged) == pytest.approx(expected)


def test_without_early_stopping_the_last_epoch_is_kept(halves):
    train, valid = halves
    ranker = network(early_stopping=None, eval_train=True).fit(train, valid=valid)
    assert ranker.best_epoch_ == 5
    assert ranker.stopped_ == "All 5 epochs were completed."
    np.testing.assert_array_equal(ranker.predict(valid), network().fit(train).predict(valid))
    assert ranker.history_["train"][-1] == pytest.approx(ndcg(ranker, train), abs=1e-12)


def test_continued_training_starts_where_the_other_ended(halves):
    train, valid = halves
    first = network("Squared", dropout=0.0).fit(train)
    still = network("Squared", dropout=0.0, init_model=first, epochs=1, learning_rate=1e-30).fit(train)
    np.testing.assert_allclose(still.predict(valid), first.predict(valid), rtol=1e-6)
    assert still.best_epoch_ == 6
    then = network("Squared", init_model=first, epochs=3, input_transform="log1p").fit(train, valid=valid)
    assert then.history_["epoch"] == [6, 7, 8]
    assert then.network_.shape.dropout == then.dropout != first.dropout
    assert then.history_["loss"][-1] < first.history_["loss"][-1]


@pytest.mark.parametrize("target_encoding", [False, ["brand"]])
def test_training_on_categories_goes_on_with_the_columns_of_their_levels(target_encoding):
    rng = np.random.default_rng(0)
    brands, price = rng.integers(0, 3, 300), rng.normal(size=300)
    table = pd.DataFrame({"qid": np.arange(300) // 10, "price": price, "brand": np.array(["a", "b", "c"])[brands]})
    data = tr.RankingData.from_frame(table.assign(label=(price + brands > 1).astype(float)), label="label", qid="qid")
    train, valid = tr.split(data, (0.7, 0.3))
    first = network(target_encoding=target_encoding).fit(train, valid=valid)
    then = network(target_encoding=target_encoding, init_model=first, epochs=1, learning_rate=1e-30).fit(
        train, valid=valid
    )
    assert then.history_["epoch"] == [first.best_epoch_ + 1]
    assert then.training_["valid"]["ndcg@10"] == pytest.approx(ndcg(then, valid), abs=1e-12)
    np.testing.assert_allclose(then.predict(valid), first.predict(valid), rtol=1e-5)


def test_a_model_that_cannot_be_improved_stays_as_it_is(halves):
    train, valid = halves
    first = network(epochs=20, learning_rate=0.01).fit(train, valid=valid)
    worse = train.replace(labels=train.labels.max() - train.labels)
    then = network(init_model=first, early_stopping=2).fit(worse, valid=valid)
    assert then.best_epoch_ == first.best_epoch_
    np.testing.assert_array_equal(then.predict(valid), first.predict(valid))


def test_callbacks_see_every_epoch_and_may_end_the_training(halves):
    seen = []

    def watch(now):
        seen.append(now)
        return now.number == 3

    ranker = network(callbacks=[watch], eval_train=True).fit(halves[0], valid=halves[1])
    assert [now.number for now in seen] == [1, 2, 3]
    for name in ("loss", "train", "valid"):
        assert [getattr(now, name) for now in seen] == ranker.history_[name]
    assert seen[-1].last == 5
    assert np.isnan(seen[0].seconds_left)
    assert seen[-1].seconds_left == pytest.approx((seen[-1].seconds - seen[0].seconds) / 2 * 2)
    assert "callback" in ranker.stopped_


@pytest.mark.parametrize("gpu_loss", [True, False])
def test_a_loss_that_draws_draws_anew_in_each_epoch(data, gpu_loss):
    one = tr.RankingData(data.X[:12], data.labels[:12])
    options = {"gpu_loss": gpu_loss, "epochs": 3, "learning_rate": 1e-30, "dropout": 0.0}
    drawn = network("XENDCG", **options).fit(one).history_["loss"]
    assert len(set(drawn)) == 3
    assert network("XENDCG", **options).fit(one).history_["loss"] == drawn
    assert network(losses.XENDCG(seed=1), **options).fit(one).history_["loss"] != drawn
    assert len(set(network(losses.XENDCG(gamma=0.5), **options).fit(one).history_["loss"])) == 1


@pytest.mark.parametrize("with_valid", [True, False])
def test_an_interrupt_keeps_the_best_so_far(halves, with_valid, monkeypatch):
    train, valid = halves
    epoch = neural_training._NetworkRun.epoch

    def interrupt(self, number, first):
        if number == 4:
            raise KeyboardInterrupt
        return epoch(self, number, first)

    monkeypatch.setattr(neural_training._NetworkRun, "epoch", interrupt)
    options = {"epochs": 30, "schedule": "constant"}
    with pytest.warns(ConvergenceWarning, match="Interrupted after 4 epochs"):
        ranker = network(**options).fit(train, valid=valid if with_valid else None)
    monkeypatch.undo()
    kept = int(np.argmax(ranker.history_["valid"])) + 1 if with_valid else 4
    assert ranker.best_epoch_ == kept
    assert ranker.path_[0]["interrupted"]
    whole = network(**options | {"epochs": kept}).fit(train)
    np.testing.assert_array_equal(ranker.predict(valid), whole.predict(valid))


def test_an_interrupt_before_the_first_epoch_ends_is_passed_on(halves, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(neural_training._NetworkRun, "epoch", interrupt)
    with pytest.raises(KeyboardInterrupt):
        network().fit(halves[0])


def test_an_epoch_counts_only_with_its_weights():
    class Interrupting:
        def keys(self):
            raise KeyboardInterrupt

    def interrupt(now):
        raise KeyboardInterrupt

    watch = EpochStopping(steps=3, callbacks=[interrupt])
    with pytest.raises(KeyboardInterrupt):
        watch.note(Interrupting(), "weights", loss=1.0)
    assert not watch.has_completed_step
    with pytest.raises(KeyboardInterrupt):
        watch.note({"valid": 0.5}, "weights", loss=1.0)
    assert watch.kept() == ("weights", 1, 0.5)
    assert watch.history == {"epoch": [1], "loss": [1.0], "valid": [0.5]}


def test_a_diverging_training_says_so(halves):
    train, _ = halves
    wild = {"learning_rate": 1e30, "schedule": "constant"}
    for gpu_loss in (True, False):
        with pytest.raises(DataError, match=r"diverges: in epoch . the scores or the loss"):
            network("Squared", gpu_loss=gpu_loss, **wild).fit(train)


def test_a_training_that_diverges_late_keeps_the_best_epoch(halves, monkeypatch):
    train, valid = halves
    ranker = network("Squared", epochs=6, schedule="constant")
    monkeypatch.setattr(neural_training, "_factor", lambda schedule, progress: 1e33 if progress >= 0.5 else 1.0)
    with pytest.warns(ConvergenceWarning, match="diverges: in epoch [456]"):
        ranker.fit(train, valid=valid)
    assert ndcg(ranker, valid) == pytest.approx(max(ranker.history_["valid"]), abs=1e-12)


def test_progress_tells_the_metric_and_the_time_left(halves, capfd):
    network(verbose=True, epochs=3).fit(halves[0], valid=halves[1])
    lines = capfd.readouterr().err.splitlines()
    assert re.match(r"epoch 1/3  loss [\d.e+-]+  valid ndcg@10 0\.\d{4} \(best in epoch 1\)", lines[0])
    assert lines[-1].endswith("about 0 s left")


# ---- chance, threads and devices ----


@pytest.mark.parametrize("options", [{}, {"network": "attention"}, {"norm": "batch", "hidden": (16, 8)}])
def test_the_seed_decides_and_nobody_else_notices(halves, options):
    train, test = halves
    torch.manual_seed(5)
    before, threads = torch.get_rng_state(), torch.get_num_threads()
    one = network(seed=1, dropout=0.3, **options).fit(train).predict(test)
    assert torch.equal(before, torch.get_rng_state())
    assert torch.get_num_threads() == threads
    torch.manual_seed(6)
    np.testing.assert_array_equal(one, network(seed=1, dropout=0.3, **options).fit(train).predict(test))
    assert (one != network(seed=2, dropout=0.3, **options).fit(train).predict(test)).any()


def test_trainings_side_by_side_do_not_disturb_each_other(halves):
    train, test = halves
    before = torch.get_num_threads()
    alone = network().fit(train).predict(test)
    results = {}
    workers = [
        threading.Thread(target=lambda i=i: results.update({i: network().fit(train).predict(test)})) for i in range(3)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for scores in results.values():
        np.testing.assert_array_equal(scores, alone)
    assert len(results) == 3
    assert torch.get_num_threads() == before


def test_threads_are_restored_after_an_error():
    before = torch.get_num_threads()
    inside = []

    def fail():
        inside.append(torch.get_num_threads())
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), torch_threads(before + 1):
        fail()
    assert inside == [before + 1]
    assert torch.get_num_threads() == before
    small = torch.nn.Linear(10, 10)
    assert threads_for(None, 1000, small) == 1
    assert threads_for(3, 1000, small) == 3


def test_the_number_of_threads_is_the_one_asked_for_throughout(halves):
    train, valid = halves
    before, seen = torch.get_num_threads(), []
    first = network(epochs=1, threads=before + 2).fit(train)

    def look(now):
        seen.append(torch.get_num_threads())
        first.predict(valid)
        seen.append(torch.get_num_threads())

    network(init_model=first, epochs=2, threads=before + 1, callbacks=[look]).fit(train, valid=valid)
    assert seen == [before + 1] * 4
    assert torch.get_num_threads() == before


def test_a_gpu_that_is_not_there(data, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert chosen_device("auto") == chosen_device("cpu") == torch.device("cpu")
    for name, what in (("cuda", "NVIDIA"), ("cuda:1", "NVIDIA"), ("mps", "Apple")):
        with pytest.raises(DataError, match=rf"device='{name}' needs an {what} GPU, but PyTorch found none\."):
            network(device=name).fit(data)
    with pytest.raises(UnknownNameError, match="did you mean 'cuda'"):
        network(device="cude").fit(data)


def test_without_pytorch_there_is_a_sentence(data, tmp_path, monkeypatch):
    network().fit(data).save(tmp_path / "m.toprank")
    monkeypatch.setitem(sys.modules, "torch", None)
    sentence = r"NeuralRanker needs .*pip install 'toprank\[neural\]'\."
    with pytest.raises(MissingExtraError, match=sentence):
        network().fit(data)
    with pytest.raises(MissingExtraError, match=sentence):
        tr.load(tmp_path / "m.toprank")


# ---- features ----


@pytest.mark.parametrize("transform", ["standard", "log1p", "quantile", "none"])
def test_sparse_features_give_the_same_network(data, transform):
    X = np.where(np.abs(data.X) < 0.5, 0.0, data.X)
    X[3, 2] = np.nan
    dense, thin = data.replace(X=X), data.replace(X=sparse.csr_matrix(X))
    options = {"input_transform": transform, "hidden": (4,), "batch_documents": 50}
    ranker = network(**options).fit(thin)
    del ranker.feature_names_in_  # plain arrays follow
    np.testing.assert_allclose(ranker.predict(thin), network(**options).fit(dense).predict(dense), atol=1e-5)
    np.testing.assert_allclose(ranker.predict(X), ranker.predict(sparse.csr_array(X)), rtol=1e-12)


def test_features_on_a_disk_give_the_same_network(data, tmp_path):
    np.save(tmp_path / "x.npy", data.X)
    mapped = np.load(tmp_path / "x.npy", mmap_mode="r")
    far = tr.RankingData._from_validated(X=mapped, labels=data.labels, queries=data.queries, qids=data.qids)
    assert isinstance(far.X, np.memmap)
    np.testing.assert_array_equal(network().fit(far).predict(far), network().fit(data).predict(data))


def test_missing_values_count_as_the_mean(data):
    X = np.array(data.X, dtype=np.float64)
    X[::3, 1] = np.nan
    ranker = network(input_transform="standard").fit(X, data.labels, qid=data.qid)
    filled = np.where(np.isnan(X), np.nanmean(X, axis=0), X)
    np.testing.assert_allclose(ranker.predict(X), ranker.predict(filled), atol=1e-6)
    assert np.isfinite(ranker.predict(np.full((2, 4), np.nan))).all()


def test_infinite_values_are_refused(data):
    X = np.array(data.X)
    X[5, 1] = np.inf
    for transform in ("standard", "log1p", "quantile", "none"):
        with pytest.raises(DataError, match=r"Feature 'effective_2' holds infinite values"):
            network(input_transform=transform).fit(data.replace(X=X))
    with pytest.raises(DataError, match=r"Feature 'effective_2' holds infinite values"):
        network(input_transform="standard").fit(data).predict(data.replace(X=X))
    with pytest.raises(DataError, match="no features"):
        network().fit(tr.RankingData(np.zeros((3, 0)), [0, 1, 2]))


# ---- prediction ----


def test_rows_may_come_in_any_order_and_company(data):
    rng = np.random.default_rng(0)
    order = rng.permutation(data.n_documents)
    for kind in ("mlp", "attention"):
        ranker = network(network=kind).fit(data.X, data.labels, qid=data.qid)
        scores = ranker.predict(data)
        np.testing.assert_allclose(ranker.predict(data.X, qid=data.qid), scores, atol=1e-12)
        np.testing.assert_allclose(ranker.predict(data.X[order], qid=data.qid[order]), scores[order], atol=1e-12)
        alone = np.concatenate([ranker.predict(tr.RankingData(data.X[rows])) for rows in data.queries])
        np.testing.assert_allclose(alone, scores, atol=1e-12)
        apart = ranker.predict(tr.RankingData(data.X))  # without qid all rows are one query
        assert np.allclose(apart, scores, atol=1e-9) == (kind == "mlp")
        by_name = tr.make_scorer("ndcg@10")(ranker, data.X[order], data.labels[order], qid=data.qid[order])
        assert by_name == pytest.approx(ndcg(ranker, data))
        assert ranker.score(data.X[order], data.labels[order], qid=data.qid[order]) == pytest.approx(by_name)


def test_the_door_of_prediction(data):
    ranker = network(network="attention").fit(data.X, data.labels, qid=data.qid)
    with pytest.raises(DataError, match="omit qid"):
        ranker.predict(data, qid=data.qid)
    with pytest.raises(ValueError, match="4 features"):
        ranker.predict(data.X[:, :3])
    with pytest.raises(ValueError, match="not fitted"):
        clone(ranker).predict(data.X)
    assert ranker.predict(data.X[:1], qid=[7]).shape == (1,)


def test_a_forgotten_qid_is_refused(data, tmp_path):
    data = data.replace(feature_names=None)
    attention = network(network="attention").fit(data)
    blend = tr.BlendRanker.from_fitted([tr.LinearRanker().fit(data), attention], data)
    for ranker in (attention, blend, tr.BlendRanker.from_fitted([blend], data)):
        ranker.save(tmp_path / "m.toprank")
        for one in (ranker, tr.load(tmp_path / "m.toprank")):
            with pytest.raises(DataError, match="the features have no qid"):
                one.predict(data.X)
            np.testing.assert_allclose(one.predict(data.X, qid=data.qid), ranker.predict(data), atol=1e-12)
    few = np.array(data.X[:100])
    one_query = network(network="attention").fit(few, data.labels[:100])
    np.testing.assert_array_equal(one_query.predict(few), one_query.predict(tr.RankingData(few)))
    mlp = network().fit(data)
    np.testing.assert_array_equal(mlp.predict(data.X), mlp.predict(data))


def test_a_fit_that_fails_changes_nothing(data):
    ranker, wide = network(epochs=1), data.replace(X=np.hstack([data.X, data.X]), feature_names=None)
    ranker.set_params(loss="LambdaRnk")
    with pytest.raises(UnknownNameError):
        ranker.fit(data)
    with pytest.raises(NotFittedError):
        ranker.predict(data)
    scores = ranker.set_params(loss="ListNet").fit(data).predict(data)
    training = dict(ranker.training_)
    ranker.set_params(loss="LambdaRnk")
    with pytest.raises(UnknownNameError):
        ranker.fit(wide)
    with pytest.raises(DataError, match="valid must be a RankingData"):
        ranker.set_params(loss="ListNet").fit(wide, valid=3)
    assert ranker.training_ == training
    np.testing.assert_array_equal(ranker.predict(data), scores)


# ---- files ----


@pytest.mark.parametrize(
    "options",
    [
        {"loss": losses.LambdaRank("map", truncation=5), "norm": "batch", "input_transform": "quantile"},
        {"loss": "Multinomial", "outputs": "grades", "gain": [0.0, 1.0, 2.0], "norm": "layer", "activation": "gelu"},
        {"loss": "ListNet", "network": "attention", "callbacks": [lambda now: None], "input_transform": "none"},
        {"loss": "Squared", "hidden": (), "max_grad_norm": None, "device": "auto"},
    ],
)
def test_what_is_read_equals_what_was_saved(data, tmp_path, options):
    ranker = network(**options).fit(data, valid=data.select(np.arange(20)))
    ranker.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.predict(data).tobytes() == ranker.predict(data).tobytes()
    assert (back.loss, back.hidden, back.history_) == (ranker.loss, ranker.hidden, ranker.history_)
    assert (back.best_epoch_, back.stopped_) == (ranker.best_epoch_, ranker.stopped_)
    back.save(tmp_path / "again.toprank")
    assert (tmp_path / "again.toprank").read_bytes() == (tmp_path / "m.toprank").read_bytes()
    more = network(**options | {"init_model": back, "epochs": 2}).fit(data)
    assert more.best_epoch_ == back.best_epoch_ + 2


def test_parameters_changed_since_are_not_saved_as_the_network(data, tmp_path):
    changes = {"hidden": (3,), "network": "attention", "outputs": "grades", "input_transform": "none", "norm": "batch"}
    ranker = network().fit(data)
    scores = ranker.predict(data)
    ranker.set_params(**changes)
    np.testing.assert_array_equal(ranker.predict(data), scores)
    assert not hasattr(ranker, "predict_proba")
    ranker.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert (back.hidden, back.network, back.outputs, back.norm) == ((16,), "mlp", "score", "none")
    np.testing.assert_array_equal(back.predict(data), scores)
    assert network(init_model=ranker, epochs=1).fit(data).best_epoch_ == ranker.best_epoch_ + 1
    ranker.set_params(epochs=-1).save(tmp_path / "n.toprank")
    assert (tmp_path / "n.toprank").read_bytes() == (tmp_path / "m.toprank").read_bytes()


def test_a_model_does_not_insist_on_the_device_it_was_trained_on(data, tmp_path):
    ranker = network().fit(data)
    vars(ranker.as_fitted)["device"] = "cuda"
    ranker.save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").device == "auto"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda s: s.arrays.pop("output_weight"), "weights output.weight are missing"),
        (lambda s: s.arrays.update(output_weight=np.zeros((2, 16))), "do not match the network"),
        (lambda s: s.arrays.update(output_bias=np.array([np.nan])), "not finite"),
        (lambda s: s.arrays.update(output_bias=np.array(["a"])), "not finite"),
        (lambda s: s.arrays.update(more=np.zeros(1)), "do not belong"),
        (lambda s: s.values["parameters"].update(hidden=[17]), "do not match the network"),
        (lambda s: s.values["parameters"].update(hidden=[1] * 10**5), "at most 64 layer sizes"),
        (lambda s: s.values["parameters"].update(network="attention", n_layers=10**6), "n_layers must be at most 64"),
        (lambda s: s.values["parameters"].update(network="os.system"), "network has the invalid value"),
        (lambda s: s.values["parameters"].update(activation="exec"), "no kind of activation"),
        (lambda s: s.arrays.update(spread=np.zeros(4)), "contradicts the parameters"),
        (lambda s: s.arrays.update(spread=np.ones(3)), "does not match the number of features"),
        (lambda s: s.arrays.update(center=np.full(4, np.inf)), "finite"),
        (lambda s: s.arrays.update(knots=np.zeros((2, 4))), "contradicts the parameters"),
        (lambda s: s.arrays.update(gains=np.zeros(1)), "gains do not match"),
    ],
)
def test_forged_networks_are_refused(data, change, message):
    state = network().fit(data).state()
    change(state)

    def read():
        ranker = tr.NeuralRanker.restore(state)
        ranker.n_features_in_ = 4
        ranker.check_restored()

    with pytest.raises((DataError, UnknownNameError), match=message):
        read()


def test_an_altered_file_is_refused(data, tmp_path):
    """One byte in the middle of any part; in a header of the archive, a date say, nothing would be lost."""
    network().fit(data).save(tmp_path / "m.toprank")
    content = (tmp_path / "m.toprank").read_bytes()
    with zipfile.ZipFile(tmp_path / "m.toprank") as archive:
        parts = archive.infolist()
    for part in parts:
        altered = bytearray(content)
        altered[part.header_offset + 30 + len(part.filename) + part.compress_size // 2] ^= 255
        (tmp_path / "altered.toprank").write_bytes(altered)
        with pytest.raises(FormatError):
            tr.load(tmp_path / "altered.toprank")


# ---- the door ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"network": "mpl"}, "did you mean 'mlp'"),
        ({"hidden": 128}, r"hidden must be a list of at most 64 layer sizes, such as \(128, 64\), not 128"),
        ({"hidden": (0,)}, "hidden must be a list"),
        ({"activation": "rellu"}, "did you mean 'relu'"),
        ({"norm": "bach"}, "did you mean 'batch'"),
        ({"dropout": 1.0}, "dropout must be a number of at least 0 and below 1"),
        ({"n_heads": 3, "network": "attention"}, "width=8 must be a multiple of n_heads=3"),
        ({"n_layers": 0}, "n_layers must be a whole number of at least 1"),
        ({"outputs": "grade"}, "did you mean 'grades'"),
        ({"input_transform": "log"}, "did you mean 'log1p'"),
        ({"epochs": 0}, "epochs must be a whole number of at least 1"),
        ({"epochs": 2.5}, "epochs must be a whole number"),
        ({"batch_documents": 0}, "batch_documents must be a whole number of at least 1"),
        ({"learning_rate": 0.0}, "learning_rate must be a positive number"),
        ({"learning_rate": "fast"}, "learning_rate must be a positive number"),
        ({"max_grad_norm": -1.0}, "max_grad_norm must be a positive number"),
        ({"weight_decay": -1.0}, "weight_decay must be a number of at least 0"),
        ({"schedule": "cosin"}, "did you mean 'cosine'"),
        ({"early_stopping": 0}, "early_stopping, a number of epochs or None"),
        ({"gpu_loss": "yes"}, "gpu_loss must be 'auto', True or False"),
        ({"gpu_loss": True, "loss": "NeuralNDCG"}, "has no GPU implementation"),
        ({"seed": -1}, "seed must be a whole number"),
        ({"threads": 0}, "threads must be a whole number of at least 1"),
        ({"metric": "ncdg@10"}, "ndcg@10"),
        ({"convention": "standart"}, "standard"),
        ({"loss": "LambdaRnk"}, "LambdaRank"),
        ({"loss": "Ordinal"}, "thresholds"),
        ({"callbacks": [3]}, "3 cannot be called; callbacks must be functions"),
        ({"callbacks": len}, "list of functions"),
        ({"callbacks": None}, "list of functions"),
        ({"callbacks": 1}, "list of functions"),
        ({"threads": "x"}, "threads must be a whole number of at least 1, or None for every core, not 'x'"),
        ({"activation": np.zeros(2)}, "no kind of activation"),
        ({"gpu_loss": np.zeros(2)}, "gpu_loss must be 'auto', True or False"),
        ({"init_model": "model.txt"}, "must be a fitted NeuralRanker, not a str"),
    ],
)
def test_bad_parameters_are_refused_in_a_sentence(data, options, message):
    with pytest.raises((DataError, UnknownNameError), match=message) as caught:
        network(**options).fit(data)
    assert str(caught.value).rstrip("?").endswith((".", "'"))


def test_models_to_go_on_from_must_fit(data, halves):
    fitted = network(epochs=1).fit(data)
    with pytest.raises(DataError, match="not fitted"):
        network(init_model=network()).fit(data)
    with pytest.raises(DataError, match="expecting 4 features"):
        network(init_model=fitted).fit(halves[0])
    with pytest.raises(DataError, match=r"init_model has hidden=\(16,\)"):
        network(init_model=fitted, hidden=(8,)).fit(data)
    with pytest.raises(DataError, match="init_model has input_transform='log1p'"):
        network(init_model=fitted, input_transform="none").fit(data)
    grades = network("Multinomial", outputs="grades", epochs=1).fit(data)
    with pytest.raises(DataError, match="has 3 grades"):
        network("Multinomial", outputs="grades", init_model=grades).fit(data.replace(labels=data.labels + 1))
    with pytest.raises(DataError, match="integers from 0"):
        network("Multinomial", outputs="grades").fit(data.replace(labels=data.labels + 0.5))
