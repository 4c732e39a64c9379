"""`BlendRanker`: the formula, the scales, nested model files, and what is refused."""

from __future__ import annotations

import hashlib
import json
import zipfile

import numpy as np
import pytest
from sklearn.base import clone
from sklearn.exceptions import NotFittedError

import toprank as tr
from toprank.errors import DataError, FormatError
from toprank.rankers.base import ConvergenceWarning
from toprank.rankers.blend import score_spread


@pytest.fixture(scope="module")
def parts():
    data = tr.synthetic(n_queries=60, n_documents=(3, 12), n_features=4, n_grades=3, seed=0)
    return tr.split(data, (0.6, 0.4))


def members():
    return [tr.LinearRanker("ListNet"), tr.TreeRanker(n_trees=5, num_leaves=4, threads=1), tr.LinearRanker("Squared")]


class Within(tr.LinearRanker):
    """Scores that depend on the other documents: the mean of the query is taken away."""

    def predict(self, X, qid=None):
        assert isinstance(X, tr.RankingData)
        scores = super().predict(X)
        return scores - X.queries.broadcast(X.queries.mean(scores))


class Stopped(tr.LinearRanker):
    def fit(self, X, y=None, qid=None, *, valid=None):
        raise KeyboardInterrupt


class HalfDone(tr.LinearRanker):
    def fit(self, X, y=None, qid=None, *, valid=None):
        super().fit(X, y, qid, valid=valid)
        self.interrupted_ = True
        return self


def spread_by_hand(scores, data):
    return np.mean([np.std(scores[documents]) for documents in data.queries])


@pytest.mark.parametrize("with_valid", [False, True])
def test_the_formula(parts, with_valid):
    train, other = parts
    valid = other if with_valid else None
    weights = [1.0, 2.0, 5.0]
    blend = tr.BlendRanker(members(), weights).fit(train, valid=valid)
    fitted = [ranker.fit(train, valid=valid) for ranker in members()]
    measured_on = other if with_valid else train
    wanted = sum(
        weight / 8.0 * ranker.predict(other) / spread_by_hand(ranker.predict(measured_on), measured_on)
        for weight, ranker in zip(weights, fitted, strict=True)
    )
    np.testing.assert_allclose(blend.predict(other), wanted, rtol=1e-12)
    np.testing.assert_allclose(blend.weights_, np.array(weights) / 8)
    np.testing.assert_allclose(
        blend.feature_importances_, sum(w / 8 * r.feature_importances_ for w, r in zip(weights, fitted, strict=True))
    )


def test_equal_weights_are_the_default_and_scale_does_not_matter(parts):
    train, other = parts
    fitted = [ranker.fit(train) for ranker in members()]
    blend = tr.BlendRanker.from_fitted(fitted, train)
    assert blend.weights_.tolist() == [1 / 3] * 3
    louder = clone(fitted[0]).fit(train)
    louder.coef_ = 1000.0 * louder.coef_
    louder.intercept_ *= 1000.0
    np.testing.assert_allclose(
        tr.BlendRanker.from_fitted([louder, *fitted[1:]], train).predict(other), blend.predict(other)
    )


def test_rows_and_data_score_alike(parts):
    train, other = parts
    blend = tr.BlendRanker(members()).fit(train.X, train.labels, qid=train.qid)
    whole = blend.predict(other.X)
    np.testing.assert_array_equal(blend.predict(other.X[5:9]), whole[5:9])
    np.testing.assert_allclose(tr.BlendRanker(members()).fit(train).predict(other), whole)
    assert blend.score(other.X, other.labels, qid=other.qid) == tr.evaluate(whole, other).mean["ndcg@10"]


def test_a_member_that_looks_at_the_whole_query_sees_it(parts, tmp_path):
    train, other = parts
    blend = tr.BlendRanker([Within(), tr.LinearRanker("Squared")]).fit(train)
    wanted = blend.predict(other)
    order = np.random.default_rng(0).permutation(other.n_documents)
    names = {"columns": train.feature_names}
    import pandas as pd

    np.testing.assert_allclose(
        blend.predict(pd.DataFrame(other.X[order], **names), qid=other.qid[order]), wanted[order]
    )
    first = other.select([0])
    np.testing.assert_allclose(blend.predict(pd.DataFrame(first.X, **names)), wanted[: first.n_documents])
    with pytest.raises(DataError, match="cannot hold a Within"):
        blend.save(tmp_path / "never.toprank")


