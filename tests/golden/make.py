"""Write the golden model files of the present format; run once per format version, never to mend a failing test.

python tests/golden/make.py
"""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pandas as pd

import toprank as tr
from toprank import losses
from toprank.rankers.model_files import FORMAT_VERSION

HERE = Path(__file__).parent
RANKERS = {
    "linear": tr.LinearRanker(losses.CostSensitiveListMLE(pcf=2.0), l2=0.01),
    "expected-gain": tr.ExpectedGainRanker("ListNet", gain=[0, 1, 5]),
    "trees": tr.TreeRanker(n_trees=5, num_leaves=7, threads=1),
    "network": tr.NeuralRanker(hidden=(8,), epochs=2, input_transform="quantile", device="cpu", threads=1),
    "attention": tr.NeuralRanker(
        "ListNet", network="attention", width=8, n_heads=2, n_layers=1, epochs=2, device="cpu", threads=1
    ),
    "adarank": tr.AdaRank(max_rounds=5),
    "rankboost": tr.RankBoost(max_rounds=5),
    "coordinate-ascent": tr.CoordinateAscent(restarts=1, max_cycles=1, steps=2),
    "blend": tr.BlendRanker([tr.LinearRanker(), tr.TreeRanker(n_trees=5, num_leaves=7, threads=1)], weights=[1.0, 2.0]),
}


def read_rankers(data):
    """Models of other libraries, as they are saved here; an ONNX model is what `onnx_models.py` makes of its seed."""
    from sklearn.linear_model import Ridge
    from xgboost import XGBRanker

    sys.path.insert(0, str(HERE.parent))
    from onnx_models import network
    from toprank.rankers.foreign.onnx_model import OnnxRanker

    onnx = OnnxRanker.from_bytes(network(features=data.n_features).SerializeToString())
    onnx.feature_names_in_ = np.array(data.feature_names, dtype=object)
    forest = tr.wrap(XGBRanker(n_estimators=5, max_depth=3, n_jobs=1)).fit(data)
    return {"forest": forest.saved_ranker(), "weights": tr.wrap(Ridge()).fit(data).saved_ranker(), "onnx": onnx}


def write_categories(folder):
    """A linear ranker with sparse one-hot columns and a target encoding of a pair of categories."""
    rng, n = np.random.default_rng(0), 3000
    sellers, kinds = rng.integers(0, 140, n), rng.integers(0, 3, n)
    frame = pd.DataFrame(
        {"qid": np.arange(n) // 20, "seller": sellers, "kind": kinds, "price": rng.normal(3, 1, n).round(3)}
    )
    frame["label"] = (rng.random(n) < 0.3).astype(int) + (kinds == 1)
    frame["seller"], frame["kind"] = "s" + frame["seller"].astype(str), "k" + frame["kind"].astype(str)
    train = tr.RankingData.from_frame(frame, qid="qid", label="label")
    ranker = tr.LinearRanker("ListNet", l2=1.0, target_encoding=[("seller", "kind")]).fit(train)
    ranker.save(folder / f"v{FORMAT_VERSION}.toprank")
    np.save(folder / f"v{FORMAT_VERSION}.npy", ranker.predict(pd.read_csv(folder / "rows.csv")))


if __name__ == "__main__":
    data = tr.synthetic(n_queries=30, n_features=4, n_grades=3, seed=0)
    rows = tr.RankingData(data.select([0, 1]).X, feature_names=data.feature_names)  # one query, as the test reads them
    np.save(HERE / "rows.npy", rows.X)
    for name, ranker in RANKERS.items():
        path = HERE / f"{name}-v{FORMAT_VERSION}.toprank"
        ranker.fit(data).save(path)
        np.save(path.with_suffix(".npy"), ranker.predict(rows))
    write_categories(HERE / "categories")
    for name, ranker in read_rankers(data).items():
        path = HERE / f"{name}-v{FORMAT_VERSION}.toprank"
        ranker.save(path)
        np.save(path.with_suffix(".npy"), ranker.predict(rows))
