"""Means of levels: their formula, that no document's own grade is in its number, where they are used, and files."""

from __future__ import annotations

import json
import zipfile

import numpy as np
import pandas as pd
import pytest
from scipy.stats import binom

import toprank as tr
from toprank.errors import DataError, FormatError, ToprankError
from toprank.exporters import unsupported_reasons
from toprank.rankers import target_encoding
from toprank.rankers.seen_columns import SeenColumns
from toprank.rankers.target_encoding import TargetEncoding, choose_encodings, out_of_fold


def shop(n_queries=60, size=10, levels=200, worth=1.0, seed=0, weights=False):
    """Products whose seller and whose seller in a kind of product are worth something, besides a number."""
    rng = np.random.default_rng(seed)
    n = n_queries * size
    seller, kind = rng.integers(levels, size=n), rng.integers(3, size=n)
    number = rng.normal(size=n)
    of_seller, of_pair = rng.normal(size=levels), rng.normal(size=(levels, 3))
    liking = number + worth * (of_seller[seller] + of_pair[seller, kind]) + 0.5 * rng.normal(size=n)
    frame = pd.DataFrame(
        {
            "qid": np.repeat([f"q{q}" for q in range(n_queries)], size),
            "seller": pd.Categorical([f"s{s}" for s in seller], [f"s{s}" for s in range(levels)]),
            "kind": pd.Categorical([f"k{k}" for k in kind], [f"k{k}" for k in range(3)]),
            "number": number,
            "label": np.clip(np.round(liking + 1.5), 0, 4),
        }
    )
    if weights:
        frame["weight"] = rng.uniform(0.2, 3.0, n)
    return tr.RankingData.from_frame(frame)


SELLER, KIND = 0, 1
LISTED = ["seller", ("seller", "kind")]


def slow_table(data, rows, places, known):
    """s / (n + k) by dictionaries, from the formulas of the page."""
    weight = np.ones(data.n_documents) if data.document_weights is None else data.document_weights
    weight = weight * data.n_documents / weight.sum()
    query = data.queries.document_query
    grade = [
        data.labels[i] - np.average(data.labels[query == query[i]], weights=weight[query == query[i]]) for i in rows
    ]
    cells: dict[tuple, list[tuple[float, float]]] = {}
    for i, t in zip(rows, grade, strict=True):
        cell = tuple(int(data.X[i, place]) for place in places)
        for place, of_level in zip(places, cell, strict=True):
            t -= known.get(place, {}).get(of_level, 0.0)
        cells.setdefault(cell, []).append((weight[i], t))
    n = {cell: sum(w for w, _ in held) for cell, held in cells.items()}
    s = {cell: sum(w * t for w, t in held) for cell, held in cells.items()}
    inside = sum(w * (t - s[cell] / n[cell]) ** 2 for cell, held in cells.items() for w, t in held)
    within = inside / (len(rows) - len(cells))
    between = (sum(s[cell] ** 2 / n[cell] for cell in cells) - len(cells) * within) / sum(n.values())
    return {cell: s[cell] / (n[cell] + within / between) if between > 0 else 0.0 for cell in cells}


@pytest.mark.parametrize("weights", [False, True])
def test_tables_are_the_shrunken_means_of_the_page(weights):
    data = shop(n_queries=25, levels=20, weights=weights)
    found = choose_encodings(data, None, data.encoding, LISTED, 0).tables
    rows = range(data.n_documents)
    sellers, kinds = (slow_table(data, rows, (place,), {}) for place in (SELLER, KIND))
    known = {SELLER: {cell[0]: m for cell, m in sellers.items()}, KIND: {cell[0]: m for cell, m in kinds.items()}}
    pairs = slow_table(data, rows, (SELLER, KIND), known)
    assert [one.places for one in found] == [(SELLER,), (SELLER, KIND)]
    expected = [sellers.get((s,), 0.0) for s in range(20)]
    np.testing.assert_allclose(found[0].table, expected, rtol=1e-5, atol=1e-7)
    expected = [pairs.get((s, k), 0.0) for s in range(20) for k in range(3)]
    np.testing.assert_allclose(found[1].table, expected, rtol=1e-4, atol=1e-6)


