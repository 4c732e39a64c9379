"""Numbers in LETOR text are the nearest of their type, whatever they look like."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toprank.data.letor import read_letor
from toprank.errors import FormatError

digits = st.text("0123456789", max_size=30)
few_digits = st.text("0123456789", min_size=1, max_size=9)
signs = st.sampled_from(["", "-", "+"])
exponents = st.one_of(
    st.just(""),
    st.builds("{}{}".format, st.sampled_from("eE"), st.integers(-345, 345)),
    st.just("e+05"),
    st.just("e-00"),
)
written = st.builds("{}{}.{}{}".format, signs, digits, digits, exponents).filter(
    lambda token: any(map(str.isdigit, token.lower().partition("e")[0]))
)
plain = st.builds("{}{}.{}".format, signs, few_digits, few_digits)
doubles = st.floats(allow_nan=False, allow_infinity=False).map(repr)


def exact_text(value: Fraction) -> str:
    """A fraction whose denominator is a power of two, as its finite decimal expansion."""
    places = max(value.denominator.bit_length() - 1, 1)  # 1/2^k has k decimals
    text = str(abs(int(value * 10**places))).rjust(places + 1, "0")
    return ("-" if value < 0 else "") + text[:-places] + "." + text[-places:]


def border(value: float, single: bool, tail: str) -> str:
    """The decimal expansion of the point halfway to the next number, and something behind it."""
    kind = np.float32 if single else np.float64
    here = kind(value)
    after = np.nextafter(here, kind(np.inf))
    return exact_text((Fraction(float(here)) + Fraction(float(after))) / 2) + tail


moderate = st.floats(2.0**-60, 2.0**60, width=32)
borders = st.builds(border, moderate, st.booleans(), st.sampled_from(["", "0", "0001", "000000000000000000000000001"]))
singles = st.floats(width=32, allow_nan=False, allow_infinity=False).map(lambda value: str(np.float32(value)))
numbers = st.one_of(plain, written, doubles, singles, borders, borders.map(lambda text: text[:-1]))


def nearest(token: str, kind: type) -> float:
    """The nearest number of a type by exact arithmetic, ties to even; infinite where it is too large."""
    exact = Fraction(token)
    info = np.finfo(kind)
    step = Fraction(2) ** (info.maxexp - info.nmant - 1)
    if abs(exact) >= Fraction(float(info.max)) + step / 2:
        return np.inf
    near = kind(np.clip(float(token), float(info.min), float(info.max)))
    unsigned = np.uint32 if kind is np.float32 else np.uint64
    with np.errstate(over="ignore"):
        around = [near, np.nextafter(near, kind(np.inf)), np.nextafter(near, kind(-np.inf))]
    candidates = [value for value in around if np.isfinite(value)]
    return min(candidates, key=lambda v: (abs(Fraction(float(v)) - exact), int(v.view(unsigned)) & 1))


def read_tokens(folder, tokens, kind):
    path = folder / "numbers.txt"
    path.write_text("".join(f"{token} qid:1 1:{token} 2:{token} 3:1\n" for token in tokens) + "0 qid:1 1:1\n")
    return read_letor(path, dtype=kind)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("numbers")


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@settings(max_examples=200, deadline=None)
@given(tokens=st.lists(numbers, min_size=1, max_size=20))
@example(tokens=["3.4028235e38", "-3.4028235677973362e38"])  # rounds to the largest float32
@example(tokens=["1.401298464324817e-45", "7.0064923216240853e-46", "7.0064923216240854e-46", "1e-46"])
@example(tokens=["1.7976931348623157e308", "4.9406564584124654e-324", "2.4703282292062327e-324"])
def test_every_number_is_the_nearest_one(folder, kind, tokens):
    expected = [nearest(token, kind) for token in tokens]
    fits = [token for token, value in zip(tokens, expected, strict=True) if np.isfinite(value)]
    wide = [token for token in tokens if not np.isfinite(float(token))]
    if len(fits) < len(tokens):
        with pytest.raises(FormatError, match="too large"):
            read_tokens(folder, tokens, kind)
    if not fits or wide:
        return
    data = read_tokens(folder, fits, kind)
    for row, token in enumerate(fits):
        value = data.X[row, 0]
        assert value == nearest(token, kind), token
        assert np.signbit(value) == token.startswith("-"), token
        assert data.X[row, 1] == value
        assert data.labels[row] == float(token), token


def written_in_all_ways(rng: np.random.Generator) -> str:
    """A number with up to 40 digits, a point somewhere or nowhere, and perhaps an exponent."""
    digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, 40) if rng.random() < 0.3 else rng.integers(1, 20))))
    point = rng.integers(0, len(digits) + 1)
    token = digits if rng.random() < 0.2 else f"{digits[:point]}.{digits[point:]}"
    power = f"e{rng.integers(-320, 300)}" if rng.random() < 0.3 else ""
    return f"{'-' if rng.random() < 0.5 else ''}{token}{power}"


@pytest.mark.parametrize("kind", [np.float32, np.float64])
def test_what_follows_a_number_does_not_change_it(folder, kind):
    """The same digits, followed by enough bytes for the quick paths, by a comment, or by nothing."""
    rng = np.random.default_rng(5)
    limit = float(np.finfo(kind).max)
    tokens = [token for token in (written_in_all_ways(rng) for _ in range(3000)) if abs(float(token)) < limit]
    expected = [nearest(token, kind) for token in tokens]
    path = folder / "padded.txt"
    for before, behind in (
        ("1:", " " * 60),
        ("1:", "#" + "x" * 60),
        ("1:", " 2:1"),
        ("0001:", "\t2:0"),
        ("2:3 1:", ""),
    ):
        path.write_text("".join(f"1 qid:1 {before}{token}{behind}\n" for token in tokens))
        assert read_letor(path, dtype=kind).X[:, 0].tolist() == expected
    for token, value in list(zip(tokens, expected, strict=True))[:200]:
        path.write_text(f"{token} qid:1 1:{token}")
        data = read_letor(path, dtype=kind)
        assert data.X.tolist() == [[value]]
        assert data.labels.tolist() == [float(token)]


def usual_number(rng: np.random.Generator) -> str:
    """Up to 18 bytes without an exponent, the point anywhere or nowhere: on both sides of what is read at once."""
    digits = "".join(map(str, rng.integers(0, 10, rng.integers(1, 18))))
    point = rng.integers(0, len(digits) + 1)
    token = digits if rng.random() < 0.3 else f"{digits[:point]}.{digits[point:]}"
    return f"{'-' if rng.random() < 0.3 else ''}{token}"


def beside_borders(rng: np.random.Generator) -> list[str]:
    """Short decimals that are no border between two float32, but whose nearest float64 is one."""
    values = (10 ** rng.uniform(0, 8, 50_000)).astype(np.float32)
    middles = (values.astype(np.float64) + np.nextafter(values, np.float32(np.inf))) / 2
    tokens = [f"{middle:.{14 - len(str(int(middle)))}f}" for middle in middles.tolist()]
    pairs = zip(tokens, middles.tolist(), strict=True)
    return [token for token, middle in pairs if float(token) == middle and Fraction(token) != Fraction(middle)]


@pytest.mark.parametrize("kind", [np.float32, np.float64])
@pytest.mark.parametrize("usual", [1.0, 0.9])
def test_numbers_in_wide_rows_are_the_nearest(folder, kind, usual):
    """Rows of any width, since several numbers of a row may be read at once; others than the usual ones among them."""
    rng = np.random.default_rng(8)
    limit = float(np.finfo(kind).max)
    rows, expected = [], []
    for width in (*range(1, 42), 100, 136, 511, 512, 513, 600):
        tokens = [usual_number(rng) if rng.random() < usual else written_in_all_ways(rng) for _ in range(width)]
        tokens = [token if abs(float(token)) < limit else "NULL" for token in tokens]
        rows.append(f"1 qid:1 {' '.join(f'{i}:{token}' for i, token in enumerate(tokens, 1))}\n")
        expected.append([np.nan if token == "NULL" else nearest(token, kind) for token in tokens])
    borders = beside_borders(rng)
    assert len(borders) > 20
    for first in range(0, len(borders), 100):
        tokens = borders[first : first + 100]
        rows.append(f"1 qid:1 {' '.join(f'{i}:{token}' for i, token in enumerate(tokens, 1))}\n")
        expected.append([nearest(token, kind) for token in tokens])
    path = folder / "wide.txt"
    path.write_text("".join(rows))
    data = read_letor(path, dtype=kind)
    for row, values in zip(data.X, expected, strict=True):
        np.testing.assert_array_equal(row[: len(values)], np.array(values, dtype=kind))
        np.testing.assert_array_equal(np.signbit(row[: len(values)]), np.signbit(values))
        assert np.isnan(row[len(values) :]).all()


def test_very_long_numbers_are_the_nearest(folder):
    """More digits than are looked at one by one, on both sides of a border between two numbers."""
    middle = border(1.5, False, "")
    tokens = [middle + "0" * 900, middle + "0" * 900 + "1", middle[:-1] + "4" + "9" * 900, "0." + "0" * 900 + "1e901"]
    tokens += ["1" * 300 + "." + "1" * 900, "0" * 1000 + "7", "1" + "0" * 1000 + "e-1000", "0." + "0" * 2000 + "1"]
    for kind in (np.float32, np.float64):
        fits = [token for token in tokens if nearest(token, kind) < np.inf]
        data = read_tokens(folder, fits, kind)
        assert data.X[:-1, 0].tolist() == [nearest(token, kind) for token in fits]
        assert data.labels[:-1].tolist() == [float(token) for token in fits]


@pytest.mark.parametrize(
    "token", ["1e", "1e+", ".", "-", "+", "--1", "1.2.3", "1,5", "0x10", "1_000", "infin", "nul", "1f"]
)
def test_things_that_are_no_numbers(folder, token):
    path = folder / "bad.txt"
    path.write_text(f"1 qid:1 1:{token}\n")
    with pytest.raises(FormatError, match=r":1:11: Expected the value of the feature, a number or NULL; found"):
        read_letor(path)


def test_numbers_at_the_end_of_the_range(folder):
    limit = 2**128 - 2**103
    data = read_tokens(folder, [str(limit - 1), f"-{limit - 1}"], np.float32)
    assert data.X[:2, 0].tolist() == [float(np.finfo(np.float32).max), float(np.finfo(np.float32).min)]
    with pytest.raises(FormatError, match=r"The value .* is too large for float32"):
        read_tokens(folder, [str(limit)], np.float32)
    limit = 2**1024 - 2**970
    data = read_tokens(folder, [str(limit - 1)], np.float64)
    assert data.X[0, 0] == data.labels[0] == np.finfo(np.float64).max
    with pytest.raises(FormatError, match=r"The label .* is too large for float64"):
        read_tokens(folder, [str(limit)], np.float64)
