"""Lists interleaved from two models by team draft (`toprank.clicks.interleaved`), to compare the models by clicks.

The service does not store lists: the signed id contains the team of each document (`impressions.py`), so every replica
with the same secret accepts events. `toprank.clicks.interleaving_test` and `toprank clicks interleaving` evaluate the
log.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from toprank.clicks.interleaved import team_draft
from toprank.serving.impressions import ListIdSigner, OpenedList
from toprank.serving.models import LoadedModel

_MAX_LENGTH = 1000  # Maximum number of documents in a list.


class InterleavedModels:
    """Interleaves the lists of two models.

    Args:
        a: name of the first model.
        b: name of the second model.
        rng: random generator of the draft.
        secret: secret that signs the ids of lists. Default: a random one, so ids are valid in this process only.
    """

    def __init__(self, a: str, b: str, rng: random.Random | None = None, secret: bytes | None = None) -> None:
        self.names = (a, b)
        self._rng, self._signer = rng or random.Random(), ListIdSigner(self.names, secret)

    def draft(
        self,
        models: tuple[LoadedModel, LoadedModel],
        rankings: tuple[Sequence[int], Sequence[int]],
        ids: Sequence[Any],
        top: int,
    ) -> tuple[str, dict[Any, int]]:
        """Return a new list: its id, and the ids of its documents with their teams, 0 or 1, in order."""
        drafted = team_draft(*rankings, min(top, _MAX_LENGTH), lambda: self._rng.getrandbits(1))
        teams = {ids[document]: team for document, team in drafted.items()}
        return self._signer.sign_interleaved(list(teams.items()), (models[0].version, models[1].version)), teams

    def model_of(self, shown: OpenedList, document: Any) -> str | None:
        """Return the model that contributed a document to a list; None if the list is not of these two models."""
        place = shown.place(document) if shown.pair == self._signer.pair else None
        return None if place is None else self.names[place[1]]
