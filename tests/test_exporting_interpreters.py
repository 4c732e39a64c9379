"""The readers of the targets' files: hand-written files against formulas, and against the tools themselves."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest

from toprank.errors import FormatError
from toprank.exporters.interpreters import elastic, ranklib, solr, vespa

NAMES = ("title", "price")
NAN = float("nan")
SINGLE = np.float32(0.1)
JUST_BELOW, JUST_ABOVE = np.nextafter(SINGLE, np.float32(0)), np.nextafter(SINGLE, np.float32(1))


def body(definition: Any, kind: str = "model/xgboost+json", **more: Any) -> str:
    inner = {"type": kind, "definition": json.dumps(definition), **more}
    return json.dumps({"model": {"name": "m", "model": inner}})


def stump(missing: int = 2, **more: Any) -> dict[str, Any]:
    children = [{"nodeid": 1, "leaf": 1.0}, {"nodeid": 2, "leaf": 2.0}]
    node = {"nodeid": 0, "depth": 0, "split": "title", "split_condition": 0.1, "yes": 1, "no": 2, "missing": missing}
    return {**node, "children": children, **more}


class TestElastic:
    def test_left_is_strictly_below_in_single_precision(self) -> None:
        X = np.array([[JUST_BELOW, 0], [SINGLE, 0], [JUST_ABOVE, 0]], dtype=np.float64)
        assert elastic.score(body([stump()]), X, NAMES, "node").tolist() == [1.0, 2.0, 2.0]

    @pytest.mark.parametrize(
        ("rule", "missing", "expected"),
        [("zero", 2, 1.0), ("zero", 1, 1.0), ("right", 1, 2.0), ("right", 2, 2.0), ("node", 1, 1.0), ("node", 2, 2.0)],
    )
    def test_missing_values_by_version(self, rule: Any, missing: int, expected: float) -> None:
        assert elastic.score(body([stump(missing)]), [[NAN, 0.0]], NAMES, rule).tolist() == [expected]

    def test_sums_are_single_precision_in_the_order_of_the_trees(self) -> None:
        leaves = [1e8, 1.0, -1e8]
        model = body([{"nodeid": 0, "leaf": leaf} for leaf in leaves])
        total = np.float32(0)
        for leaf in leaves:
            total += np.float32(leaf)
        assert elastic.score(model, [[0.0, 0.0]], NAMES, "node").tolist() == [float(total)] != [sum(leaves)]

    def test_a_sigmoid_for_logistic_objectives_alone(self) -> None:
        for objective, expected in (("rank:pairwise", 1.0), ("binary:logistic", 1 / (1 + np.exp(-1.0)))):
            model = body({"objective": objective, "splits": [stump()]})
            assert elastic.score(model, [[0.0, 0.0]], NAMES, "node")[0] == np.float32(expected)

    def test_linear_without_missing_values_and_with_normalizers(self) -> None:
        model = body({"price": 0.1}, "model/linear")
        assert elastic.score(model, [[5.0, 3.0], [1.0, NAN]], NAMES, "node").tolist() == [SINGLE * np.float32(3), 0.0]
        norms = {"price": {"standard": {"mean": 1.0, "standard_deviation": 4.0}}}
        model = body({"price": 2.0}, "model/linear", feature_normalizers=norms)
        assert elastic.score(model, [[5.0, 3.0], [1.0, NAN]], NAMES, "node").tolist() == [1.0, -0.5]

    def test_a_feature_set_reads_fields(self) -> None:
        def feature(field: str, query: Any, **missing: float) -> dict[str, Any]:
            value = {"query": query, "field_value_factor": {"field": field, **missing}, "boost_mode": "replace"}
            return {
                "name": "of_" + field,
                "params": [],
                "template_language": "mustache",
                "template": {"function_score": value},
            }

        exists, always = {"exists": {"field": "title"}}, {"match_all": {}}
        features = [feature("price", always, missing=7.5), feature("title", exists)]
        text = json.dumps({"featureset": {"name": "s", "features": features}})
        values, names = elastic.feature_values(text, [[NAN, NAN], [1.0, 2.0]], NAMES)
        assert names == ("of_price", "of_title")
        np.testing.assert_array_equal(values, [[7.5, NAN], [2.0, 1.0]])
        with pytest.raises(FormatError, match="lacks the field"):
            elastic.feature_values(
                json.dumps({"featureset": {"name": "s", "features": [feature("price", always)]}}), [[0, 0]], NAMES
            )

    def test_a_feature_asks_for_terms(self) -> None:
        def asked(*functions: Any, **more: Any) -> Any:
            score = {"query": {"match_all": {}}, "functions": [*functions], "score_mode": "first", **more}
            feature = {"name": "b", "params": [], "template_language": "mustache"}
            template = {"function_score": {"boost_mode": "replace", **score}}
            text = json.dumps({"featureset": {"name": "s", "features": [{**feature, "template": template}]}})
            cells = {"brand": np.array(["x", "y", None, "new", "42"], dtype=object)}
            return elastic.feature_values(text, np.zeros((5, 0)), (), cells)[0][:, 0].tolist()

        def term(level: Any, weight: float) -> Any:
            return {"filter": {"term": {"brand": level}}, "weight": weight}

        assert asked(term("x", 3), term("y", 2.5), term("x", 9), {"weight": 0}) == [3.0, 2.5, 0.0, 0.0, 0.0]
        assert asked(term("x", 3)) == [3.0, 1.0, 1.0, 1.0, 1.0], "what no function matches scores 1"
        assert asked(term(42, 3), {"weight": 0}) == [0.0] * 5, "a text is no number"
        for wrong in ({"score_mode": "sum"}, {"boost_mode": "multiply"}, {"query": {"exists": {"field": "brand"}}}):
            with pytest.raises(FormatError, match="must match all documents"):
                asked(term("x", 3), **wrong)
        with pytest.raises(FormatError, match="negative"):
            asked(term("x", -3))

    @pytest.mark.parametrize(
        "wrong",
        [
            [stump(gain=1.0)], [stump(cover=1.0)], [stump(split="other")], [stump(missing=3)], [stump(yes=2)], [], {},
            {"objective": "rank:xendcg", "splits": [stump()]}, {"splits": [stump()], "base_score": 0.5},
            [{key: value for key, value in stump().items() if key != "missing"}], [stump(depth=0.5)],
            [stump(split_condition="0.1")], [{"leaf": 1.0}], [stump(split_condition=True)],
        ],
    )  # fmt: skip
    def test_the_parser_is_strict(self, wrong: Any) -> None:
        with pytest.raises(FormatError):
            elastic.score(body(wrong), [[0.0, 0.0]], NAMES, "node")

    def test_a_definition_is_a_text_and_json(self) -> None:
        with pytest.raises(FormatError, match="definition"):
            elastic.score(
                json.dumps({"model": {"name": "m", "model": {"type": "model/linear", "definition": {}}}}),
                [],
                (),
                "node",
            )
        with pytest.raises(FormatError, match="NaN"):
            elastic.score(body({"price": NAN}, "model/linear"), [[0.0, 0.0]], NAMES, "node")
        with pytest.raises(FormatError, match="other"):
            elastic.score(body({"other": 1.0}, "model/linear"), [[0.0, 0.0]], NAMES, "node")

    def test_agrees_with_xgboost_about_models_it_dumped(self) -> None:
        rng = np.random.default_rng(0)
        xgboost = pytest.importorskip("xgboost")
        X = rng.normal(size=(400, 4)).astype(np.float32)
        X[rng.random(X.shape) < 0.2] = np.nan
        y = np.nan_to_num(X[:, 0]) + np.isnan(X[:, 1]) * X[:, 2] ** 2
        data = xgboost.DMatrix(X, np.nan_to_num(y), feature_names=["a", "b", "c", "d"])
        written = {"max_depth": 5, "base_score": 0.0, "nthread": 1, "objective": "reg:squarederror"}
        booster = xgboost.train(written, data, num_boost_round=12)
        trees = [json.loads(tree) for tree in booster.get_dump(dump_format="json")]
        cuts = [node for tree in trees for node in walked(tree) if "split_condition" in node]
        for node in cuts:  # a value on each threshold, where the rule decides
            row = rng.integers(len(X))
            X[row, "abcd".index(node["split"])] = node["split_condition"]
        found = elastic.score(body(trees), X, ("a", "b", "c", "d"), "node")
        expected = booster.predict(xgboost.DMatrix(X, feature_names=["a", "b", "c", "d"]))
        assert np.abs(found - expected).max() <= 12 * np.spacing(np.abs(expected).max())


def walked(node: dict[str, Any]) -> list[dict[str, Any]]:
    return [node, *(found for child in node.get("children", ()) for found in walked(child))]


def solr_model(kind: str, params: Any, features: Any = None) -> str:
    named = features or [{"name": name} for name in NAMES]
    made = {
        "class": "org.apache.solr.ltr.model." + kind,
        "name": "m",
        "store": "s",
        "features": named,
        "params": params,
    }
    return json.dumps(made)


def solr_stump(**more: Any) -> dict[str, Any]:
    root = {"feature": "title", "threshold": "0.5", "left": {"value": "1"}, "right": {"value": "2"}, **more}
    return {"weight": "2", "root": root}


class TestSolr:
    def test_a_feature_asks_for_terms(self) -> None:
        cells = {"my field": np.array(["x", 'y" \\', None, "new", 42], dtype=object)}

        def asked(query: str) -> Any:
            entry = {"name": "b", "class": "org.apache.solr.ltr.feature.SolrFeature", "params": {"q": query}}
            return solr.feature_values(json.dumps([entry]), np.zeros((5, 0)), (), cells)[0][:, 0].tolist()

        assert asked(r'my\ field:"x"^=3 my\ field:"y\" \\"^=4 my\ field:"42"^=5') == [3.0, 4.0, 0.0, 0.0, 5.0]
        assert asked(r'my\ field:"x"^=3 my\ field:"x"^=4')[0] == 7.0, "clauses that match are added"
        wrong = (r'my\ field:"x"^3', r"my\ field:x^=3", r'my\ field:"x"^=3 OR', r'my\ field:"x"^=-3', "*:*")
        for query in (*wrong, " ".join([r'my\ field:"x"^=3'] * 1025)):
            with pytest.raises(FormatError, match="1,024 clauses"):
                asked(query)
        with pytest.raises(FormatError, match="parameter"):
            asked(r'my\ field:"${x}"^=3')

    def test_thresholds_have_a_slack(self) -> None:
        limit = np.float32(0.5) + np.float32(1e-6)
        X = [[limit, 0], [np.nextafter(limit, np.float32(1)), 0], [0.5, 0]]
        model = solr_model("MultipleAdditiveTreesModel", {"trees": [solr_stump()]})
        assert solr.score(model, X, NAMES).tolist() == [2.0, 4.0, 2.0]

    def test_missing_values(self) -> None:
        plain = solr_model("MultipleAdditiveTreesModel", {"trees": [solr_stump(threshold="-1")]})
        assert solr.score(plain, [[0, 0]], NAMES).tolist() == solr.score(plain, [[NAN, 0]], NAMES).tolist() == [4.0]
        store = {"name": "title", "class": "org.apache.solr.ltr.feature.FieldValueFeature"}
        for default, expected in ((None, 0.0), ("7.5", 7.5), ("NaN", NAN)):
            params = {"field": "price"} if default is None else {"field": "price", "defaultValue": default}
            values, names = solr.feature_values(
                json.dumps([{**store, "params": params}]), [[1.0, NAN], [1.0, 2.0]], NAMES
            )
            assert names == ("title",)
            np.testing.assert_array_equal(values[:, 0], [expected, 2.0])
        for side, expected in (("left", 2.0), ("right", 4.0)):
            trees = [solr_stump(missing=side)]
            model = solr_model("MultipleAdditiveTreesModel", {"isNullSameAsZero": False, "trees": trees})
            assert solr.score(model, [[NAN, 0]], NAMES).tolist() == [expected]
        model = solr_model("MultipleAdditiveTreesModel", {"isNullSameAsZero": False, "trees": [solr_stump()]})
        with pytest.raises(FormatError, match="missing"):
            solr.score(model, [[NAN, 0]], NAMES)

    def test_linear_and_normalizers(self) -> None:
        norm = {"class": "org.apache.solr.ltr.norm.StandardNormalizer", "params": {"avg": "1", "std": "4"}}
        features = [{"name": "price", "norm": norm}]
        model = solr_model("LinearModel", {"weights": {"price": 2.0}}, features)
        assert solr.score(model, [[9.0, 3.0]], NAMES).tolist() == [1.0]

    def test_networks(self) -> None:
        layers = [
            {"matrix": [[1.0, -2.0], [0.5, 0.25]], "bias": [0.0, 1.0], "activation": "relu"},
            {"matrix": [[1.0, 2.0]], "bias": [-1.0], "activation": "tanh"},
            {"matrix": [[3.0]], "bias": [0.5], "activation": "sigmoid"},
            {"matrix": [[-1.0]], "bias": [0.0], "activation": "leakyrelu"},
        ]
        hidden = np.maximum(np.array([[1.0, -2.0], [0.5, 0.25]]) @ [2.0, 3.0] + [0.0, 1.0], 0.0)
        sigmoid = 1 / (1 + np.exp(-(3 * np.tanh(hidden @ [1.0, 2.0] - 1.0) + 0.5)))
        found = solr.score(solr_model("NeuralNetworkModel", {"layers": layers}), [[2.0, 3.0]], NAMES)
        assert found[0] == pytest.approx(-0.01 * sigmoid, rel=1e-6)

    @pytest.mark.parametrize(
        ("kind", "params"),
        [
            ("LinearModel", {"weights": {"title": 1.0}}),
            ("OtherModel", {}),
            ("MultipleAdditiveTreesModel", {}),
            ("MultipleAdditiveTreesModel", {"trees": [{"root": {"value": "1"}}]}),
            ("MultipleAdditiveTreesModel", {"trees": [solr_stump(threshold=0.5)]}),
            ("MultipleAdditiveTreesModel", {"trees": [solr_stump(feature="other")]}),
            ("MultipleAdditiveTreesModel", {"trees": [solr_stump()], "isNullSameAsZero": "false"}),
            ("NeuralNetworkModel", {"layers": [{"matrix": [[1, 2]], "bias": [0.0], "activation": "relu"}]}),
            ("NeuralNetworkModel", {"layers": [{"matrix": [[1.0]], "bias": [0.0], "activation": "relu"}]}),
            ("NeuralNetworkModel", {"layers": [{"matrix": [[1.0, 2.0]], "bias": [0.0], "activation": "gelu"}]}),
        ],
    )
    def test_what_solr_refuses_or_would_score_in_silence(self, kind: str, params: Any) -> None:
        with pytest.raises(FormatError):
            solr.score(solr_model(kind, params), [[0.0, 0.0]], NAMES)


def lightgbm_file(threshold: float | str = 0.1, default_left: bool = False, **more: Any) -> str:
    sides = {"left_child": {"leaf_value": 1.0}, "right_child": {"leaf_value": 2.0}}
    root = {"split_feature": 0, "threshold": threshold, "decision_type": "<=", "default_left": default_left, **sides}
    trees = [{"tree_structure": {**root, **more}}, {"tree_structure": {"leaf_value": 0.1}}]
    return json.dumps(
        {
            "objective": "lambdarank",
            "feature_names": ["bm25(title)", "price"],
            "tree_info": trees,
            "pandas_categorical": [],
        }
    )


class TestVespa:
    names = ("bm25(title)", "price")

    def test_left_is_strictly_below_and_the_direction_of_missing_values(self) -> None:
        X = [[np.nextafter(0.1, 0), 0], [0.1, 0], [NAN, 0]]
        assert vespa.score(lightgbm_file(), X, self.names).tolist() == [1.1, 2.1, 2.1]
        assert vespa.score(lightgbm_file(default_left=True), X, self.names).tolist() == [1.1, 2.1, 1.1]

    def test_texts_are_looked_up_in_sets(self) -> None:
        cells, X = {"price": np.array(["a", "b", None, "c", "2"], dtype=object)}, np.zeros((5, 2))
        model = json.loads(lightgbm_file("0||2", decision_type="==", split_feature=1))
        model |= {"feature_infos": {"price": {"values": [0, 1, 2]}}, "pandas_categorical": [["a", "b", "c"]]}
        assert vespa.score(json.dumps(model), X, self.names, cells=cells).tolist() == [1.1, 2.1, 2.1, 1.1, 2.1]
        without = json.dumps({**model, "feature_infos": {}})
        assert vespa.score(without, X, self.names, cells=cells)[4] == 1.1, "codes stand for themselves without a list"
        for level in ('"', "\\"):
            odd = json.dumps({**model, "pandas_categorical": [[level, "b", "c"]]})
            with pytest.raises(FormatError, match="ranking expression"):
                vespa.score(odd, X, self.names, cells=cells)

    def test_large_models_hold_singles(self) -> None:
        assert float(SINGLE) > 0.1
        X = [[0.1, 0], [float(SINGLE), 0]]
        assert vespa.score(lightgbm_file(), X, self.names, single=True).tolist() == [1.0 + SINGLE, 2.0 + SINGLE]
        assert not vespa.holds_singles([5.0] * 500, [64] * 390)
        assert vespa.holds_singles([5.1] * 500, [64] * 390)
        assert not vespa.holds_singles([5.1] * 500, [12] * 500)
        assert vespa.holds_singles([2.0] * 500, [64] * 391)

    def test_what_the_importer_refuses(self) -> None:
        whole = json.loads(lightgbm_file())
        for key in ("objective", "pandas_categorical"):
            with pytest.raises(FormatError, match=key):
                vespa.score(json.dumps({k: v for k, v in whole.items() if k != key}), [[0, 0]], self.names)
        with pytest.raises(FormatError, match="categories"):
            vespa.score(lightgbm_file(decision_type="=="), [[0, 0]], self.names)
        with pytest.raises(FormatError, match="categories"):
            vespa.score(lightgbm_file(), [[0, 0]], self.names, cells={"bm25(title)": np.array(["x"])})
        with pytest.raises(FormatError, match="title"):
            vespa.score(lightgbm_file(), [[0, 0]], ("title", "price"))


XML = """## LambdaMART
## written by hand

