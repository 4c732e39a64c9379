"""Models of other libraries on one small set, and the rows that tell readings of them apart: borders, zeros, NaN."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree

import numpy as np

QUERIES, EACH = 30, 20
SIZES = np.full(QUERIES, EACH)
QID = np.repeat(np.arange(QUERIES), EACH)


def features(seed=0):
    """Five columns: normal numbers, one of whole numbers, a tenth missing."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(len(QID), 5))
    X[:, 3] = rng.integers(0, 12, len(QID))
    X[rng.random(X.shape) < 0.1] = np.nan
    return X


X = features()
Y = np.clip(np.round(np.nan_to_num(X[:, 0]) + np.nan_to_num(X[:, 3]) % 3), 0, 4).astype(int)


def near(cuts, most=200):
    """The rows, with zeros in them, and for each cut of a feature rows at it and beside it, in both precisions."""
    rng = np.random.default_rng(1)
    rows = [X, np.where(rng.random(X.shape) < 0.5, X, 0.0), np.where(X > 0, -1e-40, X)]
    with np.errstate(over="ignore"):
        for feature, cut in list(cuts)[:most]:
            for kind in (np.float32, np.float64):
                for side in (-np.inf, 0, np.inf):
                    row = X[rng.integers(len(X))].copy()
                    row[feature] = np.nextafter(kind(cut), kind(side)) if side else kind(cut)
                    rows.append(row[None])
    return np.concatenate(rows)


def lightgbm_model(**options):
    import lightgbm

    options = {"objective": "lambdarank", "verbose": -1, "min_data_in_leaf": 5, "num_threads": 1} | options
    categorical = options.pop("categorical", "auto")
    group = {"group": SIZES} if options["objective"] in ("lambdarank", "rank_xendcg") else {}
    y = Y > 2 if options["objective"] == "binary" else Y
    data = lightgbm.Dataset(X, y, categorical_feature=categorical, free_raw_data=False, **group)
    return lightgbm.train(options, data, 12)


def lightgbm_cuts(booster):
    found = booster.trees_to_dataframe()
    found = found[found["threshold"].notna() & (found["decision_type"] == "<=")]
    return [(int(f.split("_")[1]), float(t)) for f, t in zip(found["split_feature"], found["threshold"], strict=True)]


def xgboost_model(**options):
    import xgboost

    return xgboost.XGBRanker(n_estimators=12, n_jobs=1, **options).fit(X, Y, qid=QID)


def xgboost_cuts(model):
    found = model.get_booster().trees_to_dataframe()
    found = found[(found["Feature"] != "Leaf") & found["Split"].notna()]
    return [(int(f[1:]), float(t)) for f, t in zip(found["Feature"], found["Split"], strict=True)]


def catboost_model(**options):
    import catboost

    quiet = {"verbose": 0, "allow_writing_files": False, "thread_count": 1}
    return catboost.CatBoostRanker(iterations=12, **quiet, **options).fit(X, Y, group_id=QID)


def catboost_cuts(model):
    return [(feature, float(cut)) for feature, cuts in model.get_borders().items() for cut in cuts]


# ---- RankLib, by a writer and a reader that follow its Java source ----


def ranklib_text(trees=8, seed=0, kind="LambdaMART", bags=1):
    """Random trees as RankLib writes them, over features 1 to 5."""
    rng = np.random.default_rng(seed)

    def split(depth, pos=""):
        if depth == 0 or rng.random() < 0.2:
            return f"<split{pos}>\n<output> {np.float32(rng.normal())} </output>\n</split>\n"
        sides = "".join(split(depth - 1, f' pos="{side}"') for side in ("left", "right"))
        asked = f"<feature> {rng.integers(1, 6)} </feature>\n<threshold> {np.float32(rng.choice([rng.normal(), 0.0]))}"
        return f"<split{pos}>\n{asked} </threshold>\n{sides}</split>\n"

    ensembles = []
    for _ in range(bags):
        inside = [f'<tree id="{i + 1}" weight="{np.float32(0.1)}">\n{split(3)}</tree>\n' for i in range(trees)]
        ensembles.append("<ensemble>\n" + "".join(inside) + "</ensemble>\n")
    return f"## {kind}\n## No. of trees = {trees}\n\n" + "\n".join(ensembles)


def ranklib_cuts(text):
    cuts, feature = [], 0
    for line in text.split("\n"):
        if "<feature>" in line:
            feature = int(line.split()[1]) - 1
        if "<threshold>" in line:
            cuts.append((feature, float(line.split()[1])))
    return cuts


def ranklib_scores(text, rows):
    """What RankLib's `Ensemble.eval` adds up, in the types that its Java source declares."""
    single = np.nan_to_num(rows.astype(np.float32), nan=0.0)
    body = text[text.index("<ensemble>") :]
    total = np.zeros(len(rows))
    ensembles = body.split("</ensemble>")[:-1]
    for one in ensembles:
        sums = np.zeros(len(rows), np.float32)
        for tree in ElementTree.fromstring(one + "</ensemble>").iter("tree"):
            outputs = np.array([_ranklib_output(tree.find("split"), row) for row in single])
            sums = (sums.astype(np.float64) + outputs * float(np.float32(tree.get("weight")))).astype(np.float32)
        total += sums
    return total / len(ensembles)


def _ranklib_output(node, row):
    while node.find("output") is None:
        left, right = node.findall("split")
        node = left if row[int(node.find("feature").text) - 1] <= np.float32(node.find("threshold").text) else right
    return float(np.float32(node.find("output").text))
