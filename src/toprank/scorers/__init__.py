"""Scorers compute scores from feature rows, and backpropagate gradients of the scores to their weights."""
