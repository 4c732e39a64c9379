"""Values that are typed behind --set and --space."""

from __future__ import annotations

import ast
import json
from typing import Any

import typer

__all__ = ["read_settings", "refuse_set", "value_of"]

_KINDS = (bool, int, float, str, list, tuple, dict, type(None))


def value_of(text: str) -> Any:
    """A value as JSON where it is, else as Python writes it, else as text; several in a row are a list.

    >>> [value_of(text) for text in ("0.5", "true", "[8, 4]", "(8, 4)", "8,4", "8,", ".5", "efron", "ndcg@10")]
    [0.5, True, [8, 4], [8, 4], [8, 4], [8], 0.5, 'efron', 'ndcg@10']
    """
    text = text.strip()
    for read in (json.loads, ast.literal_eval):
        try:
            value = read(text)
        except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
            continue
        if isinstance(value, _KINDS):
            return list(value) if isinstance(value, tuple) else value
    return text


def read_settings(pairs: list[str]) -> dict[str, Any]:
    """The hyper-parameters that were fixed by key=value; each once."""
    settings: dict[str, Any] = {}
    for pair in pairs:
        key, equals, value = (part.strip() for part in pair.partition("="))
        if not equals or not key:
            raise typer.BadParameter(f"--set takes key=value, not '{pair}'.")
        if key in settings:
            raise typer.BadParameter(f"--set names {key} twice.")
        settings[key] = value_of(value)
    return settings


def refuse_set(name: str, why: str, instead: str | None = None) -> typer.BadParameter:
    """The refusal to fix what the command itself decides."""
    return typer.BadParameter(f"{name} {why}: use --{instead or name}, not --set {name}=.")
