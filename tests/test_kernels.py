"""The compiled loops: arguments are checked, e^x and log are right, every set of instructions gives the same bits."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from toprank import kernels
from toprank.kernels import Kernel

ALL = kernels.library().kernels()
every_kernel = pytest.mark.parametrize("kernel", ALL, ids=[one.name for one in ALL])


class Counted:
    """Stands for a function of the library, and counts its calls."""

    calls = 0

    def __call__(self, *given):
        self.calls += 1
        return 0


def arguments(kernel, sizes=3, number=2):
    """What the prototype asks for, every size being the same, and every whole number."""
    known = dict.fromkeys(kernel.sizes, sizes) | {one.name: number for one in kernel.parameters if not one.lengths}
    made = []
    for one in kernel.parameters:
        if not one.lengths:
            made.append({"f": 2.0, "b": True}.get(one.kind[0], number))
            continue
        lengths = [eval(text, {"__builtins__": {}}, known) for text in one.lengths]
        made.append(np.zeros(lengths, dtype=one.dtype))
    return made


def wrong_arrays(array, one):
    """The same array with something wrong about it."""
    yield "another type", array.astype(np.complex64)
    yield "a list", array.tolist()
    yield "nothing", None
    yield "one dimension more", array[None]
    yield "bytes in the other order", array.astype(array.dtype.newbyteorder()) if array.dtype.itemsize > 1 else None
    yield "every second element", np.zeros((*array.shape[:-1], 2 * array.shape[-1]), dtype=array.dtype)[..., ::2]
    misaligned = np.zeros(array.nbytes + 1, dtype=np.uint8)[1:].view(array.dtype).reshape(array.shape)
    if one.written:
        if array.dtype.itemsize > 1:
            yield "misaligned", misaligned
        frozen = array.copy()
        frozen.flags.writeable = False
        yield "read-only", frozen


@every_kernel
def test_every_kernel_checks_kind_and_layout_of_every_array(kernel):
    counted = Counted()
    tried = Kernel(kernel.prototype, counted)
    given = arguments(tried)
    tried(*given)
    assert counted.calls == 1
    for place, one in enumerate(tried.parameters):
        wrongs = (
            wrong_arrays(given[place], one)
            if one.lengths
            else [("a word", "many"), ("nothing", None)] * (one.kind != "bool")
        )
        for what, wrong in wrongs:
            with pytest.raises((TypeError, ValueError), match=kernel.name):
                tried(*given[:place], wrong, *given[place + 1 :])
            assert counted.calls == 1, (one.name, what)
        with pytest.raises(TypeError, match=kernel.name):
            tried(*given[:place], *given[place + 1 :])


@every_kernel
def test_every_kernel_checks_the_length_of_every_array(kernel):
    """An array that is shorter or longer is refused, unless it is the only one that tells its size."""
    counted = Counted()
    tried = Kernel(kernel.prototype, counted)
    given = arguments(tried, 4)
    for place, one in enumerate(tried.parameters):
        for axis, text in enumerate(one.lengths):
            words = set(kernels.re.findall(r"[a-z_]\w*", text))
            others = {
                word
                for other in tried.parameters
                for at, length in enumerate(other.lengths)
                if (other.name, at) != (one.name, axis)
                for word in kernels.re.findall(r"[a-z_]\w*", length)
            }
            if not words <= others | {other.name for other in tried.parameters}:
                continue  # nothing else knows this size
            shape = list(given[place].shape)
            shape[axis] -= 1
            before = counted.calls
            with pytest.raises(ValueError, match=kernel.name):
                tried(*given[:place], np.zeros(shape, dtype=one.dtype), *given[place + 1 :])
            assert counted.calls == before


@every_kernel
def test_what_fits_goes_the_quick_way(kernel, monkeypatch):
    """Plain arrays and numbers; a truth value is a whole number. The careful way takes three times as long."""
    counted = Counted()
    tried = Kernel(kernel.prototype, counted)
    monkeypatch.setattr(tried, "checked", lambda *given: pytest.fail("the careful way"))
    for number in (2, True):
        tried(*arguments(tried, number=number))
    assert counted.calls == 2


def test_the_arrays_choose_among_kernels_of_one_name():
    center, weights, out = np.array([1.0, 2.0]), np.array([3.0, 5.0]), np.empty(2)
    for kind in (np.float32, np.float64):
        kernels.features_times(np.array([[1, 2], [2, 4]], dtype=kind), center, weights, True, out)
        assert out.tolist() == [0.0, 13.0]
    for wrong in (np.zeros((2, 2), dtype=np.int32), [[1.0, 2.0]], None):
        with pytest.raises(TypeError, match="features_times"):
            kernels.features_times(wrong, center, weights, True, out)
    with pytest.raises(TypeError, match="features_times"):
        kernels.features_times()


def test_an_array_that_lies_at_an_odd_address_is_read_all_the_same():
    """Buffers that came over a network do."""
    x = np.linspace(-1.0, 1.0, 11)
    odd = np.frombuffer(b"-" + x.tobytes(), dtype=np.uint8)[1:].view(np.float64)
    assert not odd.flags.aligned
    y, expected = np.empty(11), np.empty(11)
    kernels.exponentials(odd, y)
    kernels.exponentials(x, expected)
    assert (y == expected).all()


NATIVE = Path(__file__).parent.parent / "native"


def test_the_library_holds_the_kernels_and_codes_of_the_sources():
    """Each by its name without the types that it is compiled for: NAMED(x), x__##TYPE."""
    text = "\n".join(path.read_text() for path in NATIVE.iterdir() if path.suffix in {".c", ".h", ".inc"})
    written = set(re.findall(r"^ *KERNEL\(\w+, (?:NAMED?\()?(\w+?)(?:__[#\w]+)?\)", text, re.MULTILINE))
    over_arrays = set(re.findall(r"^OVER_ARRAY\((\w+),", text, re.MULTILINE))  # a macro whose kernel is `name`
    assert {one.name.partition("__")[0] for one in ALL} == written - {"name"} | over_arrays
    assert set(kernels.library()._codes) == set(re.findall(r"^CODES\((\w+),", text, re.MULTILINE))
    assert len({one.prototype for one in ALL}) == len(ALL)


