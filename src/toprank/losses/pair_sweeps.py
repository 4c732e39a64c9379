"""Hinges over all pairs in O(m log m): one sweep along the scores with running sums for each grade.

A hinge pair (i, j), y_i > y_j, is active when s_i − s_j < 1. Visit the documents d by rising score: the set of scores
below s_d + 1 only grows, and a binary indexed tree over the grades answers "how many of them have a better grade, and
by how much do they fall short of s_d + 1?" in O(log grades). The same sweep over −s, with the grades turned round,
gives each better document the sums over its worse partners.

The running sums are Σw, Σw·gap and Σw·gap² with gap = 1 − (s_i − s_j) ≥ 0. Moving on by Δ changes gap to gap + Δ, so
they are updated by adding positive numbers only: no cancellation, whatever the range of the scores.
"""

from __future__ import annotations

import numpy as np

from toprank.compute import FloatArray, IntArray, kernel

__all__ = ["hinge_sweep"]

_N_SUMS = 3  # Σw, Σw·gap, Σw·gap²


@kernel
def hinge_sweep(
    power: int,
    scores: FloatArray,
    falling: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    by_difference: bool,
    slopes: FloatArray,
) -> float:
    """Σ c w w gap^power over the pairs of one query, power 1 or 2; its derivatives are added to `slopes`.

    Documents stand in the order of rising labels; `falling` lists them from the highest score to the lowest.
    """
    grades, n_grades = _grade_numbers(labels)
    sums = np.zeros((len(scores), _N_SUMS))
    _sweep(scores, falling[::-1].copy(), grades, labels, weights, n_grades, by_difference, sums)
    total = np.sum(weights * sums[:, power])
    slopes += power * weights * sums[:, power - 1]
    _sweep(-scores, falling, n_grades - 1 - grades, -labels, weights, n_grades, by_difference, sums)
    slopes -= power * weights * sums[:, power - 1]
    return float(total)


@kernel
def _grade_numbers(labels: FloatArray) -> tuple[IntArray, int]:
    """The rank of each label among the distinct ones (the labels are sorted), and how many there are."""
    grades = np.empty(len(labels), dtype=np.int64)
    grade = 0
    for p in range(len(labels)):
        if p > 0 and labels[p] != labels[p - 1]:
            grade += 1
        grades[p] = grade
    return grades, grade + 1


@kernel
def _sweep(
    keys: FloatArray,
    order: IntArray,
    grades: IntArray,
    labels: FloatArray,
    weights: FloatArray,
    n_grades: int,
    by_difference: bool,
    sums: FloatArray,
) -> None:
    """sums[d, r] = Σ_e c_de w_e gap^r over the partners e of a higher grade with gap = 1 − (k_e − k_d) > 0.

    `order` visits the documents by rising key. The tree stores better grades first, so that "better than d" is a
    prefix. For c = y_e − y_d a second triple of sums, with weights w·(y − lowest y), stands beside the first.
    """
    width = 2 * _N_SUMS if by_difference else _N_SUMS
    tree, reached, found = np.zeros((n_grades + 1, width)), np.zeros(n_grades + 1), np.zeros(width)
    lowest, head = labels.min(), 0
    for d in order:
        key = keys[d]
        while head < len(order) and keys[order[head]] - key < 1.0:
            e = order[head]
            gap, node = 1.0 - (keys[e] - key), n_grades - grades[e]
            while node <= n_grades:
                _move_on(tree, reached, node, key)
                _add(tree, node, weights[e], labels[e] - lowest, gap)
                node += node & -node
            head += 1
        found[:] = 0.0
        node = n_grades - grades[d] - 1
        while node > 0:
            _move_on(tree, reached, node, key)
            for r in range(width):
                found[r] += tree[node, r]
            node -= node & -node
        for r in range(_N_SUMS):
            sums[d, r] = found[_N_SUMS + r] - (labels[d] - lowest) * found[r] if by_difference else found[r]


@kernel
def _add(tree: FloatArray, node: int, weight: float, height: float, gap: float) -> None:
    for part in range(0, tree.shape[1], _N_SUMS):
        tree[node, part] += weight
        tree[node, part + 1] += weight * gap
        tree[node, part + 2] += weight * gap * gap
        weight *= height


@kernel
def _move_on(tree: FloatArray, reached: FloatArray, node: int, key: float) -> None:
    """Bring the sums of a node from the key they were last seen at to this one."""
    step = key - reached[node]
    reached[node] = key
    for part in range(0, tree.shape[1], _N_SUMS):
        tree[node, part + 2] += step * (2.0 * tree[node, part + 1] + step * tree[node, part])
        tree[node, part + 1] += step * tree[node, part]
