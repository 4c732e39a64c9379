"""Rankers whose score is a sum over features, or over grades of linear functions."""
