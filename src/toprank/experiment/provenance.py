"""Where results come from: versions, machine, command, data, systems and rules."""

from __future__ import annotations

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from toprank.data.folds import Fold
from toprank.data.typed import typed_command
from toprank.experiment.content import versions
from toprank.experiment.spec import Experiment
from toprank.experiment.store import plain

__all__ = ["experiment_key", "fold_facts", "provenance_of"]

_CIRCUMSTANCES = ("versions", "machine", "command", "created", "notes")


def experiment_key(provenance: Mapping[str, Any]) -> str:
    """A name for what was asked for, the same for every run of it: data, systems, metrics and rules."""
    asked = {name: value for name, value in provenance.items() if name not in _CIRCUMSTANCES}
    text = json.dumps(plain(asked), sort_keys=True, ensure_ascii=False)
    return hashlib.blake2b(text.encode(), digest_size=8).hexdigest()


def provenance_of(
    experiment: Experiment, datasets: dict[str, Any], seeds: tuple[int, ...], notes: list[str]
) -> dict[str, Any]:
    """Everything that one needs to run the experiment again, or to doubt it; `seeds`: all that were used."""
    one = experiment
    return {
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "command": typed_command(),
        "created": datetime.now(UTC).isoformat(timespec="seconds"),
        "datasets": datasets,
        "systems": {
            entry.name: {"definition": entry.describe(), "system": entry.system and entry.system.name}
            for entry in one.entries
        },
        "metrics": {
            name: {"measure": str(measure), "higher_is_better": measure.higher_is_better}
            for name, measure in one.measures.items()
        },
        "conventions": {name: str(rules) for name, rules in one.conventions.items()},
        "seeds": list(seeds),
        "select_by": one.select_by,
        "select_convention": one.select_convention.name,
        "split_seed": one.split_seed,
        "baseline": one.baseline,
        "notes": notes,
    }


def fold_facts(fold: Fold, fingerprints: dict[str, str]) -> dict[str, Any]:
    """What a fold is: sizes and fingerprints of its parts."""
    parts = {part: getattr(fold, part) for part in ("train", "valid", "test")}
    return {
        "name": fold.name,
        "queries": {part: data.n_queries for part, data in parts.items()},
        "documents": {part: data.n_documents for part, data in parts.items()},
        "features": fold.train.n_features,
        "feature_names": None if fold.train.feature_names is None else list(fold.train.feature_names),
        "fingerprints": fingerprints,
    }
