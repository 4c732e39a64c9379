"""Losses for labels that are estimates, for the shared matrix."""

from __future__ import annotations

from toprank.losses.safe import SafeDCG

CASES = [("safe-dcg", SafeDCG(within=1.2), {"labels": "real"})]
