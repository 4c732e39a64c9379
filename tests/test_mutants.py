"""The script that asks whether the suite notices single mistakes: its mutants are one change each, and compile."""

from __future__ import annotations

import ast

from mutants import EQUIVALENT, ROOT, chosen, mutants_of

MODULE = '''"""A docstring stays."""
LIMIT: int = 10


def kept(values, limit=LIMIT, strict: bool = True):
    """So does this one."""
    if values and limit > 0:
        values.sort()
        return [value for value in values if value is not None and
                -value < limit]
    raise ValueError("ä" + "nothing", *zip(values, values[2:], strict=True))
'''
WANTED = {
    ("10", "(11)"),
    ("True", "False"),
    ("values and limit > 0", "(values or limit > 0)"),
    ("limit > 0", "(limit >= 0)"),
    ("0", "(1)"),
    ("values.sort()", "pass"),
    ("value is not None", "(value is None)"),
    ("-value", "(value)"),
    ('raise ValueError("ä" + "nothing", *zip(values, values[2:], strict=True))', "pass"),
    ("2", "(3)"),
}


def test_mutants_are_single_changes_that_compile(tmp_path):
    path = tmp_path / "module.py"
    path.write_text(MODULE)
    mutants = mutants_of(path)
    assert {(mutant.before, mutant.after) for mutant in mutants} >= WANTED
    for mutant in mutants:
        changed = mutant.applied(MODULE.encode()).decode()
        ast.parse(changed)
        assert changed != MODULE
    # The second line of a statement is reached where the statement begins.
    (sign,) = (mutant for mutant in mutants if mutant.before == "-value")
    assert (sign.line, list(sign.statement)) == (10, [9, 10])
    assert [mutant.before for mutant in mutants].count("True") == 1  # and not that of zip, which is an assertion
    assert not any("docstring" in mutant.before or mutant.before == "int" for mutant in mutants)


def test_quick_tests_of_every_file_come_first():
    seconds = {"a::slow": 9.0, "a::quick": 1.0, "b::middle": 2.0, "b::long": 50.0}
    assert chosen(list(seconds), seconds, 15.0) == ["a::quick", "b::middle", "a::slow"]
    assert chosen(["b::long"], seconds, 15.0) == ["b::long"]  # one at least
    assert chosen(["gone::test"], seconds, 15.0) == []


def test_equivalent_mutants_are_mutants():
    """One whose line has changed is judged anew."""
    known = {path: mutants_of(ROOT / path) for path in {key.partition("  ")[0] for key in EQUIVALENT}}
    for key, reason in EQUIVALENT.items():
        assert key in {mutant.key for mutant in known[key.partition("  ")[0]]}
        assert reason
