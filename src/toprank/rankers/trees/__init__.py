"""Gradient-boosted trees: the estimator, its training by LightGBM, and scoring by our own kernel."""
