"""Published tables: the figures, the sets in every layout, and the numbers beside them."""

from __future__ import annotations

import csv
import json
import os
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import t
from typer.testing import CliRunner

import toprank as tr
from toprank.cli.commands import app
from toprank.errors import DataError, FileError, UnknownNameError
from toprank.reproduce import SETS, STUDIES, Study, find_sets, reproduce
from toprank.reproduce.findings import Reproduction, published
from toprank.reproduce.running import reversed_rows
from toprank.reproduce.studies import Claim, Duel, PublishedTable
from toprank.reproduce.tables import nearest_convention

PUBLISHED = Path(os.environ.get("TOPRANK_DATA", "/nowhere")).parent / "published"
GOV = {"HP2003": "2003_hp_dataset", "NP2004": "2004_np_dataset", "TD2003": "2003_td_dataset"}


def toprank(*arguments):
    return CliRunner().invoke(app, list(map(str, arguments)))


def write_parts(folder, names, seed):
    folder.mkdir(parents=True)
    data = tr.synthetic(n_queries=30, n_documents=(4, 14), n_features=4, n_grades=3, seed=seed)
    for name, part in zip(names, tr.split(data, (1 / len(names),) * len(names)), strict=True):
        tr.write(part, folder / name)


@pytest.fixture(scope="module")
def letor(tmp_path_factory):
    """Sets in the layouts of their archives: LETOR 3.0 with its file names, LETOR 4.0, and partitions."""
    root = tmp_path_factory.mktemp("letor")
    old = ("trainingset.txt", "validationset.txt", "testset.txt")
    for seed, folder in enumerate(GOV.values()):
        for fold in (1, 2):
            write_parts(root / "Gov" / "QueryLevelNorm" / folder / f"Fold{fold}", old, 10 * seed + fold)
            write_parts(root / "Gov" / "NULL" / folder / f"Fold{fold}", old, 100 + 10 * seed + fold)
    for fold in (1, 2):
        write_parts(root / "OHSUMED" / "QueryLevelNorm" / f"Fold{fold}", old, 50 + fold)
        write_parts(root / "MQ2007" / f"Fold{fold}", ("train.txt", "vali.txt", "test.txt"), 60 + fold)
    write_parts(root / "MQ2008", [f"S{i}.txt" for i in range(1, 6)], 70)
    (root / "TD2004").mkdir()
    (root / "TD2004" / "readme.txt").write_text("nothing here")
    return root


def test_sets_are_found_in_every_layout(letor):
    found = find_sets(letor)
    assert list(found) == [name for name in SETS if name in (*GOV, "OHSUMED", "MQ2007", "MQ2008")]
    assert [len(its) for its in found.values()] == [2, 2, 5, 2, 2, 2]
    first = find_sets(letor, ["hp2003"])["HP2003"][0].train
    assert first.equals(tr.read(letor / "Gov" / "QueryLevelNorm" / GOV["HP2003"] / "Fold1" / "trainingset.txt"))


