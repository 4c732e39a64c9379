"""Reader of LightGBM's text format: the header is read here, the trees by the strict reader of our own files.

LightGBM locates trees by `tree_sizes`, the bytes of each, and reads the lines of a tree up to the first empty one. Here
the trees must begin at those positions, so texts that lost or gained a tree are refused.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import accumulate, pairwise
from typing import Any

from toprank.data.encoding import Encoding
from toprank.errors import DataError, refuse_if
from toprank.rankers.foreign.building import MAX_FEATURES, count_in, encoding
from toprank.rankers.foreign.ranker import ForestRanker
from toprank.rankers.trees.text import END_OF_TREES, INFO, TextHead, column_names, read_blocks


def read(content: bytes) -> ForestRanker:
    """Build a ranker from a text."""
    text = content.decode("utf-8", "surrogateescape").replace("\r\n", "\n")
    above, end, more = text.partition("\n" + END_OF_TREES)
    head, first, below = above.partition("\nTree=")
    refuse_if(not end, "the text ends before its trees do")
    entries = dict(line.partition("=")[::2] for line in head.split("\n")[1:])
    refuse_if(
        entries.get("version") not in ("v3", "v4"),
        f"its text has the version {entries.get('version')!r}, but only v3 and v4 are supported; load it with a "
        "current LightGBM and save it again",
    )
    outputs = max(count_in(entries, "num_class"), count_in(entries, "num_tree_per_iteration"))
    refuse_if(outputs != 1, f"it predicts {outputs} numbers for each row (classes), not one score")
    for name in ("label_index", "feature_infos"):  # unused here, but LightGBM refuses a text without them
        refuse_if(name not in entries, f"{name} is missing")
    features = count_in(entries, "max_feature_idx") + 1
    names, infos = entries.get("feature_names", "").split(" "), entries.get("feature_infos", "").split(" ")
    refuse_if(
        not 1 <= features <= MAX_FEATURES or len(names) != features,
        "the number of its feature names does not match its number of features",
    )
    if len(infos) != features or not all(INFO.fullmatch(info) for info in infos):
        infos = ["none"] * features
    blocks = [
        # v3 has no linear models in leaves, and no line about them.
        block if "\nis_linear=" in block else block.replace("\nshrinkage=", "\nis_linear=0\nshrinkage=")
        for block in _blocks((first + below)[1:], entries.get("tree_sizes"))
    ]
    trees = read_blocks(blocks, TextHead(1, None, None, infos))
    if "average_output" in entries:
        trees = replace(trees, values=trees.values / len(trees.n_leaves))  # a random forest: the mean of its trees
    facts: dict[str, Any] = {"library": f"LightGBM, text {entries['version']}", "objective": entries.get("objective")}
    named = None if names == column_names(features) else _printable(names)
    return ForestRanker.from_forest(
        "LightGBM", trees, names=named, encoding=_categories(more, _printable(names)), facts=facts
    )


def _blocks(body: str, sizes: str | None) -> list[str]:
    """Return the lines of each tree, up to its first empty line.

    Args:
        body: the text from the first tree.
        sizes: the value of `tree_sizes`; None if it is missing, in which case LightGBM reads one tree after another.

    Raises:
        DataError: a tree begins elsewhere than `sizes` states, or other lines follow a tree.
    """
    starts = [match.start() for match in re.finditer("^Tree=", body, re.MULTILINE)]
    if sizes is not None:
        refuse_if(not re.fullmatch(r"\d{1,12}(?: \d{1,12})*", sizes, re.ASCII), "its tree_sizes are damaged")
        stated = [0, *accumulate(map(int, sizes.split(" ")))][:-1]
        refuse_if(
            len(starts) != len(stated), f"its tree_sizes state {len(stated):,} trees, but it contains {len(starts):,}"
        )
        for number, (start, place) in enumerate(zip(starts, stated, strict=True)):
            refuse_if(
                start != place,
                f"tree number {number} (from 0) begins {start:,} bytes after the first one, but its tree_sizes "
                f"state {place:,} bytes",
            )
    blocks: list[str] = []
    for start, following in pairwise([*starts, len(body)]):
        block, _, between = body[start:following].partition("\n\n")
        if sizes is None and between.strip():
            raise DataError(f"tree number {len(blocks)} (from 0) is followed by lines outside of any tree")
        blocks.append(block.rstrip("\n"))
    return blocks


def _categories(more: str, names: list[str]) -> Encoding | None:
    """Return the category levels of LightGBM's training frame, which are stored below the trees."""
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
        raise DataError("it does not state the columns of its category levels")
    return encoding(names, dict(zip(places, levels, strict=True)))


def _printable(names: list[str]) -> list[str]:
    return [name.encode("utf-8", "surrogateescape").decode("utf-8", "replace") for name in names]
