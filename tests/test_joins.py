"""A table that has everything at once: words, categories with many levels, numbers, a teacher's scores and judges.

What each of them does alone is tested elsewhere; here one must not lose, see or change what belongs to another.
"""

from __future__ import annotations

import json
import warnings
import zipfile

import numpy as np
import pandas as pd
import pytest
import sklearn
from sklearn.model_selection import GridSearchCV, GroupKFold

import toprank as tr
from toprank import losses
from toprank.data.warnings import SameJudgeWarning
from toprank.errors import DataError
from toprank.rankers.model_files import FORMAT_VERSION

WORDS = ["red", "blue", "shoe", "boot", "lamp", "desk", "chair", "mat", "cup", "pan"]
ROLES = {"query": "search_term", "document": ["title"]}


def table(n_queries=60, size=10, sellers=150, seed=0):
    """What sells hangs on the price, on words in common, and on which of many sellers it is."""
    rng = np.random.default_rng(seed)
    worth, rows = rng.normal(size=sellers), []
    for query in range(n_queries):
        asked = rng.choice(WORDS, 2, replace=False)
        for place in range(size):
            title, seller, price = rng.choice(WORDS, 4), int(rng.integers(sellers)), rng.normal()
            liking = len(set(asked) & set(title)) + worth[seller] - price + rng.normal() / 2
            rows.append(
                {
                    "qid": f"q{query}",
                    "document_id": f"d{query}-{place}",
                    "label": float(np.clip(np.round(liking), 0, 4)),
                    "old_score": liking,
                    "judge": ("ann", "gpt")[query % 2],
                    "search_term": " ".join(asked),
                    "title": " ".join(title),
                    "price": price,
                    "seller": f"s{seller}",
                    "kind": "abc"[seller % 3],
                }
            )
    return pd.DataFrame(rows)


FRAME = table()
DATA = tr.RankingData.from_frame(FRAME, teacher="old_score", text=ROLES, metadata=["judge"])
TRAIN, TEST = tr.split(DATA, (0.7, 0.3))
ROWS = FRAME[FRAME.qid.isin(TEST.qids)]


def trees(loss="LambdaRank", **options):
    return tr.TreeRanker(loss, n_trees=6, num_leaves=6, threads=1, target_encoding=["seller"], **options)


RANKERS = {
    "linear": lambda: tr.LinearRanker("ListNet", target_encoding=["seller"]),
    "linear by a teacher": lambda: tr.LinearRanker(losses.SoftmaxKL(), target_encoding=["seller"]),
    "trees": trees,
    "trees by a teacher": lambda: trees(losses.SoftmaxKL()),
    "trees by chance": lambda: trees("YetiRank"),
    "blend": lambda: tr.BlendRanker([RANKERS["linear"](), trees()], weights=[1.0, 2.0]),
}


@pytest.fixture(scope="module")
def fitted():
    return {name: make().fit(TRAIN) for name, make in RANKERS.items()}


@pytest.mark.parametrize("name", RANKERS)
def test_rows_are_scored_alike_whatever_they_come_in(name, fitted, tmp_path):
    ranker = fitted[name]
    scores = ranker.predict(TEST)
    ranker.save(tmp_path / "m.toprank")
    loaded = tr.load(tmp_path / "m.toprank")
    tr.write(TEST, tmp_path / "t.toprank-data")
    tr.write(TEST, tmp_path / "t.parquet")
    for one in (ranker, loaded):
        for rows in (
            ROWS,
            ROWS.iloc[:, ::-1],
            TEST.to_frame(),
            TEST.to_frame("arrow"),
            tr.RankingData.from_frame(ROWS, like=one),
            tr.RankingData.from_frame(ROWS, like=TRAIN),
            tr.read(tmp_path / "t.toprank-data"),
            tr.read(tmp_path / "t.parquet", like=one),
        ):
            np.testing.assert_array_equal(one.predict(rows), scores)
        assert one.rank(ROWS, k=3) == one.rank(TEST, k=3)
        assert one.training_["fingerprint"] == TRAIN.fingerprint
        assert one.training_["judges"] == ["ann", "gpt"]
    assert tr.export(ranker, "python", tmp_path / "m.py", check=TEST).n_mismatches == 0
    assert ranker.feature_importances_.shape == (ranker.n_features_in_,)
    reason = ranker.explain(TEST, TEST.qids[0])
    assert set(reason.contributions) == set(ranker.feature_names_in_)
    assert sum(reason.contributions.values()) == pytest.approx(reason.total, abs=1e-9)


