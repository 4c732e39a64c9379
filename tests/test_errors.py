"""Errors travel between processes as they are."""

import pickle
from concurrent.futures import ProcessPoolExecutor
from importlib import import_module
from importlib.util import find_spec

import pytest

import toprank as tr
from toprank.data.trec.tables import RepeatedPairError
from toprank.errors import (
    ClusterError,
    DataError,
    FileError,
    FormatError,
    MissingExtraError,
    Remedy,
    ToprankError,
    UnknownNameError,
    require_extra,
    reword,
)
from toprank.exporters.exporter import ParityError
from toprank.serving.requests import RefusedError

REMEDY = Remedy("lower {k}.", "ask for fewer.", k=...)


def subclasses(kind):
    return {kind}.union(*map(subclasses, kind.__subclasses__()))


ERRORS = [
    ToprankError("It is wrong.", remedy=REMEDY),
    DataError("It is wrong;", remedy=REMEDY),
    FileError("It is missing."),
    FormatError("Not a number;", path="a.txt", line=3, column=7, remedy=REMEDY),
    FormatError("Nothing here."),
    ClusterError("Nobody answers."),
    UnknownNameError("metric", "ncdg", ["ndcg", "map"]),
    UnknownNameError("metric", "ncdg", ["ndcg", "map"], command=Remedy("look", "see {k}.", k=3)),
    MissingExtraError("Install it."),
]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_an_error_arrives_as_it_was(error, protocol):
    error.add_note("seen")
    again = pickle.loads(pickle.dumps(error, protocol))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert again.args == error.args
    assert vars(again) == vars(error)
    for part, before in zip(again.args, error.args, strict=True):
        assert spelled(part) == spelled(before)


def spelled(part):
    return reword(part, lambda name, _: f"-{name}", lambda name: name == "k")


def test_a_name_among_none_is_not_followed_by_an_empty_list():
    assert (
        str(UnknownNameError("set of vectors", "dense", []))
        == "There is no set of vectors called 'dense'; there is none."
    )


def test_every_kind_can_arrive():
    """Kinds that ask for more than a message, too; a new one is found here."""
    assert {RepeatedPairError, ParityError, RefusedError} < subclasses(ToprankError)
    if find_spec("torch"):
        import_module("toprank.rankers.neural.objective")  # which has one of its own
    for kind in subclasses(ToprankError):
        error = kind.__new__(kind)
        error.args, error.place = ("It is wrong.",), 3
        again = pickle.loads(pickle.dumps(error))
        assert (type(again), str(again), again.place) == (kind, "It is wrong.", 3)


def test_an_error_of_a_worker_does_not_break_the_pool():
    with ProcessPoolExecutor(1) as pool:
        with pytest.raises(UnknownNameError, match="did you mean 'ListNet'"):
            pool.submit(tr.systems.get, "Listnt").result()
        assert pool.submit(len, "abc").result() == 3


def test_a_package_that_is_missing_is_named_with_its_extra():
    with pytest.raises(MissingExtraError, match=r"^This needs no_such_module, .*pip install 'toprank\[neural\]'"):
        require_extra("no_such_module", "neural", "This")
    with pytest.raises(MissingExtraError, match="no_such_module"):
        require_extra("no_such_module.inner", "neural", "This")


def test_an_import_that_fails_within_a_package_is_not_taken_for_a_missing_extra(tmp_path, monkeypatch):
    (tmp_path / "there_is_one.py").write_text("import no_such_module")
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(ModuleNotFoundError, match="no_such_module") as caught:
        require_extra("there_is_one", "neural", "This")
    assert not isinstance(caught.value, MissingExtraError)