<ensemble>
\t<tree id="1" weight="0.5">
\t\t<split>
\t\t\t<feature> 1 </feature>
\t\t\t<threshold> {} </threshold>
\t\t\t<split pos="left">
\t\t\t\t<output> 1.0 </output>
\t\t\t</split>
\t\t\t<split pos="right">
\t\t\t\t<output> 2.0 </output>
\t\t\t</split>
\t\t</split>
\t</tree>
</ensemble>
"""


class TestRankLib:
    def test_left_is_up_to_the_threshold_and_missing_is_zero(self) -> None:
        X = [[SINGLE, 0], [JUST_ABOVE, 0], [NAN, 0]]
        assert ranklib.score(XML.format("0.1"), X).tolist() == [0.5, 1.0, 0.5]
        assert ranklib.score(XML.format("-0.1"), X).tolist() == [1.0, 1.0, 1.0]

    def test_white_space_is_only_at_the_ends_of_lines(self) -> None:
        with pytest.raises(FormatError, match="white space"):
            ranklib.score(XML.format("0.1").replace("<split>\n\t\t\t<feature>", "<split> <feature>"), [[0, 0]])
        with pytest.raises(FormatError, match="between"):
            ranklib.score(XML.format("0.1").replace("</feature>\n", "</feature> <!-- -->"), [[0, 0]])
        with pytest.raises(FormatError, match="feature 3"):
            ranklib.score(XML.format("0.1").replace("> 1 <", "> 3 <"), [[0, 0]])
        with pytest.raises(FormatError, match="first line"):
            ranklib.score(XML.format("0.1").removeprefix("## LambdaMART\n"), [[0, 0]])

    def test_linear_regression(self) -> None:
        text = "## Linear Regression\n## Lambda = 0\n0:0.5 1:2.0 2:-0.25"
        assert ranklib.score(text, [[3.0, 4.0], [NAN, 4.0]]).tolist() == [5.5, -0.5]