def test_a_member_without_an_opinion_changes_nothing(parts):
    train, other = parts
    flat, steep = tr.LinearRanker().fit(train), tr.LinearRanker("Squared").fit(train)
    flat.coef_ = np.zeros(train.n_features)
    blend = tr.BlendRanker.from_fitted([flat, steep], train)
    assert blend.scales_[0] == 1.0
    np.testing.assert_array_equal(np.argsort(blend.predict(other)), np.argsort(steep.predict(other)))


def test_parameters_and_clones(parts):
    given = members()
    blend = tr.BlendRanker(given, [1, 0, 1]).fit(parts[0])
    assert not hasattr(given[0], "coef_")  # copies are trained
    copy = clone(blend)
    assert str(copy.get_params()) == str(blend.get_params())
    assert copy.rankers[0] is not given[0]
    with pytest.raises(NotFittedError):
        copy.predict(parts[1])
    with pytest.raises(NotFittedError):
        tr.BlendRanker.from_fitted(members(), parts[0])


@pytest.mark.parametrize(
    ("rankers", "weights", "words"),
    [
        ((), None, "at least one"),
        (["ListNet"], None, "list of rankers"),
        (None, None, "list of rankers"),
        ((one for one in [tr.LinearRanker()]), None, "list of rankers"),
        (tr.LinearRanker(), None, "list of rankers"),
        ([tr.LinearRanker()] * 2, [1.0], "2 numbers"),
        ([tr.LinearRanker()] * 2, ["a", "b"], "2 numbers"),
        ([tr.LinearRanker()] * 2, [1.0, -1.0], "0 or larger"),
        ([tr.LinearRanker()] * 2, [np.nan, 1.0], "0 or larger"),
        ([tr.LinearRanker()] * 2, [np.inf, 1.0], "finite"),
        ([tr.LinearRanker()] * 2, [0.0, 0.0], "not all 0"),
    ],
)
def test_what_is_no_blend(parts, rankers, weights, words):
    with pytest.raises(DataError, match=words):
        tr.BlendRanker(rankers, weights).fit(parts[0])


def test_huge_weights_do_not_overflow(parts):
    blend = tr.BlendRanker([tr.LinearRanker(), tr.LinearRanker("Squared")], [1e308, 1e308]).fit(parts[0])
    assert blend.weights_.tolist() == [0.5, 0.5]


def test_an_interrupt_keeps_what_was_fitted(parts):
    train, other = parts
    first, only = tr.LinearRanker(), tr.BlendRanker([tr.LinearRanker()]).fit(train)
    for stopper in (Stopped(), HalfDone()):
        with pytest.warns(ConvergenceWarning, match="interrupted"):
            blend = tr.BlendRanker([first, stopper, tr.LinearRanker("Squared")], [0.0, 0.0, 1.0]).fit(train)
        assert blend.was_interrupted
        assert not only.was_interrupted
        assert len(blend.rankers_) == 1 + isinstance(stopper, HalfDone)
        assert blend.weights_.sum() == 1.0
    with pytest.warns(ConvergenceWarning):
        blend = tr.BlendRanker([first, Stopped()]).fit(train)
    np.testing.assert_array_equal(blend.predict(other), only.predict(other))
    with pytest.raises(KeyboardInterrupt):
        tr.BlendRanker([Stopped(), first]).fit(train)


@pytest.mark.parametrize("weights", [None, [1.0, 2.0, 5.0], [0.0, 0.0, 1.0]])
def test_an_interrupted_blend_can_be_saved(parts, tmp_path, weights):
    train, other = parts
    members = [tr.LinearRanker(), tr.LinearRanker("Squared"), Stopped()]
    with pytest.warns(ConvergenceWarning, match="interrupted"):
        blend = tr.BlendRanker(members, weights).fit(train)
    blend.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.predict(other).tobytes() == blend.predict(other).tobytes()
    assert clone(back).fit(train).predict(other).tobytes() == blend.predict(other).tobytes()


def test_weights_are_saved_as_they_were_given(parts, tmp_path):
    train, other = parts
    blend = tr.BlendRanker([tr.LinearRanker(), tr.LinearRanker("Squared")], [1, 3]).fit(train)
    blend.save(tmp_path / "m.toprank")
    assert tr.load(tmp_path / "m.toprank").weights == [1, 3]
    blend.set_params(weights=[1, -1]).save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.weights == [1, 3]  # those it was fitted with
    np.testing.assert_array_equal(back.predict(other), blend.predict(other))