def test_sets_that_are_not_there(letor, tmp_path):
    with pytest.raises(
        FileError, match=r"TD2004, HP2004 was not found under .*no folder of that name contains LETOR folds"
    ):
        find_sets(letor, ["TD2004", "MQ2008", "HP2004"])
    with pytest.raises(UnknownNameError, match=r"LETOR set.*MQ2008"):
        find_sets(letor, ["MQ208"])
    with pytest.raises(FileError, match="No LETOR dataset was found under"):
        find_sets(tmp_path)
    with pytest.raises(DataError, match="sets is empty"):
        find_sets(letor, [])
    with pytest.raises(FileError, match="not a folder"):
        find_sets(tmp_path / "nowhere")
    with pytest.raises(UnknownNameError, match="study"):
        reproduce("cs-rglst", letor)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("cs-rglist-avgndcg", "csrglist_avgndcg"),
        ("cs-rglist-pcf", "csrglist_td2003_pcf"),
        ("cs-rglist-np2004", "csrglist_np2004"),
        ("owpc-map", "owpc_map"),
        ("owpc-ndcg1", "owpc_ndcg1"),
        ("owpc-ndcg3", "owpc_ndcg3"),
        ("bayes-optimal", "bayes_optimal_vs_linear"),
    ],
)
def test_figures_are_those_of_the_papers(ours, theirs):
    if not (PUBLISHED / f"{theirs}.csv").is_file():
        pytest.skip("the published tables lie beside TOPRANK_DATA, which is not set")
    lines = (PUBLISHED / f"{theirs}.csv").read_text().splitlines()
    header, *rows = csv.reader(line for line in lines if not line.startswith("#"))
    columns = [column for column in header[1:] if column != "Total"]
    expected = [float(row[header.index(column)]) for row in rows for column in columns]
    assert list(published(ours).values()) == expected


def test_every_row_of_a_table_is_a_system_of_its_study():
    for study in STUDIES.values():
        names = {*study.systems, *study.reversed_rows}
        for table in study.tables:
            assert {row for row, _ in published(table.figures)} <= names
        for claim in study.claims:
            assert {claim.better, *claim.worse} <= names
            assert claim.metric in study.metrics
        for duel in study.duels:
            assert {name for pair in duel.pairs for name in pair} <= names
            assert set(duel.metrics) <= set(study.metrics)
        assert set(study.reversed_rows.values()) <= names


@pytest.fixture(scope="module")
def small():
    """A study whose systems are quick: all rows of a published table, but least squares behind most of them."""
    rows = dict.fromkeys((row for row, _ in published("owpc-map")), "LeastSquares")
    return Study(
        name="small",
        paper="a paper",
        systems={**rows, "ListNet": "RankNet-linear", "other": "ListNet"},
        metrics=("map", "ndcg@1"),
        selection_metric="map",
        convention="letor3",
        tables=(PublishedTable("Table 1", "owpc-map", metric="map"),),
        claims=(
            Claim("ListNet wins", "ListNet", ("RankSVM", "other"), "map"),
            Claim("on HP2004", "ListNet", ("RankSVM",), "map", ("HP2004",)),
        ),
        duels=(Duel("counts", (("ListNet", "RankSVM"), ("other", "RankSVM")), ("map", "ndcg@1"), "bayes-optimal"),),
        reversed_rows={"turned": "other"},
    )


@pytest.fixture(scope="module")
def found(letor, small):
    return reproduce(small, letor, ["TD2003", "MQ2007"], threads=1)


def test_a_figure_is_the_mean_of_fold_means(letor, found):
    folds = find_sets(letor)["TD2003"]
    system = replace(tr.systems.get("RankNet-linear"), exact_grid=True)  # papers do not look beyond their grids
    chosen = [tr.grid_search(system, fold.train, fold.valid, metric="map", convention="letor3") for fold in folds]
    values = [
        tr.evaluate(one.ranker.predict(fold.test), fold.test, "map").per_query["map"]
        for one, fold in zip(chosen, folds, strict=True)
    ]
    [figure] = [one for one in found.figures("standard") if (one.dataset, one.system) == ("TD2003", "ListNet")]
    assert figure.ours == pytest.approx(np.mean([np.mean(part) for part in values]), abs=1e-12)
    spread = sum(np.var(part, ddof=1) / len(part) for part in values) ** 0.5 / len(values)
    reach = t.ppf(0.975, sum(len(part) - 1 for part in values)) * spread
    assert (figure.low, figure.high) == pytest.approx((figure.ours - reach, figure.ours + reach))
    assert figure.paper == published("owpc-map")["ListNet", "TD2003"]
    assert figure.difference == figure.ours - figure.paper


