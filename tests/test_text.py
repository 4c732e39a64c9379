"""Words, statistics and match features against slow computations from the formulas."""

from __future__ import annotations

import math
import os
import subprocess
import sys
from itertools import chain

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from toprank.errors import DataError, UnknownNameError
from toprank.text import FEATURE_DESCRIPTIONS, Analyzer, EncodedDocuments, MatchFeatures, Statistics
from toprank.text.stop_words import STOP_WORDS, detect_language
from toprank.text.words import pieces

TITLES = ["Red running shoes", "The red lamp", "Shoes for the office", "", "lamp", "東京タワー lamp"]
BODIES = ["shoes to run in, red", "a lamp to read by at night", "", "", "who is who", "a tower in 東京"]
QUERIES = ["red shoes", "the who", "", "東京", "lamp lamp unheard", "run", "the red lamp", "offic"]


# ---- words ----


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("The RUNNING shoes", ["run", "shoe"]),
        ("read_csv(path)", ["read", "csv", "path"]),
        ("women's", ["women"]),
        ("Ｆｕｌｌ ｗｉｄｔｈ", ["full", "width"]),
        ("STRASSE straße", ["strass", "strass"]),
        ("東京都 2020", ["東京", "京都", "2020"]),
        ("東", ["東"]),
        ("हिन्दी में", ["हिन्दी", "में"]),
        ("Crème brûlée", ["crème", "brûlée"]),
        ("cre\u0300me", ["crème"]),
        ("سلام دنیا", ["سلام", "دنیا"]),
        ("· — !", []),
        ("", []),
    ],
)
def test_words(text, words):
    assert Analyzer().words(text) == words


def test_a_long_word_is_cut_and_a_long_text_is_read():
    assert Analyzer().words("a" * 10_000_000) == ["a" * 64]
    assert len(Analyzer().words("shoe 東京 " * 500_000)) == 1_000_000


def test_function_words_are_left_out_of_counts_and_kept_in_phrases():
    assert Analyzer().words("The Who") == []
    assert Analyzer().sequence("The Who") == ["the", "who"]
    assert Analyzer(stop_words=False).words("The Who") == ["the", "who"]
    assert Analyzer("german").words("die Häuser der Stadt") == ["haus", "stadt"]
    assert Analyzer("french").words("l'aile des avions") == ["ail", "avion"]
    assert Analyzer("none").words("The wings die") == ["the", "wings", "die"]
    assert Analyzer("turkish").words("the kitaplar") == [
        "the",
        "kitap",
    ]  # a language whose function words are not known


PROSE = {
    "english": "It is not what we were looking for, but it will do for now, and there is more of it in the box.",
    "german": "Es ist nicht das, was wir gesucht hatten, aber es wird reichen, und in der Kiste ist noch mehr.",
    "french": "Ce n'est pas ce que nous cherchions, mais cela ira pour le moment, et il y en a encore dans la boîte.",
    "spanish": "No es lo que buscábamos, pero nos servirá por ahora, y hay más de lo mismo dentro de la caja.",
    "italian": "Non è quello che cercavamo, ma per ora ci basta, e nella scatola che sta lì ce n'è ancora di più.",
    "portuguese": "Não é o que procurávamos, mas serve por agora, e há mais do mesmo dentro da caixa que está ali.",
    "dutch": "Het is niet wat wij zochten, maar voor nu is het goed, en er zit nog meer van in de doos.",
    "swedish": "Det är inte det som vi letade efter, men det räcker nu, och det finns mer av det i lådan.",
    "danish": "Det er ikke det, som vi ledte efter, men det er nok for nu, og der er mere af det i kassen.",
    "norwegian": "Det er ikke noe av det vi lette etter, men det er nok nå, og det er mer av det.",
    "finnish": "Se ei ole se mitä me haimme, mutta se riittää nyt, ja siellä on myös jotain joka on niin.",
    "russian": "Это не то, что мы искали, но пока и этого хватит, а в той коробке, которая стоит там, есть еще.",
}


@pytest.mark.parametrize("language", PROSE)
def test_the_language_of_running_text_is_told_by_its_function_words(language):
    assert set(PROSE) == set(STOP_WORDS)
    assert detect_language(pieces(f"{PROSE[language]} " * 2)) == language


@pytest.mark.parametrize(
    "text",
    [
        PROSE["german"][:40],  # too few words to tell
        "red shoes 42 black leather men women kids boots sneaker trainers jacket hood size brand box " * 9,
        "東京タワーは高いです。" * 30,
        "skrzydło samolotu jest większe niż ogon i dlatego ma większą siłę nośną przy tej samej prędkości " * 5,
        "",
    ],
)
def test_where_function_words_do_not_tell_it_is_english(text):
    assert detect_language(pieces(text)) == "english"