@pytest.mark.parametrize("name", [name for name in RANKERS if name != "blend"])
def test_columns_made_of_words_are_columns_like_any_others(name, fitted):
    """The ranker of all at once is that of a table in which the words were numbers before."""
    ranker, plain = fitted[name], fitted[name].text_.transform
    again = RANKERS[name]().fit(plain(TRAIN))
    assert again.text_ is None
    np.testing.assert_array_equal(again.predict(plain(TEST)), ranker.predict(TEST))


def test_words_do_not_change_the_means_of_levels(fitted):
    bare = TRAIN.replace(metadata={"judge": TRAIN.metadata["judge"]})
    assert bare.text is None
    [of_words], [alone] = (one.columns_.means for one in (fitted["linear"], RANKERS["linear"]().fit(bare)))
    assert of_words == alone


def test_the_members_of_a_blend_see_what_they_see_alone(fitted, tmp_path):
    blend, alone = fitted["blend"], [fitted["linear"], fitted["trees"]]
    factors = blend.weights_ / blend.scales_
    expected = sum(factor * one.predict(TEST) for factor, one in zip(factors, alone, strict=True))
    np.testing.assert_allclose(blend.predict(TEST), expected, rtol=1e-12)
    joined = tr.BlendRanker.from_fitted(alone, TRAIN, [1.0, 2.0])
    np.testing.assert_allclose(joined.predict(ROWS), expected, rtol=1e-12)
    joined.save(tmp_path / "m.toprank")
    with pytest.warns(SameJudgeWarning, match="ann, gpt"):
        tr.load(tmp_path / "m.toprank").score(TEST)


def test_documents_without_a_judgment_teach_nothing_of_levels():
    """A loss that reads no labels takes them, and the means of levels are those of the judged documents."""
    judged = np.random.default_rng(1).random(TRAIN.n_documents) < 0.6
    some = TRAIN.replace(labels=np.where(judged, TRAIN.labels, np.nan))
    ranker = tr.LinearRanker(losses.SoftmaxKL(), target_encoding=True).fit(some)
    [known], [expected] = (
        one.columns_.means
        for one in (ranker, tr.LinearRanker("ListNet", target_encoding=True).fit(some.filter(judged)))
    )
    np.testing.assert_allclose(known.table, expected.table, rtol=1e-6)
    assert known.shrinkage == pytest.approx(expected.shrinkage)
    assert ranker.training_["documents"] == TRAIN.n_documents


def test_parts_and_copies_hold_everything(tmp_path):
    pieces = [DATA.select([3, 4]), DATA.select([0]), DATA.select([1])]
    assert tr.concatenate(pieces).equals(DATA.select([3, 4, 0, 1]))
    assert tr.concatenate(pieces).fingerprint == DATA.select([3, 4, 0, 1]).fingerprint
    first = DATA.filter(np.arange(DATA.n_documents) % 2 == 0)
    again = tr.RankingData.from_frame(FRAME.iloc[::2], teacher="old_score", metadata=["judge"], like=DATA)
    assert first.equals(again)
    for name in ("t.toprank-data", "t.parquet"):
        tr.write(DATA, tmp_path / name)
        again = tr.read(tmp_path / name)
        assert again.equals(DATA)
        assert again.fingerprint == DATA.fingerprint
    assert TRAIN.text == DATA.text
    assert sorted([*TRAIN.document_ids, *TEST.document_ids]) == sorted(DATA.document_ids)
    others = [
        DATA.replace(teacher=None),
        DATA.replace(teacher=DATA.teacher + 1),
        DATA.replace(metadata=dict(DATA.metadata)),
        DATA.replace(text={"query": "title", "document": ["search_term"]}),
        DATA.replace(metadata={**DATA.metadata, "judge": np.full(DATA.n_queries, "ann")}, text=ROLES),
        DATA.replace(encoding=None),
    ]
    assert len({DATA.fingerprint, *(one.fingerprint for one in others)}) == 1 + len(others)
    assert not any(DATA.equals(one) for one in others)


