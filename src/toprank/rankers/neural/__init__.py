"""Neural rankers: the estimator, its training and its scoring."""