def test_stems_are_optional():
    assert Analyzer(stem=False).words("running shoes") == ["running", "shoes"]


def test_an_unknown_language_is_refused():
    with pytest.raises(UnknownNameError, match="stemming language called 'englisch'"):
        Analyzer("englisch")


# ---- the slow computation ----


def slow(fields, encoded, queries, pairs, known_n=None):
    """Features of pairs (query, document) from the formulas, one word at a time."""
    analyzer = Analyzer()
    n = len(next(iter(fields.values())))
    learned = {name: [analyzer.words(text) for text in texts] for name, texts in fields.items()}
    seen = {name: [analyzer.words(text) for text in texts] for name, texts in encoded.items()}
    order = {name: [analyzer.sequence(text) for text in texts] for name, texts in encoded.items()}
    for group in (learned, seen):
        group[""] = [list(chain(*parts)) for parts in zip(*group.values(), strict=True)]

    def idf(word, name=""):
        f = min(max(sum(word in text for text in learned[name]), 1), n) if n else 0
        return math.log(1 + (n - f + 0.5) / (f + 0.5))

    def mean(name):
        return sum(map(len, learned[name])) / n if n else 0.0

    def norm(name, text):
        return 1.2 * (1 - 0.75 + 0.75 * len(text) / mean(name)) if mean(name) else 1.2

    def vector(words, name):
        return {word: (1 + math.log(words.count(word))) * idf(word, name) for word in set(words)}

    def field_features(name, query, text, places):
        asked, phrase = analyzer.words(query), analyzer.sequence(query)
        tf = {word: text.count(word) for word in set(asked)}
        mu = max(3 * mean(name), 1)
        total = max(sum(map(len, learned[name])), 1)
        share = {word: max(sum(one.count(word) for one in learned[name]), 1) / total for word in set(asked)}
        a, b = vector(asked, name), vector(text, name)
        lengths = math.sqrt(sum(v * v for v in a.values())) * math.sqrt(sum(v * v for v in b.values()))
        dot = sum(a[word] * b.get(word, 0) for word in a)
        there = [word for word in set(asked) if tf[word]]
        begins = [
            word for word in set(asked) if word in text or (len(word) > 2 and any(t.startswith(word) for t in text))
        ]
        inside = [
            any(words[i : i + len(phrase)] == phrase for i in range(len(words))) and bool(phrase) for words in places
        ]
        return [
            sum(idf(w, name) * tf[w] * 2.2 / (tf[w] + norm(name, text)) for w in asked),
            dot / lengths if lengths else 0,
            sum(max(math.log((tf[w] + mu * share[w]) / (len(text) + mu) / share[w]), 0) for w in asked if tf[w]),
            len(there) / len(set(asked)) if asked else 0,
            sum(map(idf, there)) / sum(map(idf, set(asked))) if asked else 0,
            max(map(idf, there), default=0),
            len(begins) / len(set(asked)) if asked else 0,
            max(inside),
            max(words == phrase and bool(phrase) for words in places),
            len(text),
        ]

    rows = []
    for q, d in pairs:
        query, asked = queries[q], Analyzer().words(queries[q])
        row = field_features("", query, seen[""][d], [order[name][d] for name in fields])
        for name in fields if len(fields) > 1 else ():
            row += field_features(name, query, seen[name][d], [order[name][d]])
        tf = {w: sum(seen[name][d].count(w) * 1.2 / norm(name, seen[name][d]) for name in fields) for w in set(asked)}
        row.append(sum(idf(w) * tf[w] * 2.2 / (tf[w] + 1.2) for w in asked))
        values = [idf(w) for w in set(asked)]
        row += [len(values), sum(values), max(values, default=0), sum(values) / len(values) if values else 0]
        rows.append(row)
    return np.array(rows, dtype=float).reshape(len(rows), -1)


def pairs_of(n_queries, n_documents):
    rows = np.tile(np.arange(n_documents), n_queries)
    return rows, np.arange(n_queries + 1) * n_documents, [(q, d) for q in range(n_queries) for d in range(n_documents)]