def test_files_have_one_version_each(fitted, tmp_path):
    plain = tr.synthetic(n_queries=12, seed=0)
    tr.LinearRanker().fit(plain).save(tmp_path / "plain.toprank")
    fitted["blend"].save(tmp_path / "all.toprank")
    versions = [json.loads(zipfile.ZipFile(path).read("metadata.json"))["format_version"]
                for path in (tmp_path / "plain.toprank", tmp_path / "all.toprank")]  # fmt: skip
    assert versions == [FORMAT_VERSION] * 2
    for name, data in (("plain", plain), ("all", DATA)):
        tr.write(data, tmp_path / f"{name}.toprank-data")
    metas = [json.loads((tmp_path / f"{name}.toprank-data" / "meta.json").read_text()) for name in ("plain", "all")]
    assert metas[0]["version"] == metas[1]["version"]


@pytest.mark.parametrize("version", [1, 2, 3, 4])
def test_a_stored_copy_of_an_earlier_version_is_read(version, tmp_path):
    """Each of them said no more than it knew, in the words of today."""
    data = {
        1: tr.synthetic(n_queries=5, seed=0),
        2: DATA.replace(encoding=None, teacher=None, metadata={"a": DATA.qids}),
    }
    data |= {3: DATA.replace(teacher=None, metadata={}), 4: DATA.replace(metadata={})}
    path = tmp_path / "old.toprank-data"
    tr.write(data[version], path)
    meta = json.loads((path / "meta.json").read_text())
    (path / "meta.json").write_text(json.dumps(meta | {"version": version}))
    assert tr.read(path).equals(data[version])


def test_text_of_numbers_alone_is_refused_where_words_were_learned(fitted, tmp_path):
    n = fitted["linear"].n_features_in_
    numbers = tr.synthetic(n_queries=3, n_features=n, seed=0).replace(feature_names=None)
    tr.write(numbers, tmp_path / "t.txt")
    for name in ("linear", "blend"):
        with pytest.raises(DataError, match=r"query text \('search_term'\).*LETOR text has neither text columns"):
            fitted[name].predict(tr.read(tmp_path / "t.txt", n_features=n))


def test_a_search_and_a_portfolio_learn_words_of_their_own_training_parts(tmp_path):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of rankers in the portfolio that did not converge
        auto = tr.AutoRanker(time_budget=None, max_trials=2, threads=1, verbose=False).fit(TRAIN)
        found = tr.grid_search("ListNet", TRAIN, TEST, threads=1).ranker
    for ranker in (auto, found):
        scores = ranker.predict(TEST)
        np.testing.assert_array_equal(ranker.predict(ROWS), scores)
        ranker.save(tmp_path / "m.toprank")
        loaded = tr.load(tmp_path / "m.toprank")
        np.testing.assert_array_equal(loaded.predict(ROWS), scores)
        assert loaded.training_["judges"] == ["ann", "gpt"]


def test_scikit_learn_divides_rows_with_categories_of_many_levels():
    X, y, qid = FRAME[["price", "seller", "kind"]], FRAME.label, FRAME.qid
    with sklearn.config_context(enable_metadata_routing=True):
        grid = {"l2": [0.01, 1.0]}
        search = GridSearchCV(RANKERS["linear"](), grid, cv=GroupKFold(3), scoring=tr.make_scorer("ndcg@5"))
        search.fit(X, y, qid=qid, groups=qid)
    for number, l2 in enumerate(grid["l2"]):
        values = []
        for inside, outside in GroupKFold(3).split(X, y, qid):
            one = tr.LinearRanker("ListNet", l2=l2, target_encoding=["seller"])
            one.fit(X.iloc[inside], y.iloc[inside], qid.iloc[inside])
            rows = tr.RankingData.from_frame(FRAME.iloc[outside], like=one, text=False)
            values.append(tr.evaluate(one.predict(rows), rows, "ndcg@5").mean["ndcg@5"])
        assert search.cv_results_["mean_test_score"][number] == pytest.approx(np.mean(values))


@pytest.mark.parametrize(("size", "share"), [(1, 0.5), (3, 0.3)])
def test_a_share_of_rows_that_is_none_is_refused_in_our_words(size, share):
    data = tr.RankingData(np.arange(size, dtype=float)[:, None], np.arange(size))
    with pytest.raises(DataError, match=rf"row_fraction={share} of {size} documents? leaves? none"):
        tr.TreeRanker("YetiRank", row_fraction=share, threads=1).fit(data)


def test_a_ranker_is_no_system_to_search():
    with pytest.raises(DataError, match="A system must be given by name"):
        tr.grid_search(trees(), TRAIN, TEST)
