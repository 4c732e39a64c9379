"""Numbers in LETOR text are the nearest of their type, whatever they look like."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from toprank.data import decimals
from toprank.data.decimals import exact_number
from toprank.data.letor import read_letor
from toprank.data.letor import reading as letor_reading
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


def test_a_small_buffer_for_hard_numbers_changes_nothing(folder, monkeypatch):
    tokens = [border(value / 7 + 1, True, "1") for value in range(40)] + ["1e-310", "3e-320"]
    line = "5 qid:1 " + " ".join(f"{i}:{token}" for i, token in enumerate(tokens, 1)) + "\n"
    path = folder / "hard.txt"
    path.write_text(line * 3 + "1e-315 qid:1 1:0.5\n")
    expected = [nearest(token, np.float32) for token in tokens]
    for room in (1, 2, 1024):
        monkeypatch.setattr(letor_reading, "_ROOM", room)
        data = read_letor(path)
        assert data.X[:3].tolist() == [expected] * 3
        assert data.labels.tolist() == [5, 5, 5, float("1e-315")]


def test_the_quick_path_agrees_with_the_careful_one():
    """The same digits, followed by enough bytes for the quick path or by none."""
    rng = np.random.default_rng(5)
    for _ in range(3000):
        whole, fraction = rng.integers(0, 10 ** rng.integers(1, 8)), rng.integers(0, 10 ** rng.integers(1, 17))
        token = f"{'-' if rng.random() < 0.5 else ''}{whole}.{fraction}".encode()
        results = []
        for padding in (b"", b" " * 40):
            text = np.frombuffer(token + padding, dtype=np.uint8)
            for single in (False, True):
                value, after, found = decimals.read_number(text, 0, len(text), single)
                value = exact_number(token.decode(), single) if found == decimals.HARD else value
                assert after == len(token)
                results.append(np.float32(value) if single else value)
        assert results[:2] == results[2:]
        assert results[0] == float(token)


@pytest.mark.parametrize(
    "token", ["1e", "1e+", ".", "-", "+", "--1", "1.2.3", "1,5", "0x10", "1_000", "infin", "nul", "1f"]
)
def test_things_that_are_no_numbers(folder, token):
    path = folder / "bad.txt"
    path.write_text(f"1 qid:1 1:{token}\n")
    with pytest.raises(FormatError, match=r":1:11: Expected the value of the feature, a number or NULL; found"):
        read_letor(path)


def test_exact_number_is_correct_at_the_end_of_the_range():
    limit = Fraction(2) ** 128 - Fraction(2) ** 103
    below = str(int(limit) - 1)
    assert exact_number(below, single=True) == float(np.finfo(np.float32).max)
    assert exact_number(str(int(limit)), single=True) == np.inf
    assert exact_number("-" + below, single=True) == float(np.finfo(np.float32).min)