@pytest.mark.skipif(shutil.which("nm") is None or sys.platform != "linux", reason="needs nm on Linux")
def test_every_function_of_the_library_has_a_prototype_and_the_other_way_round():
    held = kernels.library()
    listed = subprocess.run(["nm", "-D", "--defined-only", held.path], capture_output=True, text=True, check=True)
    functions = {line.split()[-1] for line in listed.stdout.splitlines()}
    made = {name.rpartition("_on_")[0] for name in functions if "_on_" in name}
    assert made == {one.name for one in ALL}
    assert {f"{name}_on_baseline" for name in made} <= functions
    assert {name.rpartition("_on_")[2] for name in functions if "_on_" in name} == set(held.variants)


@every_kernel
def test_what_a_kernel_writes_shares_no_memory_with_its_other_arrays(kernel):
    """Not a byte; neighbors in one buffer are fine, and so is one array that is read twice."""
    counted = Counted()
    tried = Kernel(kernel.prototype, counted)
    given = arguments(tried)
    arrays = [place for place, one in enumerate(tried.parameters) if one.lengths]
    buffer = np.zeros(sum(given[place].nbytes + 8 for place in arrays), dtype=np.uint8)
    for at, place in zip(np.cumsum([0, *(given[place].nbytes + 8 for place in arrays)]), arrays, strict=False):
        given[place] = placed(buffer, int(at) // 8 * 8, given[place])
    tried(*given)
    assert counted.calls == 1
    for place in arrays:
        for other in arrays:
            if place == other or not tried.parameters[place].written:
                continue
            shared = np.zeros(given[place].nbytes + given[other].nbytes + 8, dtype=np.uint8)
            last = (given[other].nbytes - 1) // 8 * 8  # the written array begins with the last word of the other
            clash = list(given)
            clash[other], clash[place] = placed(shared, 0, given[other]), placed(shared, last, given[place])
            for call in (tried, tried.checked):
                with pytest.raises(ValueError, match=rf"{kernel.name} writes \w+, which shares memory with \w+"):
                    call(*clash)
            assert counted.calls == 1


def placed(buffer, start, like):
    """An array like another one, from a byte of a buffer on."""
    return buffer[start : start + like.nbytes].view(like.dtype).reshape(like.shape)


# ---- e^x, log x, log(1 + x) ----

SPECIAL = [np.inf, -np.inf, np.nan, 0.0, -0.0, 710.0, -746.0, -745.0, 1e-310, 5e-324, -1.0, -2.0, 1.7e308, -5e-324]


def in_ulps(found, x, exact):
    mpmath = pytest.importorskip("mpmath")
    with mpmath.workprec(160):
        for value, argument in zip(found.tolist(), x.tolist(), strict=True):
            truth = exact(mpmath)(mpmath.mpf(argument))
            if truth != 0:
                yield abs(float((mpmath.mpf(value) - truth) / mpmath.mpf(float(np.spacing(abs(float(truth)))))))


@pytest.mark.parametrize(
    ("name", "function", "exact", "drawn"),
    [
        (
            "exponentials",
            np.exp,
            lambda m: m.exp,
            lambda r: np.r_[r.uniform(-745, 709.7, 4000), r.uniform(-1, 1, 4000)],
        ),
        (
            "logarithms",
            np.log,
            lambda m: m.log,
            lambda r: np.r_[np.exp(r.uniform(-744, 709, 4000)), r.uniform(0.5, 2, 4000)],
        ),
        (
            "logarithms_1p",
            np.log1p,
            lambda m: m.log1p,
            lambda r: np.r_[
                np.exp(r.uniform(-40, 100, 3000)), r.uniform(-1, 2, 3000), -np.exp(r.uniform(-40, 0, 3000))
            ],
        ),
    ],
)
def test_our_own_functions_are_right_to_the_last_place(name, function, exact, drawn):
    x = drawn(np.random.default_rng(0))
    y = np.empty_like(x)
    getattr(kernels, name)(x, y)
    assert max(in_ulps(y, x, exact)) < 1.0
    special, found = np.array(SPECIAL), np.empty(len(SPECIAL))
    getattr(kernels, name)(special, found)
    with np.errstate(all="ignore"):
        np.testing.assert_allclose(found, function(special), rtol=4e-16)


# ---- the same bits ----

BITS = """
import hashlib, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
import numpy as np
import toprank as tr
from loss_cases import LOSSES, Problem, labels_of_kind, random_scores
from toprank import kernels
from toprank.data.queries import Queries

def say(name, *values):
    print(name, hashlib.sha256(b"".join(np.ascontiguousarray(v).tobytes() for v in values)).hexdigest())

rng, queries = np.random.default_rng(5), Queries.from_sizes([1, 30, 2, 3, 71, 7, 133, 1, 16, 260])
n = queries.n_documents
for name, loss, options in LOSSES:
    if "topk" in name or getattr(loss, "top_k", 1) != 1:
        problem = Problem.of(loss, options)
        labels, at, scores = problem.labels, problem.queries, problem.scores
    else:
        labels, at = labels_of_kind(options.get("labels", "graded"), n, rng), queries
        scores = random_scores(rng, n, options)
    bound = loss.on(labels, at, teacher=rng.normal(size=at.n_documents))
    found = bound.at(scores, curvature=True) if "curvature" in bound.at.__code__.co_varnames else bound.at(scores)
    parts = [found.value, found.grad]
    if found.curvature is not None:
        direction = np.cos(np.arange(found.grad.size)).reshape(found.grad.shape)
        parts += [found.curvature.diagonal(), found.curvature @ direction]
    say(name, *parts)
data = tr.synthetic(n_queries=300, n_documents=(1, 90), n_features=9, seed=1)
scores = np.round(np.random.default_rng(0).normal(size=data.n_documents), 1)
names = "ndcg ndcg@5 map mrr err@10 p@3 rbp(p=0.8) tau rho t owa pairacc avgndcg@10".split()
evaluation = tr.evaluate(scores, data, names)
for name in evaluation.per_query:
    say(name, evaluation.per_query[name])
a, b = evaluation.per_query["ndcg"], evaluation.per_query["map"]
test = tr.significance.randomization_test(a, b, seed=3)
say("flips", test.p)
for system in ("ListNet", "RankSVM", "Squared"):
    ranker = tr.LinearRanker(system if system != "RankSVM" else "Hinge").fit(data)
    say("linear " + system, ranker.coef_)
folder = tempfile.TemporaryDirectory()
path = Path(folder.name, "some.txt")
numbers = [[f"{v:.{rng.integers(0, 18)}{rng.choice(list('efg'))}}" for v in row] for row in rng.normal(size=(500, 9))]
rows = [" ".join(f"{j}:{v}" for j, v in enumerate(row, 1) if rng.random() > 0.02) for row in numbers]
path.write_text("".join(f"{i % 5} qid:{i // 7} {row} # docid = d{i}\\n" for i, row in enumerate(rows)))
for layout, kind in (("dense", "f4"), ("dense", "f8"), ("sparse", "f4")):
    read = tr.read(path, layout=layout, dtype=kind)
    X = read.X if layout == "dense" else read.X.toarray()
    say("letor " + layout + " " + kind, X, read.labels, read.queries.sizes)
folder.cleanup()
"""


def bits_of(variant):
    environment = os.environ | {"TOPRANK_KERNELS": variant}
    command = [sys.executable, "-c", BITS, str(Path(__file__).parent)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return dict(line.rsplit(" ", 1) for line in done.stdout.splitlines())


def test_every_set_of_instructions_gives_the_same_bits():
    found = kernels.library()
    variants = found.variants[: found.variants.index(found.machine) + 1]
    if len(variants) == 1:
        pytest.skip("this machine has one set of instructions")
    baseline, *others = (bits_of(variant) for variant in variants)
    assert len(baseline) > 50
    for variant, other in zip(variants[1:], others, strict=True):
        assert {name for name in baseline if baseline[name] != other[name]} == set(), variant


@pytest.mark.skipif(shutil.which("objdump") is None, reason="there is no objdump")
def test_no_product_is_fused_with_a_sum():
    """Compilers fuse them in some patterns whatever they are told; a machine without such instructions differs then."""
    listed = subprocess.run(
        ["objdump", "-d", "--no-show-raw-insn", kernels.library().path], capture_output=True, text=True
    )
    if "file format elf64-little\n" in listed.stdout:
        pytest.skip("this objdump knows nothing of the machine that the kernels are for")
    assert listed.returncode == 0
    assert not [line for line in listed.stdout.splitlines() if "\tvfm" in line or "\tvfnm" in line or "\tfmla" in line]


def test_instructions_that_are_not_there_are_refused():
    with pytest.raises(ImportError, match="requests the instructions 'mmx'; this machine has baseline"):
        kernels.KernelLibrary(Path(kernels.library().path), "mmx")
