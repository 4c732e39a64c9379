"""Data whose truth is known: P(grade | x) for every document, so that regret can be measured and not only guessed."""

from toprank.data.synthetic.truth import SyntheticData, synthetic

__all__ = ["SyntheticData", "synthetic"]
