"""What a launch report costs at size: `python benchmarks/launching.py [--impressions 1000000]`.

Lists of ten, ten thousand queries with twenty documents each, asked for with Zipf's frequencies, by two rankers and a
tenth of the sessions shuffled; propensities are found from the log, and anew without each of twenty groups of queries.
Seconds are of the clock and of all processors together, without making the log.
"""

from __future__ import annotations

import argparse
import json
import resource
import sys
import time

import numpy as np

import toprank as tr


def main(impressions: int) -> None:
    """Make a log, and compare a linear ranker with trees."""
    data = tr.synthetic(n_queries=10_000, n_documents=20, n_features=10, seed=0)
    users = tr.clicks.PBM.from_parameters(1 / np.arange(1, 11) ** 0.7)
    shown = {"old": data.X[:, 0], "new": data.X[:, 1]}
    log = tr.clicks.simulate(data, shown, users, impressions // 10, k=10, exploration=0.1, zipf_exponent=0.7)
    new = tr.LinearRanker("ListNet").fit(tr.synthetic(n_queries=200, n_features=10, seed=1))
    current = tr.TreeRanker(n_trees=50).fit(tr.synthetic(n_queries=200, n_features=10, seed=2))
    start, used = time.perf_counter(), time.process_time()
    found = tr.clicks.launch_report(log, data, new, current)
    told = {
        "impressions": log.n_impressions,
        "seconds": round(time.perf_counter() - start, 2),
        "processor": round(time.process_time() - used, 2),
        "peak MiB": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "decision": found.decision,
    }
    sys.stdout.write(json.dumps(told) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--impressions", type=int, default=1_000_000)
    main(parser.parse_args().impressions)
