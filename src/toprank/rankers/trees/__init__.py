"""Boosted trees: the ranker, its training by LightGBM, and trees that score by our own kernel."""
