"""One vocabulary: what every result can do, and words that mean one thing."""

from __future__ import annotations

import pkgutil
from importlib import import_module

import pytest

import toprank
from toprank.display.tables import DisplayMixin, Table

FORMER = {"sentence", "words", "verdicts", "verdict", "remarks", "notes", "untold"}
"""Names that prose had in places; it is `summary` everywhere."""


def results() -> list[type]:
    for module in pkgutil.walk_packages(toprank.__path__, "toprank."):
        if not module.name.endswith(("__main__", "_kernels")):
            try:
                import_module(module.name)
            except ImportError:  # of an extra that is not here
                continue
    found, to_see = [], [DisplayMixin]
    while to_see:
        to_see += (more := to_see.pop().__subclasses__())
        found += [kind for kind in more if kind.__module__.startswith("toprank")]
    return found


@pytest.mark.parametrize("kind", results(), ids=lambda kind: kind.__name__)
def test_a_result_speaks_the_one_vocabulary(kind):
    missing = {name for name in ("to_frame", "to_dict", "_repr_html_", "summary") if not hasattr(kind, name)}
    names = {*dir(kind), *getattr(kind, "__dataclass_fields__", ())}
    assert not missing | (FORMER & names)
    assert isinstance(kind.summary, property)


DRAWN = {
    "Comparison", "ComparedModels", "ComparisonReport", "Drift", "Evaluation", "Explanation", "Importance",
    "LaunchReport", "LogReport", "Propensities", "QueryExplanation", "Results", "ClickTrainingResult",
}  # fmt: skip
"""Results whose page has a picture."""


@pytest.mark.parametrize("kind", [kind for kind in results() if kind.__name__ in DRAWN], ids=lambda kind: kind.__name__)
def test_a_result_whose_page_has_a_picture_plots_it(kind):
    assert callable(kind.plot)


def test_a_summary_is_what_is_said_without_the_tables():
    class Told(DisplayMixin):
        def _parts(self):
            return ["Two were asked.", Table(("who", "age"), [("Ann", "3")], names=1), ("Ann is 3.", "Bob is 4."), ""]

    assert Told().summary == "Two were asked.\nAnn is 3.\nBob is 4."
