"""Where results come from: versions, machine, command, data, systems and rules."""

from __future__ import annotations

import os
import platform
import shlex
import sys
from datetime import UTC, datetime
from typing import Any

from toprank.data.folds import Fold
from toprank.experiment.content import versions
from toprank.experiment.spec import Experiment

__all__ = ["fold_facts", "provenance_of"]


def provenance_of(experiment: Experiment, datasets: dict[str, Any], notes: list[str]) -> dict[str, Any]:
    """Everything that one needs to run the experiment again, or to doubt it."""
    one = experiment
    return {
        "versions": versions(),
        "machine": {"system": platform.platform(), "processor": platform.machine(), "cores": os.cpu_count()},
        "command": shlex.join(sys.argv),
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
        "seeds": list(one.seeds),
        "select_by": one.select_by,
        "select_convention": one.select_convention,
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
