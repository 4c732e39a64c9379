"""LightGBM's own text: its head is read here, its trees by the strict reader of our own files."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

from toprank.data.encoding import Encoding
from toprank.errors import DataError
from toprank.rankers.foreign.building import MOST_FEATURES, count_in, encoding
from toprank.rankers.foreign.ranker import ForestRanker
from toprank.rankers.trees.text import END_OF_TREES, GAP, INFO, TextHead, column_names, read_blocks


def read(content: bytes) -> ForestRanker:
    """The ranker in a text."""
    text = content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    head, _, rest = text.partition("\n\n")
    body, end, more = rest.partition(END_OF_TREES)
    if not end:
        raise DataError("the text ends before its trees do")
    entries = dict(line.partition("=")[::2] for line in head.split("\n")[1:])
    if entries.get("version") not in ("v3", "v4"):
        raise DataError(
            f"its text is of version {entries.get('version')!r}, but v3 and v4 are read; load it with a LightGBM of "
            "today and save it again"
        )
    outputs = max(count_in(entries, "num_class"), count_in(entries, "num_tree_per_iteration"))
    if outputs != 1:
        raise DataError(f"it gives {outputs} numbers for each row (classes), not one score")
    features = count_in(entries, "max_feature_idx") + 1
    names, infos = entries.get("feature_names", "").split(" "), entries.get("feature_infos", "").split(" ")
    if not 1 <= features <= MOST_FEATURES or len(names) != features:
        raise DataError("the names of its features do not fit their number")
    if len(infos) != features or not all(INFO.fullmatch(info) for info in infos):
        infos = ["none"] * features
    blocks = body.split(GAP)[:-1]  # those of v3 do not say that their leaves hold no linear models
    blocks = [
        block if "\nis_linear=" in block else block.replace("\nshrinkage=", "\nis_linear=0\nshrinkage=")
        for block in blocks
    ]
    trees = read_blocks(blocks, TextHead(1, None, None, infos))
    if "average_output" in head.split("\n"):
        trees = replace(trees, values=trees.values / len(trees.n_leaves))  # a random forest: the mean of its trees
    facts: dict[str, Any] = {"library": f"LightGBM, text {entries['version']}", "objective": entries.get("objective")}
    named = None if names == column_names(features) else _printable(names)
    return ForestRanker.of("LightGBM", trees, names=named, encoding=_categories(more, _printable(names)), facts=facts)


def _categories(more: str, names: list[str]) -> Encoding | None:
    """What stands below the trees of the frame that LightGBM was trained on: the levels of its categories."""
    match = re.search(r"^pandas_categorical:(.*)$", more, re.MULTILINE)
    try:
        levels = json.loads(match[1]) if match else None
    except (ValueError, RecursionError):
        raise DataError("its line pandas_categorical is damaged") from None
    if not levels:
        return None
    listed = re.search(r"^\[categorical_feature: ([\d,]{1,100000})\]$", more, re.MULTILINE | re.ASCII)
    places = [int(word[:9]) for word in listed[1].split(",") if word] if listed else []
    if not isinstance(levels, list) or len(places) != len(levels):
        raise DataError("it does not tell which columns the levels of its categories belong to")
    return encoding(names, dict(zip(places, levels, strict=True)))


def _printable(names: list[str]) -> list[str]:
    return [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in names]
