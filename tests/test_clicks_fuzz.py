"""Whatever the bytes of a click log, `read` gives a log that models can be fitted to, or one of our errors."""

from __future__ import annotations

import io
import random

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import toprank as tr
from toprank.clicks import CCM, DBN, DCM, PBM, SDBN, UBM, Cascade, ClickLog, RankCTR
from toprank.clicks.models import ClickModel
from toprank.errors import ToprankError

CSV = (
    b"session,query,document,position,click,dwell\n1,shoes,d1,1,0,\n1,shoes,d2,2,1,12.5\n1,shoes,d3,3,0,\n"
    b'2,"red, shoes",d2,1,1,3\n2,"red, shoes",d1,2,0,\n3,7,\xc3\xa9t\xc3\xa9,1,true,0\n'
)
TSV = b"qid\tdocno\trank\tclicks\n1\ta\t1\t0\n1\tb\t2\t2\n2\ta\t1\t1\n2\tc\t2\t0\n2\td\t4\t1\n"
JSON = (
    b'{"query": "a", "document": "x", "position": 1, "click": 0, "time": 5}\n'
    b'{"query": "a", "document": "y", "position": 2, "click": 1, "time": 5}\n'
    b'{"query": "b", "document": "x", "position": 1, "click": 1, "time": 6}\n'
)
LISTS = b'{"query": "a", "document": ["x", "y"], "click": [0, 1]}\n{"query": "b", "document": ["z"], "click": [1]}\n'
YANDEX = b"1\t0\tQ\t10\t0\t7\t8\t9\n1\t5\tC\t8\n2\t0\tQ\t11\t0\t9\t7\n2\t3\tC\t9\n1\t9\tQ\t10\t0\t8\t7\n1\t12\tC\t8\n"
QUERIES = (
    b'{"query_id": "s1", "user_query": "shoes", "client_id": "c", "query_response_hit_ids": ["a", "b"]}\n'
    b'{"query_id": "s2", "user_query": "hats", "client_id": "c", "query_response_hit_ids": ["b", "c"]}\n'
)
EVENTS = b"".join(
    b'{"query_id": "%s", "action_name": "%s", "event_attributes": {"object": {"object_id": "%s"}, "position": '
    b'{"ordinal": %d}}}\n' % one
    for one in ((b"s1", b"impression", b"a", 1), (b"s1", b"impression", b"b", 2), (b"s2", b"item_click", b"c", 2))
)
PIECES = (
    b",|\n|\t|\r\n|\"|'|{|}|[|]|:| |0|1|-1|1.5|nan|null|true|inf|1e9|1e300|\0|\xff|\xe2\x80\xa8|\x0b|\x1f\x8b".split(
        b"|"
    )
)
PIECES += [
    b"99999999999999999999",
    b'"query": 1, ',
    b'"position": {"a": 1}, ',
    b'"click": [1]',
    b"[[1]]",
    b"\\ud800",
    b"\tQ\t",
    b"\tC\t",
]
PIECES += [b"2147483647", b"4294967296", b"9223372036854775807"]
MODELS = (PBM, UBM, DBN, CCM, DCM, SDBN, Cascade, RankCTR)


def table(kind: str) -> bytes:
    file = io.BytesIO()
    rows = {"query": [1, 1, 2], "document": ["x", "y", "x"], "position": [1, 2, 1], "click": [0, 1, 1]}
    if kind == "parquet":
        pq.write_table(pa.table(rows), file)
    else:
        with pa.ipc.new_file(file, pa.table(rows).schema) as out:
            out.write_table(pa.table(rows))
    return file.getvalue()


SOURCES = {
    "log.csv": CSV, "log.tsv": TSV, "log.jsonl": JSON, "lists.jsonl": LISTS, "log.txt": YANDEX,
    "ubi_queries.jsonl": QUERIES, "ubi_events.jsonl": EVENTS,
    "log.parquet": table("parquet"), "log.arrow": table("arrow"),
}  # fmt: skip


def mutated(rng: random.Random, text: bytes) -> bytes:
    """A text with a few bytes cut out, put in, changed or told again."""
    for _ in range(rng.choice((1, 1, 1, 2, 3))):
        at, what = rng.randrange(len(text) + 1), rng.random()
        if what < 0.5:
            text = text[:at] + rng.choice(PIECES) + text[at + rng.choice((0, 0, 1, 2)) :]
        elif what < 0.7:
            text = text[:at] + text[at + rng.randrange(1, 8) :]
        elif what < 0.85:
            text = text[:at] + bytes([rng.randrange(256)]) + text[at + 1 :]
        elif what < 0.95:
            text = text[:at] + text[max(0, at - rng.randrange(60)) : at] + text[at:]
        else:
            text = text[:at]
    return text


def check_log(log: ClickLog, model: type[ClickModel]) -> None:
    """The log keeps its promises, and a model can be fitted to it."""
    assert log.n_impressions > 0
    assert log.offsets[0] == 0
    assert log.offsets[-1] == log.n_impressions == len(log.position) == len(log.clicks)
    assert (np.diff(log.offsets) > 0).all()
    assert 0 <= log.pair.min() <= log.pair.max() < log.n_pairs == len(log.document_ids)
    assert 0 <= log.pair_query.min() <= log.pair_query.max() < log.n_queries
    assert (log.pair_query[log.pair] == log.query).all()
    assert log.position.min() >= 1
    assert (np.diff(log.position) >= 0)[np.diff(log.session) == 0].all()
    known = log.select(~log.has_duplicate_positions)
    if known.n_impressions:
        fitted = model(max_iterations=3).fit(known)
        assert not np.isnan(fitted.log_likelihood(known))
        assert not np.isnan(fitted.perplexity(known))


def outcome(source: object, model: type[ClickModel]) -> str:
    """What an error of ours says; nothing where the log is read."""
    try:
        log = tr.clicks.read(source)
    except ToprankError as problem:
        return str(problem)
    check_log(log, model)
    return ""


@pytest.mark.filterwarnings("ignore:The fit of", "ignore:No document connects", "ignore:The log has no clicks")
@pytest.mark.parametrize("name", list(SOURCES))
@pytest.mark.parametrize("times", [60, pytest.param(10_000, marks=pytest.mark.nightly)])
def test_bytes_give_a_log_or_our_error(name, times, tmp_path):
    rng, accepted, pair = random.Random(f"{name} {times}"), 0, sorted(one for one in SOURCES if one.startswith("ubi"))
    for other in pair:
        (tmp_path / other).write_bytes(SOURCES[other])
    source = [tmp_path / one for one in pair] if name in pair else tmp_path / name
    for _ in range(times):
        text = mutated(rng, SOURCES[name])
        (tmp_path / name).write_bytes(text)
        try:
            said = outcome(source, rng.choice(MODELS))
        except Exception as problem:
            raise AssertionError(f"{text!r} gives {problem!r}") from problem
        assert said == "" or said.endswith((".", "?")), (text, said)
        accepted += not said
    assert accepted