def compare(fields, encoded, queries):
    known = Statistics.fit(fields, lsa=0)
    features, documents = MatchFeatures(known), known.encode(encoded)
    rows, offsets, pairs = pairs_of(len(queries), len(documents))
    fast = features.matrix(queries, documents, rows, offsets)
    assert fast.shape == (len(pairs), len(features.names))
    assert np.isfinite(fast).all()
    lsa = features.names.index("lsa")
    assert not fast[:, lsa].any()
    expected = slow(fields, encoded, queries, pairs)
    np.testing.assert_allclose(np.delete(fast, lsa, axis=1), expected, rtol=2e-6, atol=2e-6)


def test_features_equal_the_formulas():
    compare({"title": TITLES, "body": BODIES}, {"title": TITLES, "body": BODIES}, QUERIES)


def test_features_of_one_field_equal_the_formulas():
    compare({"title": TITLES}, {"title": TITLES}, QUERIES)


def test_new_documents_are_seen_in_the_light_of_the_known_ones():
    compare({"title": TITLES[:3]}, {"title": ["unheard lamp", "red red red shoes", *TITLES]}, QUERIES)


WORDS = st.sampled_from(["red", "redder", "shoes", "the", "lamp", "東京", "東", "é", "x", "42", "lamps", "office"])
TEXT = st.lists(WORDS, max_size=6).map(" ".join)


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=6), st.lists(TEXT, min_size=1, max_size=4), st.data())
def test_features_of_any_texts_equal_the_formulas(documents, queries, data):
    shown = data.draw(st.lists(st.tuples(TEXT, TEXT), min_size=1, max_size=4))
    titles, bodies = zip(*documents, strict=True)
    new_titles, new_bodies = zip(*shown, strict=True)
    compare({"title": titles, "body": bodies}, {"title": new_titles, "body": new_bodies}, queries)
    compare({"title": titles}, {"title": new_titles}, queries)


def test_a_mistake_in_a_formula_is_seen():
    """The comparison itself can fail: with texts of another order it does."""
    known = Statistics.fit({"title": TITLES}, lsa=0)
    rows, offsets, pairs = pairs_of(len(QUERIES), len(TITLES))
    fast = MatchFeatures(known).matrix(QUERIES, known.encode({"title": TITLES[::-1]}), rows, offsets)
    expected = slow({"title": TITLES}, {"title": TITLES}, QUERIES, pairs)
    assert not np.allclose(fast[:, :10], expected[:, :10], atol=1e-5)


# ---- LSA ----


def vectors(known, words):
    """tf-idf of documents over the words of LSA, from the formula."""
    idf = {word: float(known.idf(known.vocabulary.numbers([word]))[0]) for word in known.vocabulary.words}
    whole = [{w: (1 + math.log(text.count(w))) * idf[w] for w in set(text) if w in idf} for text in words]
    columns = [known.vocabulary.words[i] for i in known.basis_words]
    return np.array([[one.get(w, 0.0) for w in columns] for one in whole])


def collection(n=60, seed=0):
    rng = np.random.default_rng(seed)
    topics = [["red", "shoe", "run", "sole", "lace"], ["lamp", "light", "bulb", "shade"], ["book", "page", "read"]]
    return [" ".join(rng.choice(topics[i % 3], 5)) + f" word{rng.integers(9)}" for i in range(n)]


def test_lsa_is_the_cosine_in_the_leading_directions_of_an_exact_decomposition():
    texts = collection()
    known = Statistics.fit({"title": texts}, lsa=3)  # behind the third, the singular values halve
    words = [Analyzer().words(text) for text in texts]
    matrix = vectors(known, words)
    scaled = matrix / np.linalg.norm(matrix, axis=1, keepdims=True)
    exact = np.linalg.svd(scaled, full_matrices=False)[2][:3].T
    mine = known.basis.astype(float)
    np.testing.assert_allclose(mine @ mine.T, exact @ exact.T, atol=1e-3)  # the same space, whatever its signs
    queries = ["red lace", "bulb", "unheard"]
    asked = vectors(known, [Analyzer().words(query) for query in queries]) @ mine
    seen = matrix @ mine
    lengths = np.linalg.norm(asked, axis=1)[:, None] * np.linalg.norm(seen, axis=1)
    expected = np.divide(asked @ seen.T, lengths, out=np.zeros((3, len(texts))), where=lengths > 0)
    rows, offsets, _ = pairs_of(3, len(texts))
    features = MatchFeatures(known)
    fast = features.matrix(queries, known.encode({"title": texts}), rows, offsets)
    np.testing.assert_allclose(fast[:, features.names.index("lsa")], expected.ravel(), atol=1e-5)
    assert not fast[-len(texts) :, features.names.index("lsa")].any()