def test_sets_and_systems_without_a_published_figure_show_ours_beside_a_dash(found):
    figures = found.figures("letor3")
    assert {one.paper for one in figures if one.dataset == "MQ2007"} == {None}
    assert {one.paper for one in figures if one.system in ("other", "turned")} == {None}
    assert all(one.ours is not None for one in figures)
    [line] = [line for line in str(found).splitlines() if line.startswith("MQ2007") and " RankSVM " in line][:1]
    assert "–" in line


def test_the_convention_that_fits_is_the_nearest(found):
    gaps = {
        name: np.mean([abs(one.ours - one.paper) for one in found.figures(name) if one.paper is not None])
        for name in found.conventions
    }
    assert list(found.fit) == sorted(gaps, key=gaps.__getitem__)
    assert found.fit == pytest.approx(gaps)
    level = [name for name, gap in found.fit.items() if gap - min(gaps.values()) <= 1e-3]  # three decimals are printed
    assert list(found.nearest) == level
    if len(level) == 1:
        assert f"closest to ours under {level[0]}" in str(found)
    else:
        assert f"equally close to ours under {level[0]} ({gaps[level[0]]:.4f}), {level[1]}" in str(found)


@pytest.mark.parametrize(("apart", "nearest"), [(0.0001, ("letor3", "standard")), (0.0011, ("letor3",))])
def test_nearest_is_said_only_beyond_the_rounding_of_what_was_published(found, apart, nearest):
    close = Reproduction(found.study, found.sets, found.parts)
    close.__dict__["fit"] = {"letor3": 0.0112, "standard": 0.0112 + apart, "sklearn": 0.02}
    assert close.nearest == nearest
    told = nearest_convention(close)
    assert ("closest to ours under letor3" in told) == (len(nearest) == 1)
    assert ("equally close to ours under letor3 (0.0112), standard (0.0113)" in told) == (len(nearest) == 2)


def test_claims_are_judged_against_the_strongest_of_the_others(found):
    judged = {one.dataset: one for one in found.tested_claims("standard")}
    assert set(judged) == {"TD2003", "MQ2007"}
    for dataset, one in judged.items():
        means = {
            name: np.mean(np.concatenate(list(found.values(name, "map", dataset, "standard").values())))
            for name in ("ListNet", "RankSVM", "other")
        }
        strongest = max(("RankSVM", "other"), key=means.__getitem__)
        assert one.against == strongest
        assert one.difference == pytest.approx(means["ListNet"] - means[strongest])
        assert one.low <= one.difference <= one.high
        if one.p >= 0.05:
            assert "within noise" in one.verdict
    assert found.untested_claims() == ["on HP2004"]


def test_cases_are_counted_by_the_randomization_test(found):
    for one in found.counts("standard"):
        cases = []
        for new in ("ListNet", "other"):
            for metric in ("map", "ndcg@1"):
                a, b = (
                    np.concatenate(list(found.values(name, metric, one.dataset, "standard").values()))
                    for name in (new, "RankSVM")
                )
                p = tr.significance.randomization_test(a, b, seed=0).p
                cases.append("same" if p >= 0.05 else "better" if a.mean() > b.mean() else "worse")
        assert (one.better, one.same, one.worse) == tuple(map(cases.count, ("better", "same", "worse")))
    told = [one for one in found.counts("letor4") if one.paper is not None]
    gaps = sum(abs(a - b) for one in told for a, b in zip(one.paper[:3], one.tally, strict=True))
    assert found.count_fit["letor4"] == gaps // 2
    assert list(found.count_fit.values()) == sorted(found.count_fit.values())
    assert all(name in str(found) for name in found.conventions)
    papers = {one.dataset: one.paper for one in found.counts("standard")}
    assert papers == {"TD2003": (0, 9, 0, 6.8), "MQ2007": None}