def test_shrinkage_is_the_ratio_of_the_variances():
    """5,000 levels whose effects have variance 0.5, and documents variance 2 about them: k = 4."""
    rng = np.random.default_rng(0)
    n, level = 60_000, rng.integers(5000, size=60_000)
    values = np.sqrt(0.5) * rng.normal(size=5000)[level] + np.sqrt(2.0) * rng.normal(size=n)
    counts, sums = (np.bincount(level, of, minlength=5000) for of in (np.ones(n), values))
    assert target_encoding._shrinkage(counts, sums, float(values @ values), n) == pytest.approx(4.0, rel=0.1)


def own_grades_are_used(data, columns):
    """Whether the numbers of a query's documents change with their own grades."""
    for query in range(0, data.n_queries, 7):
        rows = slice(*data.queries.offsets[query : query + 2])
        labels = data.labels.copy()
        labels[rows] = labels[rows][::-1] ** 2
        if not np.array_equal(columns(data.replace(labels=labels))[rows], columns(data)[rows]):
            return True
    return False


def test_no_grade_of_a_fold_enters_the_numbers_of_that_fold():
    data = shop(n_queries=30, levels=40)
    places = [(SELLER,), (SELLER, KIND)]
    assert not own_grades_are_used(data, lambda one: out_of_fold(one, one.encoding, places, seed=3))

    def in_sample(one):  # the mistake that this is about
        return np.column_stack(
            [table.transform(one.X) for table in choose_encodings(one, None, one.encoding, LISTED, 3).tables]
        )

    assert own_grades_are_used(data, in_sample)