@pytest.mark.parametrize(
    "texts", [["red shoes"], ["red shoes"] * 5, [""], ["", ""], ["the of"], ["a b", "c d"], ["lamp red", "lamp"]]
)
def test_degenerate_collections_have_no_directions_beyond_their_rank(texts):
    known = Statistics.fit({"title": texts})
    words = [set(Analyzer().words(text)) for text in texts]
    rank = np.linalg.matrix_rank(vectors(known, [sorted(one) for one in words])) if known.basis_words.size else 0
    assert known.basis.shape[1] <= max(rank - 1, 0)
    documents, features = known.encode({"title": [*texts, "something else", ""]}), MatchFeatures(known)
    rows, offsets, _ = pairs_of(3, len(documents))
    assert np.isfinite(features.matrix(["red", "", "unheard words"], documents, rows, offsets)).all()


def test_no_more_than_a_hundred_directions():
    rng = np.random.default_rng(0)
    texts = [" ".join(f"w{i}" for i in rng.integers(0, 400, 30)) for _ in range(300)]
    assert Statistics.fit({"title": texts}, lsa=500).basis.shape[1] == 100


BITS = """
import hashlib, numpy as np
from toprank.text import Statistics
rng = np.random.default_rng(0)
texts = [" ".join(f"w{i}" for i in rng.zipf(1.3, 40) % 2000) for _ in range(2000)]
known = Statistics.fit({"title": texts})
print(hashlib.sha256(b"".join(a.tobytes() for a in known.arrays().values())).hexdigest(), known.basis.shape)
"""


def test_the_same_bits_on_any_number_of_threads():
    printed = set()
    for threads in ("1", "2", "4"):
        env = os.environ | {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}
        run = subprocess.run([sys.executable, "-c", BITS], capture_output=True, text=True, check=True, env=env)
        printed.add(run.stdout)
    assert len(printed) == 1


# ---- what may not matter ----


def test_a_row_has_the_same_bits_alone_and_among_others():
    texts = collection(200)
    known = Statistics.fit({"title": texts, "body": texts[::-1]})
    features = MatchFeatures(known)
    queries = [" ".join(text.split()[:3]) for text in texts[:20]] + ["", "unheard"]
    rows, offsets, pairs = pairs_of(len(queries), len(texts))
    whole = features.matrix(queries, known.encode({"title": texts, "body": texts[::-1]}), rows, offsets)
    for place in range(0, len(pairs), 97):
        q, d = pairs[place]
        alone = known.encode({"title": [texts[d]], "body": [texts[::-1][d]]})
        assert (features.matrix([queries[q]], alone, [0], [0, 1])[0] == whole[place]).all()


def test_encoding_changes_nothing_that_was_learned():
    known = Statistics.fit({"title": TITLES})
    before = {name: array.copy() for name, array in known.arrays().items()}
    known.encode({"title": ["planted " * 50]}).queries(["planted query"])
    assert all((known.arrays()[name] == array).all() for name, array in before.items())


def test_missing_texts_are_empty():
    known = Statistics.fit({"title": ["red", None, float("nan")]})
    assert known.mean_lengths.tolist() == [1 / 3, 1 / 3]
    assert (known.arrays()["word_counts"] == Statistics.fit({"title": ["red", "", ""]}).word_counts).all()


def test_a_document_of_ten_megabytes():
    huge = "red shoes for running " * 450_000
    known = Statistics.fit({"title": [huge, "red lamp"]})
    documents, features = known.encode({"title": [huge, "lamp"]}), MatchFeatures(known)
    matrix = features.matrix(["red shoes", huge], documents, [0, 1, 0], [0, 2, 3])
    assert np.isfinite(matrix).all()
    assert matrix[:, features.names.index("exact")].tolist() == [0, 0, 1]
    assert matrix[0, features.names.index("length")] == 3 * 450_000


# ---- files ----


def restored(known, change=lambda plain, arrays: None):
    plain, arrays = known.plain(), {name: array.copy() for name, array in known.arrays().items()}
    change(plain, arrays)
    return Statistics.restore(plain, arrays)


def test_what_was_learned_comes_back():
    texts = collection()
    known = Statistics.fit({"title": texts, "body": texts[::-1]})
    again = restored(known)
    assert again.plain() == known.plain()
    rows, offsets, _ = pairs_of(2, len(texts))
    fields, queries = {"title": texts, "body": texts[::-1]}, ["red shoes", "lamp 東京"]
    documents = EncodedDocuments.restore(again, known.encode(fields).arrays())
    a = MatchFeatures(known).matrix(queries, known.encode(fields), rows, offsets)
    assert (MatchFeatures(again).matrix(queries, documents, rows, offsets) == a).all()