def test_rankers_to_join_may_come_one_by_one(parts):
    train, other = parts
    fitted = [tr.LinearRanker().fit(train), tr.LinearRanker("Squared").fit(train)]
    joined = tr.BlendRanker.from_fitted((one for one in fitted), train)
    np.testing.assert_array_equal(joined.predict(other), tr.BlendRanker.from_fitted(fitted, train).predict(other))
    with pytest.raises(DataError, match="list of rankers"):
        tr.BlendRanker.from_fitted(None, train)
    with pytest.raises(DataError, match="needs a RankingData"):
        tr.BlendRanker.from_fitted(fitted, train.X)


def test_blends_of_blends_are_saved_in_one_file(parts, tmp_path):
    train, other = parts
    inner = tr.BlendRanker(members()[:2], [1, 2])
    blend = tr.BlendRanker([inner, tr.ExpectedGainRanker(), *(tr.LinearRanker() for _ in range(10))]).fit(train)
    blend.save(tmp_path / "m.toprank")
    back = tr.load(tmp_path / "m.toprank")
    assert back.predict(other).tobytes() == blend.predict(other).tobytes()
    assert back.rankers_[0].rankers_[1].training_ == blend.rankers_[0].rankers_[1].training_
    assert clone(back).fit(train).predict(other).tobytes() == blend.predict(other).tobytes()


def resealed(path, target, change):
    """A copy of a model, its members passed through `change`, with checksums to match."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(parts["metadata.json"])
    change(metadata, parts)
    parts["metadata.json"] = json.dumps(metadata).encode()
    sums = {name: hashlib.sha256(part).hexdigest() for name, part in parts.items() if name != "checksums.json"}
    parts["checksums.json"] = json.dumps(sums).encode()
    with zipfile.ZipFile(target, "w") as archive:
        for name, part in parts.items():
            archive.writestr(name, part)


def npy(array):
    import io

    buffer = io.BytesIO()
    np.lib.format.write_array(buffer, np.asarray(array))
    return buffer.getvalue()


@pytest.mark.parametrize(
    "change",
    [
        lambda m, _: m["state"]["members"][0].update(kind="os"),
        lambda m, _: m["state"]["members"][0].update(kind="Ranker"),
        lambda m, _: m["state"]["members"].pop(),
        lambda m, _: m["state"].update(members=[]),
        lambda m, _: m["state"].update(members="LinearRanker"),
        lambda m, _: m["state"]["parameters"].update(weights=[1.0]),
        lambda m, _: m["features"].update(count=3),
        lambda _, p: p.pop("arrays/m0_coef.npy"),
        lambda _, p: p.update({"arrays/m0_coef.npy": npy(np.zeros(9))}),
        lambda _, p: p.update({"arrays/m0_coef.npy": npy(np.full(4, np.nan))}),
        lambda _, p: p.update({"texts/m1_trees.txt": p["texts/m1_trees.txt"][:300]}),
        lambda _, p: p.update({"arrays/weights.npy": npy([2.0, -1.0])}),
        lambda _, p: p.update({"arrays/weights.npy": npy([0.5, 0.6])}),
        lambda _, p: p.update({"arrays/weights.npy": npy([1.0])}),
        lambda _, p: p.update({"arrays/scales.npy": npy([1.0, 0.0])}),
        lambda _, p: p.update({"arrays/scales.npy": npy([1.0, np.nan])}),
        lambda _, p: p.update({"arrays/scales.npy": npy(["1", "2"])}),
    ],
)
def test_forged_members_are_refused(parts, tmp_path, change):
    tr.BlendRanker(members()[:2]).fit(parts[0]).save(tmp_path / "m.toprank")
    resealed(tmp_path / "m.toprank", tmp_path / "same.toprank", lambda *_: None)
    assert tr.load(tmp_path / "same.toprank").n_features_in_ == 4
    resealed(tmp_path / "m.toprank", tmp_path / "bad.toprank", change)
    with pytest.raises(FormatError):
        tr.load(tmp_path / "bad.toprank")


def test_the_spread_is_that_within_queries():
    queries = tr.Queries([0, 1, 4])
    scores = np.array([100.0, 1.0, 2.0, 6.0])
    assert score_spread(scores, queries) == pytest.approx((0 + np.std([1.0, 2.0, 6.0])) / 2)
