"""Rankers whose score is a sum over features, or an expected gain of linear functions."""