def change_array(name, value):
    def change(plain, arrays):
        arrays[name] = value(arrays[name])

    return change


def put(name, value):
    def change(plain, arrays):
        plain[name] = value

    return change


@pytest.mark.parametrize(
    "change",
    [
        lambda plain, arrays: plain.clear(),
        lambda plain, arrays: arrays.pop("basis"),
        put("fields", []), put("fields", ["title", "title"]), put("fields", [1]), put("fields", "title"),
        put("documents", -1), put("documents", 1.5), put("documents", True), put("documents", 3),
        put("analyzer", {"language": "klingon", "stop": True, "stem": True}),
        put("analyzer", {"language": "english", "stop": 3, "stem": True}),
        put("analyzer", None),
        change_array("vocabulary", lambda a: a[:-3]),
        change_array("vocabulary", lambda a: a[::-1].copy()),
        change_array("vocabulary", lambda a: a.astype(np.int64)),
        change_array("vocabulary", lambda a: np.full(len(a), 255, dtype=np.uint8)),
        change_array("document_frequencies", lambda a: a - 1000),
        change_array("document_frequencies", lambda a: a[:, :-1]),
        change_array("document_frequencies", lambda a: a.astype(float)),
        change_array("word_counts", lambda a: a * 0),
        change_array("mean_lengths", lambda a: a * np.nan),
        change_array("mean_lengths", lambda a: -a - 1),
        change_array("basis", lambda a: a * np.float32(np.inf)),
        change_array("basis", lambda a: a[:-1]),
        change_array("basis", lambda a: a.astype(np.float64)),
        change_array("basis_words", lambda a: a + 10_000),
        change_array("basis_words", lambda a: a[::-1].copy()),
        change_array("basis_words", lambda a: a - 10_000),
    ],
)  # fmt: skip
def test_a_damaged_file_is_refused(change):
    with pytest.raises(DataError):
        restored(Statistics.fit({"title": collection()}), change)


@pytest.mark.parametrize("seed", range(5))
def test_documents_with_damaged_arrays_are_refused_or_read(seed):
    known = Statistics.fit({"title": TITLES, "body": BODIES})
    whole = known.encode({"title": TITLES, "body": BODIES}).arrays()
    rng = np.random.default_rng(seed)
    for name in whole:
        arrays = {key: array.copy() for key, array in whole.items()}
        arrays[name][rng.integers(len(arrays[name]))] = rng.choice([-5, 200]) if name != "words" else 255
        with pytest.raises(DataError):
            EncodedDocuments.restore(known, arrays)
        arrays.pop(name)
        with pytest.raises(DataError):
            EncodedDocuments.restore(known, arrays)


# ---- refusals ----


def test_pairs_that_do_not_fit_are_refused():
    known = Statistics.fit({"title": TITLES})
    features, documents = MatchFeatures(known), known.encode({"title": TITLES})
    for rows, offsets in (([9], [0, 1]), ([-1], [0, 1]), ([0], [0, 2]), ([0], [1, 1]), ([0], [0]), ([[0]], [0, 1])):
        with pytest.raises(DataError):
            features.matrix(["red"], documents, rows, offsets)
    with pytest.raises(DataError, match="other statistics"):
        MatchFeatures(Statistics.fit({"title": TITLES})).matrix(["red"], documents, [0], [0, 1])


def test_texts_that_are_none_are_refused():
    with pytest.raises(DataError, match="The field 'title' must be text, but number 2 is of type int: 7"):
        Statistics.fit({"title": ["red", 7]})
    with pytest.raises(DataError, match="the numbers of texts differ: 'title' 2, 'body' 1"):
        Statistics.fit({"title": ["red", "x"], "body": ["y"]})
    with pytest.raises(DataError, match="No text field"):
        Statistics.fit({})
    known = Statistics.fit({"title": TITLES})
    with pytest.raises(DataError, match="were fitted on title"):
        known.encode({"body": TITLES})
    with pytest.raises(DataError, match="A query must be text"):
        known.encode({"title": TITLES}).queries([3])
    for lsa in (-1, 2.5, True, "many"):
        with pytest.raises(DataError, match="lsa must be"):
            Statistics.fit({"title": TITLES}, lsa=lsa)


def test_every_feature_has_a_meaning():
    known = Statistics.fit({"title": TITLES, "body": BODIES})
    names = MatchFeatures(known).names
    assert len(set(names)) == len(names)
    assert all(name.removeprefix("title ").removeprefix("body ") in FEATURE_DESCRIPTIONS for name in names)
