"""`check_loss`: silent about the losses that keep their promises, and one sentence for each promise that is broken."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

import toprank as tr
from toprank import losses
from toprank.data.queries import Queries
from toprank.errors import DataError
from toprank.losses.base import BoundLoss, Curvature, Diagonal, Loss, Traits
from toprank.losses.checking import check_loss

# A loss that is right, Σ_j w_j (s_j − y_j)², and everything that can be wrong with it.


@dataclass(frozen=True)
class Toy(Loss):
    fault: str = ""
    loose: float = 1.0
    traits = Traits(convex=True, smooth=True, shift_invariant=False)

    def bind(self, judgments):
        if self.fault == "raises when bound":
            raise RuntimeError("no labels today")
        if self.fault == "refuses document weights" and judgments.document_weights is not None:
            raise DataError("Document weights are refused.")
        if self.fault == "file order":
            judgments = replace(judgments, labels=judgments.labels + 0.1 * np.arange(len(judgments.labels)))
        if self.fault == "ignores query weights":
            judgments = replace(judgments, query_weights=None)
        weights = judgments.weights
        if self.fault == "ignores document weights":
            weights = np.ones(len(weights))
        if self.fault == "weights of one matter" and judgments.document_weights is not None:
            weights = 2 * weights
        return BoundToy(self, judgments, weights)


class BoundToy(BoundLoss):
    def __init__(self, toy, judgments, weights):
        super().__init__(judgments)
        self.fault, self.loose, self.labels, self.weights = toy.fault, toy.loose, judgments.labels, weights
        self.weighted = judgments.document_weights is not None

    def evaluate_block(self, block, scores, grad, requested):
        if self.fault == "raises when asked":
            raise KeyError("lost")
        rows, scale = block.rows, block.broadcast(block.scale)
        if self.fault == "counts rows from the front":
            rows = slice(0, len(scores))
        error, weights = scores - self.labels[rows], self.weights[rows]
        slope = 2 * weights * error * scale
        if self.fault == "wrong by a factor":
            slope = slope / 2
        if self.fault == "not scaled":
            slope = 2 * weights * error
        if self.fault == "not a number":
            slope[:] = np.nan
        grad[1 if self.fault == "unfilled" else 0 :] = slope[1 if self.fault == "unfilled" else 0 :]
        values = block.sum(weights * error**2)
        if self.fault == "divides by the weight":
            values = values * block.scale / block.scale
        if self.fault == "overflows":
            values = values + np.exp(scores).max() * 0
        if self.fault == "changes the scores":
            scores += 1.0
        if self.fault == "one number":
            values = np.mean(values)
        if self.fault == "one number in an array":
            values = np.mean(values, keepdims=True)
        if self.fault == "nothing":
            return None
        if self.fault == "no pair":
            return values
        factor = {"curvature by half": 0.5, "curvature upside down": -1.0}
        diagonal = 2 * factor.get(self.fault, self.loose) * weights * scale
        if self.fault == "curvature in file order":
            diagonal = diagonal * (1.0 + 0.1 * np.arange(len(diagonal)))
        if self.fault == "upside down where scores are tied" and not scores.any():
            diagonal = -diagonal
        if self.fault == "weights of one bend" and self.weighted:
            diagonal = 2 * diagonal
        if self.fault in ("not symmetric", "other diagonal", "couples queries"):
            return values, Odd(self.fault, diagonal)
        return values, Diagonal(diagonal) if requested.curvature and self.fault != "no curvature" else None


class Odd(Curvature):
    def __init__(self, fault, values):
        self.fault, self.values = fault, values

    def __matmul__(self, V):
        out = self.values * V
        if self.fault == "not symmetric":
            out[0] += V[-1]
        if self.fault == "couples queries":
            out += V.sum()
        return out

    def diagonal(self):
        return 2 * self.values if self.fault == "other diagonal" else self.values + (self.fault == "couples queries")


FAULTS = {
    "raises when bound": "could not be bound to the labels: RuntimeError: no labels today",
    "raises when asked": "could not be checked. KeyError: 'lost'",
    "not a number": "gradient at ordinary scores is not finite for document 0",
    "wrong by a factor": "not the derivative of the value",
    "not scaled": "not the derivative of the value",
    "unfilled": "unfilled",
    "one number": "one number for each query",
    "changes the scores": "changes the scores",
    "counts rows from the front": "check the row indices",
    "curvature by half": "is not the Hessian",
    "curvature upside down": "not positive semi-definite",
    "upside down where scores are tied": "not positive semi-definite",
    "not symmetric": "not symmetric",
    "other diagonal": "is not the diagonal",
    "couples queries": "documents of different queries",
    "file order": "order of a query's rows",
    "curvature in file order": "order of a query's rows",
    "ignores query weights": "Query weights are not used",
    "divides by the weight": "do not divide by `scale`",
    "ignores document weights": "Document weights are ignored",
    "weights of one matter": "all 1 change the gradient",
    "weights of one bend": "all 1 change the curvature",
    "overflows": "±1e8",
}


@pytest.mark.parametrize(("fault", "sentence"), FAULTS.items())
def test_a_broken_promise_is_said(fault, sentence):
    found = check_loss(Toy(fault))
    assert sentence in " ".join(found)
    assert all(one.endswith((".", "today", "'lost'")) for one in found)


@pytest.mark.parametrize(
    ("ranker", "options"),
    [
        (tr.LinearRanker, {}),
        (tr.ExpectedGainRanker, {}),
        (tr.TreeRanker, {"n_trees": 2, "threads": 1}),
        (tr.NeuralRanker, {"epochs": 1, "hidden": (), "threads": 1, "device": "cpu"}),
    ],
)
@pytest.mark.parametrize("fault", ["one number", "one number in an array", "nothing", "no pair"])
def test_rankers_refuse_a_loss_without_a_number_for_each_query(ranker, options, fault):
    data = tr.synthetic(n_queries=8, n_documents=4, n_features=2, seed=0)
    if issubclass(ranker, tr.NeuralRanker):
        pytest.importorskip("torch")
    with pytest.raises(
        DataError, match=r"`evaluate_block` of BoundToy returned .* for 2 queries. Return an array with one number"
    ):
        ranker(Toy(fault), **options).fit(data)


def test_one_query_has_a_number_of_its_own():
    one = Queries([0, 3])
    assert Toy().on([1.0, 0.0, 0.0], one).at([1.0, 0.0, 0.0]).value == 0.0
    with pytest.raises(DataError, match=r"returned .* for 1 query"):
        Toy("one number").on([1.0, 0.0, 0.0], one)


@pytest.mark.parametrize("fault", ["", "refuses document weights"])
def test_nothing_is_said_without_need(fault):
    assert check_loss(Toy(fault)) == []


def test_the_sentence_holds_both_numbers():
    [first, *_] = check_loss(Toy("wrong by a factor"), [2.0, 0.0], scores=[0.5, 1.0])
    # 2(0.5 − 2) = −3, which the fault halves; document 1, 2(1 − 0) = 2, is wrong by less
    assert "document 0 it is -1.5, and central differences give -3." in first


def claiming(traits, **options):
    """The right loss with other claims."""
    return type("Boast", (Toy,), {"traits": traits})(**options)


@pytest.mark.parametrize(
    ("traits", "sentence"),
    [
        (Traits(convex=True, smooth=True, shift_invariant=True), "declares shift_invariant=True"),
        (Traits(convex=True, smooth=True, shift_invariant=False, curvature="majorizer"), None),
        (Traits(convex=False, smooth=True, shift_invariant=False, exact_gradient=False), None),
    ],
)
def test_claims_are_compared_with_what_happens(traits, sentence):
    found = check_loss(claiming(traits))
    assert (sentence is None and found == []) or any(sentence in one for one in found)


@pytest.mark.parametrize(
    ("name", "word"), [("curvature", "Exact"), ("curvature", "newton"), ("space", "grades"), ("columns", "odds")]
)
def test_traits_speak_of_what_there_is(name, word):
    found = check_loss(claiming(Traits(convex=True, smooth=True, shift_invariant=False, **{name: word})))
    assert found == [
        f"The traits declare {name}='{word}', which is not one of "
        + {
            "curvature": "'exact', 'gauss-newton', 'majorizer'.",
            "space": "'score', 'class'.",
            "columns": "'grades', 'thresholds'.",
        }[name]
    ]


def test_labels_are_gains_where_that_is_claimed():
    class Boast(losses.Squared):  # whose value grows with the square of its labels
        traits = replace(losses.Squared.traits, labels_are_gains=True)

    assert ["labels_are_gains=True" in sentence for sentence in check_loss(Boast(gain=None))] == [True]


@pytest.mark.parametrize(("loose", "said"), [(1.0, 0), (99.0, 0), (101.0, 1), (1e9, 1)])
def test_a_majorizer_that_makes_trees_crawl_is_said(loose, said):
    """For a quadratic the factor is exactly that of the curvature."""
    traits = Traits(convex=True, smooth=True, shift_invariant=False, curvature="majorizer")
    found = check_loss(claiming(traits, loose=loose))
    assert ["majorizer is loose" in one for one in found] == [True] * said


def test_a_minimum_that_is_far_away_does_not_make_a_majorizer_loose():
    class Boast(losses.Exponential):  # its value falls for ever where labels can be told apart
        traits = Traits(convex=True, smooth=True, curvature="majorizer")

    assert check_loss(Boast()) == []


def test_a_claim_that_is_not_made_is_asked_for():
    class Modest(losses.ListNet):
        traits = Traits(convex=True, smooth=True, shift_invariant=False)

    assert ["claim shift_invariant=True" in one for one in check_loss(Modest())] == [True]


def test_convexity_is_not_believed():
    class Boast(losses.ApproxNDCG):
        traits = Traits(convex=True, smooth=True, curvature="majorizer")

    assert ["is declared convex" in one for one in check_loss(Boast())] == [True]


def test_an_inexact_gradient_is_not_compared():
    assert check_loss(losses.LambdaRank()) == []


def test_only_the_front_of_long_data_is_looked_at():
    class Counting(Toy):
        def bind(self, judgments):
            seen.append((len(judgments.labels), len(judgments.queries)))
            return super().bind(judgments)

    seen = []
    assert check_loss(Counting(), np.zeros(1000), Queries.from_sizes([90] * 10 + [100])) == []
    assert set(seen) == {(180, 2)}
    seen.clear()
    check_loss(Counting(), np.zeros(300), Queries([0, 300]))
    assert set(seen) == {(300, 1)}  # a query is never cut


def test_the_seed_decides():
    assert check_loss(Toy("wrong by a factor"), seed=1) == check_loss(Toy("wrong by a factor"), seed=1)
    assert check_loss(Toy("wrong by a factor"), seed=1) != check_loss(Toy("wrong by a factor"), seed=2)


def test_weights_are_those_that_the_loss_is_tried_with():
    class Heavy(Toy):
        """Wrong where a document weighs more than 1."""

        def bind(self, judgments):
            heavy = judgments.document_weights is not None and 3.0 in judgments.weights
            return BoundToy(Toy("wrong by a factor" if heavy else ""), judgments, judgments.weights)

    labels = [1.0, 0.0, 2.0]
    assert check_loss(Heavy(), labels, document_weights=[1.0, 1.0, 2.0]) == []
    found = check_loss(Heavy(), labels, document_weights=[1.0, 1.0, 3.0])
    assert "not the derivative of the value" in " ".join(found)