def test_a_folder_that_may_not_be_read_is_passed_over(letor, monkeypatch):
    (letor / "locked").mkdir()

    def refusing(function):
        def listed(path=".", *rest):
            if str(path).endswith("locked"):
                raise PermissionError(13, "Permission denied", str(path))
            return function(path, *rest)

        return listed

    for name in ("listdir", "scandir"):
        monkeypatch.setattr(os, name, refusing(getattr(os, name)))
    assert "HP2003" in find_sets(letor)


def test_reversed_rows_change_the_order_within_queries_only():
    data = tr.synthetic(n_queries=5, n_documents=(2, 6), seed=0)
    turned = reversed_rows(data)
    assert turned.qids.tolist() == data.qids.tolist()
    for q in range(data.n_queries):
        rows = slice(*data.queries.offsets[q : q + 2])
        np.testing.assert_array_equal(turned.X[rows], data.X[rows][::-1])
        np.testing.assert_array_equal(turned.labels[rows], data.labels[rows][::-1])
    assert reversed_rows(turned).equals(data)
    assert not turned.equals(data)


def test_output_is_text_markdown_and_json(found):
    text, page = str(found), found.to_markdown()
    for part in ("Under letor3", "Under standard", "Claims", "Cannot be tested on these datasets: on HP2004"):
        assert part in text
    assert "| set | metric | system | paper | ours | difference | interval |" in page
    plain = json.loads(json.dumps(found.to_dict()))
    assert {one["convention"] for one in plain["figures"]} == set(found.conventions)
    assert len(plain["figures"]) == len(found.conventions) * len(found.figures("standard"))


def test_the_command_on_a_small_set(letor, tmp_path):
    done = toprank(
        "reproduce", "cs-rglist", "--data", letor, "--sets", "TD2003,NP2004", "--cache-dir", tmp_path, "--quiet"
    )
    assert done.exit_code == 0, done.output
    for title in (
        "Table 1: AvgNDCG",
        "Table 2: costs on TD2003",
        "Table 3: NP2004",
        "Published figures, under every convention",
    ):
        assert title in done.stdout
    assert "cs-RgList pCf=6" in done.stdout
    wrong = toprank("reproduce", "cs-rglist", "--data", tmp_path / "nowhere")
    assert isinstance(wrong.exception, FileError)


@pytest.mark.nightly
@pytest.mark.parametrize("study", ["owpc", "bayes-optimal"])
def test_the_other_studies_run_on_synthetic_folds(letor, study):
    found = reproduce(study, letor, ["HP2003", "OHSUMED"])
    assert not [failure for part in found.parts for failure in part.failures]
    assert found.tested_claims("letor3")


def test_several_tolerances_are_one_descent():
    """What `ListMLE` of the study relies on: each tolerance is reached from the one before."""
    train, valid = tr.split(tr.synthetic(n_queries=40, seed=2), (0.5, 0.5))
    options = {"l2": 0.0, "solver": tr.solvers.GradientDescent(learning_rate=0.01)}
    many = tr.LinearRanker("ListMLE", tolerance=[1e-3, 1e-1, 1e-2], max_iterations=5000, **options)
    many.fit(train, valid=valid)
    rows = many.path_
    assert [row["tolerance"] for row in rows] == [1e-1, 1e-2, 1e-3]
    steps = np.cumsum([row["iterations"] for row in rows])
    for row, taken in zip(rows, steps, strict=True):
        alone = tr.LinearRanker("ListMLE", tolerance=row["tolerance"], max_iterations=5000, **options)
        alone.fit(train, valid=valid)
        assert alone.path_[0]["valid"] == pytest.approx(row["valid"], abs=1e-12)
        assert alone.path_[0]["iterations"] == pytest.approx(taken, abs=len(rows))  # a new start looks once more
    assert many.training_["valid"]["ndcg@10"] == max(row["valid"] for row in rows)
    with pytest.raises(DataError, match="Several tolerances"):
        tr.LinearRanker("ListMLE", tolerance=[1e-3, 1e-1]).fit(train)