def noise(seed, documents_of_a_level):
    """A number that matters, and a category with so many documents for each level that does not."""
    rng = np.random.default_rng(seed)
    n = 1200
    number = rng.normal(size=n)
    level = rng.permutation(np.arange(n) // documents_of_a_level)
    frame = pd.DataFrame({"qid": np.arange(n) // 10, "number": number, "level": pd.Categorical(level.astype(str))})
    frame["label"] = np.digitize(number + rng.normal(size=n), [-0.5, 0.5, 1.5])
    return tr.RankingData.from_frame(frame)


@pytest.mark.parametrize("documents_of_a_level", [1, 2])
def test_levels_of_few_documents_get_no_weight(documents_of_a_level, monkeypatch):
    """Means that hold a document's own grade look like the best of features; out of folds they tell nothing."""
    # The weakest shrinkage there might be; by moments these levels would mostly be taken for no different at all.
    monkeypatch.setattr(target_encoding, "_shrinkage", lambda *_: 1.0)
    data = noise(0, documents_of_a_level)
    ranker = tr.LinearRanker("ListNet", l2=0.01, target_encoding=["level"])
    assert ranker.fit(data).feature_importances_[list(data.feature_names).index("level")] < 0.1
    monkeypatch.setattr("toprank.rankers.source.out_of_fold", lambda *_: None)  # folds are ignored
    assert ranker.fit(data).feature_importances_[list(data.feature_names).index("level")] > 0.3


def test_what_a_pair_is_worth_goes_to_both_by_halves():
    data = shop(levels=130)
    ranker = tr.LinearRanker("ListNet", target_encoding=LISTED).fit(data)
    columns = ranker.columns_
    assert columns.names[-2:] == ("mean(seller)", "mean(seller, kind)")
    values = np.zeros(columns.width)
    values[-2:] = 1.0, 4.0
    assert dict(zip(data.feature_names, columns.by_feature(values), strict=True)) == {
        "seller": 3.0,
        "kind": 2.0,
        "number": 0.0,
    }


def test_useless_categories_are_seldom_taken():
    """At most as often as the level of the test allows: one in twenty."""
    taken = 0
    for seed in range(60):
        data = noise(seed, documents_of_a_level=4)
        taken += bool(choose_encodings(data, None, data.encoding, "auto", 0).tables)
    assert taken <= binom.ppf(0.999, 60, target_encoding.SIGNIFICANCE_LEVEL)


def test_many_useless_categories_are_taken_no_more_often_than_one():
    """The level is that of all candidates of a kind together: of six categories, and of their fifteen pairs."""
    shops, size, levels = 60, 600, 130
    taken = {"single": 0, "pair": 0}
    for seed in range(shops):
        rng = np.random.default_rng(seed)
        names = [f"s{level}" for level in range(levels)]
        columns = {
            f"c{j}": pd.Categorical.from_codes(rng.permutation(size) % levels, categories=names) for j in range(6)
        }
        frame = pd.DataFrame({"qid": np.arange(size) // 10, "label": rng.integers(0, 4, size), **columns})
        data = tr.RankingData.from_frame(frame)
        places = [mean.places for mean in choose_encodings(data, None, data.encoding, "auto", seed).tables]
        taken["single"] += any(len(place) == 1 for place in places)
        taken["pair"] += any(len(place) == 2 for place in places)
    for kind, count in taken.items():
        assert binom.sf(count - 1, shops, target_encoding.SIGNIFICANCE_LEVEL) > 1e-3, (kind, count)


def test_what_helps_is_taken_and_told():
    train, valid, test = tr.split(shop(n_queries=460, levels=150), (0.6, 0.2, 0.2), seed=1)
    plain, seen = (
        tr.LinearRanker("ListNet", l2=0.01, target_encoding=asked).fit(train, valid=valid) for asked in (False, "auto")
    )
    told = seen.training_["target_encoding"]
    assert list(told["used"]) == ["seller", "seller × kind"]
    assert told["evaluated_on"] == "validation data"
    assert seen.score(test) > plain.score(test)
    assert tr.LinearRanker().fit(train).training_["target_encoding"]["evaluated_on"] == "folds of the training data"
    assert "target_encoding" not in plain.training_
    assert seen.column_names_ == ("number", "kind=k0", "kind=k1", "kind=k2", "mean(seller)", "mean(seller, kind)")


@pytest.mark.parametrize("kind", [tr.TreeRanker, tr.LinearRanker])
def test_small_categories_change_no_bit(kind):
    data = shop(levels=100)
    asked = {"n_trees": 10, "threads": 1} if kind is tr.TreeRanker else {}
    auto, never = (kind(target_encoding=asked_for, **asked).fit(data) for asked_for in ("auto", False))
    assert np.array_equal(auto.predict(data), never.predict(data))
    assert "target_encoding" not in auto.training_


RANKERS = {
    "trees": lambda: tr.TreeRanker(n_trees=15, num_leaves=7, threads=1, target_encoding=LISTED),
    "grades": lambda: tr.TreeRanker("Multinomial", outputs="grades", n_trees=5, threads=1, target_encoding=LISTED),
    "linear": lambda: tr.LinearRanker(target_encoding=LISTED),
    "expected gain": lambda: tr.ExpectedGainRanker(target_encoding=["seller"]),
    "boosting": lambda: tr.RankBoost(max_rounds=10, target_encoding=LISTED),
    "blend": lambda: tr.BlendRanker([RANKERS["trees"](), RANKERS["linear"]()]),
}


@pytest.mark.parametrize("name", RANKERS)
def test_files_queries_explanations_and_exports_know_the_tables(name, tmp_path):
    data = shop(n_queries=40, levels=140)
    ranker = RANKERS[name]().fit(data)
    ranker.save(tmp_path / "m.toprank")
    again = tr.load(tmp_path / "m.toprank")
    scores = ranker.predict(data)
    assert np.array_equal(again.predict(data), scores)
    rows = slice(*data.queries.offsets[3:5])
    assert np.allclose(again.query_scores(np.ascontiguousarray(data.X[rows], dtype=np.float64)), scores[rows])
    told = ranker.explain(data, data.qids[0])
    assert set(told.contributions) <= set(data.feature_names)
    assert sum(told.contributions.values()) == pytest.approx(told.total)
    if hasattr(ranker, "feature_importances_"):
        assert ranker.feature_importances_.sum() == pytest.approx(1.0)
        assert len(ranker.feature_importances_) == data.n_features
    for format in ("python", "c", "onnx"):
        parity = tr.export(ranker, format, tmp_path / f"model.{format}", check=data)
        assert (parity.rows > 1000, parity.n_mismatches, parity.rankings_changed) == (True, 0, 0), format


def test_engines_without_tables_refuse_in_a_sentence():
    ranker = RANKERS["trees"]().fit(shop(levels=140))
    reasons = unsupported_reasons(ranker)
    assert [name for name, reason in reasons.items() if reason is None] == ["onnx", "c", "python"]
    assert "uses target encoding, a table of means per level" in reasons["solr"]


def test_unknown_levels_and_missing_cells_have_the_mean_of_all():
    data = shop(levels=140)
    columns = SeenColumns.from_codes(data.encoding, choose_encodings(data, None, data.encoding, LISTED, 0).tables)
    rows = np.repeat(data.X[:1], 4, axis=0)
    rows[:, SELLER] = [np.nan, -1, 140, 2.5]
    assert (columns.columns(rows)[:, -2:] == 0).all()
    single, double = (columns.columns(data.X.astype(kind)) for kind in (np.float32, np.float64))
    assert np.array_equal(single[:, -2:], double[:, -2:])


def test_order_of_queries_and_threads_change_nothing():
    data = shop(levels=140)
    turned = data.select(np.arange(data.n_queries)[::-1])
    folds = [
        [frozenset(one.qids[round.held_out].tolist()) for round in target_encoding._division(one, 0).rounds]
        for one in (data, turned)
    ]
    assert folds[0] == folds[1]
    assert [len(fold) for fold in folds[0]] == [12] * 5
    one, two = (tr.LinearRanker(target_encoding=LISTED, threads=threads).fit(data) for threads in (1, 2))
    assert np.array_equal(one.predict(data), two.predict(data))


def test_trees_go_on_with_the_same_columns_and_keep_to_directions():
    data = shop(levels=140)
    asked = {"num_leaves": 7, "threads": 1, "target_encoding": LISTED}
    first = tr.TreeRanker(n_trees=5, **asked).fit(data)
    both = tr.TreeRanker(n_trees=5, init_model=first, **asked).fit(data)
    whole = tr.TreeRanker(n_trees=10, **asked).fit(data)
    assert both.columns_ == first.columns_
    np.testing.assert_allclose(both.predict(data), whole.predict(data))
    for monotone in ({"number": 1}, [0, 0, 1]):
        ranker = tr.TreeRanker(n_trees=10, monotone=monotone, **asked).fit(data)
        assert ranker.directions_ == [0, 0, 1]
        higher = data.X.copy()
        higher[:, 2] += 0.5
        assert (ranker.predict(data.replace(X=higher)) >= ranker.predict(data)).all()
    with pytest.raises(DataError, match="both categorical and monotone"):
        tr.TreeRanker(monotone=[1, 0, 0], **asked).fit(data)
    with pytest.raises(DataError, match="refers to features by position"):
        tr.TreeRanker(lightgbm_params={"feature_contri": [1, 1, 1]}, **asked).fit(data)


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("always", "target_encoding must be 'auto', True, False, or a list"),
        (3, "target_encoding must be 'auto', True, False, or a list"),
        (["maker"], "maker"),
        (["number"], "number"),
        ([("seller", "seller")], "and pairs of names"),
        ([("seller", "kind", "number")], "target_encoding must be 'auto', True, False, or a list"),
        ([("seller", "kind")] * 11, "at most 10 pairs"),
    ],
)
def test_what_makes_no_sense_is_refused(asked, said):
    with pytest.raises(ToprankError, match=said):
        tr.LinearRanker(target_encoding=asked).fit(shop(n_queries=5))


def test_tables_have_a_million_cells_at_most():
    n = 3000
    frame = pd.DataFrame({"qid": np.arange(n) // 10, "label": np.arange(n) % 3, "number": np.arange(n) % 7})
    for name in ("one", "other"):
        frame[name] = pd.Categorical([f"{name}{i % 1200}" for i in range(n)])
    data = tr.RankingData.from_frame(frame)
    with pytest.raises(DataError, match="1,440,000 cells"):
        tr.LinearRanker(target_encoding=[("one", "other")]).fit(data)
    assert target_encoding._candidates(data.encoding)[1] == []


# ---- forged files ----


def forge(source, target, change_metadata=None, change_arrays=None):
    """A model file with another content, and the checksums of that."""
    import hashlib
    import io

    with zipfile.ZipFile(source) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    metadata = json.loads(parts["metadata.json"])
    if change_metadata:
        change_metadata(metadata)
    parts["metadata.json"] = json.dumps(metadata).encode()
    for name, array in (change_arrays or {}).items():
        buffer = io.BytesIO()
        np.lib.format.write_array(buffer, array, allow_pickle=False)
        parts[f"arrays/{name}.npy"] = buffer.getvalue()
    parts.pop("checksums.json")
    sums = {name: hashlib.sha256(content).hexdigest() for name, content in parts.items()}
    with zipfile.ZipFile(target, "w") as archive:
        for name, content in parts.items():
            archive.writestr(name, content)
        archive.writestr("checksums.json", json.dumps(sums))


def described(change):
    def changed(metadata):
        change(metadata["features"]["one_hot"])

    return changed


@pytest.mark.parametrize("name", ["trees", "linear"])
@pytest.mark.parametrize(
    ("metadata", "arrays", "said"),
    [
        (None, {"target_encoding_0": np.zeros(7, np.float32)}, "not a finite number for each level"),
        (None, {"target_encoding_0": np.full(140, np.nan, np.float32)}, "not a finite number for each level"),
        (None, {"target_encoding_0": np.zeros((140, 1), np.float32)}, "not a finite number for each level"),
        (None, {"target_encoding_2": np.zeros(140, np.float32)}, "do not match their tables"),
        (described(lambda one: one.update(means=[])), None, "do not match their tables"),
        (
            described(lambda one: one["means"][0].update(columns=[2])),
            None,
            "the description of a target encoding is invalid",
        ),
        (
            described(lambda one: one["means"][0].update(columns=[[]])),
            None,
            "the description of a target encoding is invalid",
        ),
        (
            described(lambda one: one["means"][0].update(shrinkage=-1)),
            None,
            "the description of a target encoding is invalid",
        ),
        (
            described(lambda one: one["means"][0].pop("columns")),
            None,
            "the description of a target encoding is invalid",
        ),
        (described(lambda one: one.update(kept=[[0], []])), None, "both a target encoding and one-hot columns"),
        (lambda metadata: metadata["features"].pop("one_hot"), None, "categories"),
        (lambda metadata: metadata["features"].pop("columns"), None, "target encodings, but no categories"),
    ],
)
def test_forged_tables_are_refused_in_a_sentence(name, metadata, arrays, said, tmp_path):
    RANKERS[name]().fit(shop(n_queries=30, levels=140)).save(tmp_path / "m.toprank")
    forge(tmp_path / "m.toprank", tmp_path / "forged.toprank", metadata, arrays)
    with pytest.raises(FormatError, match="inconsistent") as refusal:
        tr.load(tmp_path / "forged.toprank")
    assert said in str(refusal.value)


def test_a_table_equals_itself_alone():
    one, same = (TargetEncoding((0,), (2,), np.array([1.0, 2.0], np.float32), 1.0) for _ in range(2))
    other = TargetEncoding((0,), (2,), np.array([1.0, 3.0], np.float32), 1.0)
    assert one == same
    assert one != other
