"""Product searches whose truth is known: queries by words, products with sellers, brands, prices, titles and texts.

    python benchmarks/product_tables.py -o products.parquet [--queries 2000] [--documents 20] [--seed 0]

A `Catalogue` is drawn by its own seed: products with a title and a description made of a small vocabulary, a seller
and a brand (few are large, most are small), a price, ratings, a date. `catalog.table(queries, seed=...)` draws
searches among them, so that tables of different seeds are of one shop: train on one, test on another.

The grade of a product for a search comes from

    liking = 1.5 · match + quality + 0.8 · numbers + noise,      grades 0 … 4 by fixed shares of all pairs,

with *match* the share of the search's words that the product has (what people mean: `sofa` finds a `couch`, `lamps` a
`lamp`), half of it counted where only the description has the word; *quality* the sum of effects of its seller, its
brand, the product itself, and of the seller in that kind of product, with the spreads of `QUALITY`; *numbers* a curve
of price and rating. Each part is centered and has spread 1 before it is multiplied. `quality` and `match` of each row
are returned too (`Truth`), so that what a system finds can be compared with what there is.
"""

from __future__ import annotations

import argparse
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pandas as pd

Floats = npt.NDArray[np.float64]
Whole = npt.NDArray[np.int64]

# Two names of one kind of product each: a title has one of them, a search the other as often.
KINDS = (
    ("sofa", "couch"), ("lamp", "light"), ("rug", "carpet"), ("cupboard", "cabinet"), ("curtain", "drape"),
    ("pillow", "cushion"), ("blanket", "throw"), ("bin", "basket"), ("mug", "cup"), ("pan", "skillet"),
    ("jacket", "coat"), ("sneaker", "trainer"), ("sweater", "jumper"), ("trouser", "pant"), ("bag", "satchel"),
    ("phone", "mobile"), ("laptop", "notebook"), ("speaker", "loudspeaker"), ("headphone", "headset"),
    ("drill", "driver"), ("hose", "pipe"), ("spade", "shovel"), ("bicycle", "bike"), ("tent", "shelter"),
    ("stroller", "pram"), ("doll", "figure"), ("puzzle", "jigsaw"), ("pencil", "crayon"), ("camera", "camcorder"),
    ("watch", "timepiece"),
)  # fmt: skip
ATTRIBUTES = {
    "color": ("red", "blue", "green", "black", "white", "gray", "brown", "yellow", "pink", "purple", "orange"),
    "material": ("oak", "steel", "cotton", "leather", "wool", "plastic", "glass", "bamboo", "linen", "ceramic"),
    "style": ("modern", "vintage", "rustic", "classic", "minimal", "industrial", "nordic", "colonial"),
    "use": ("kitchen", "garden", "office", "travel", "bedroom", "outdoor", "nursery", "bathroom", "workshop"),
}
FILLERS = ("fast delivery", "two years of guarantee", "made with care", "our customers love it", "new this season",
           "easy to clean", "a gift for everyone", "sold by the piece", "best price", "only a few left")  # fmt: skip
QUALITY = {"seller": 1.0, "brand": 0.6, "product": 0.7, "seller and kind": 0.5}
"""Spread of the effect of each."""
SHARES = (0.45, 0.25, 0.15, 0.10, 0.05)
"""Of grades 0 … 4 among all pairs of a search and a product."""


class Truth(NamedTuple):
    """What made the grades, one number for each row; each part with the spread of its effect."""

    match: Floats
    quality: Floats
    numbers: Floats
    liking: Floats


class Catalogue:
    """The products of a shop.

    Args:
        products: how many there are.
        sellers: how many offer them; the k-th largest has a share ∝ 1 / (k + 10).
        brands: how many made them, with shares of the same kind.
        seed: decides all of it.
    """

    def __init__(self, products: int = 50_000, sellers: int = 1_500, brands: int = 300, seed: int = 0) -> None:
        rng = np.random.default_rng((seed, 1))
        self.seed, self.size = seed, products
        self.seller, self.brand = drawn_by_size(rng, sellers, products), drawn_by_size(rng, brands, products)
        self.kind = rng.integers(len(KINDS), size=products)
        self.attributes = {name: rng.integers(len(words), size=products) for name, words in ATTRIBUTES.items()}
        self.in_title = {name: rng.random(products) < 0.6 for name in ATTRIBUTES}
        self.in_description = {name: rng.random(products) < 0.7 for name in ATTRIBUTES}
        self.name_in_title, self.name_in_description = rng.integers(2, size=(2, products))
        self.price = np.round(np.exp(rng.normal(3.5, 0.8, products) + 0.02 * self.kind), 2)
        self.rating = np.clip(np.round(rng.normal(4.0, 0.6, products), 1), 1, 5)
        self.reviews = rng.geometric(0.02, products)
        self.added = rng.integers(0, 900, products)
        effects = {
            "seller": rng.normal(size=sellers)[self.seller],
            "brand": rng.normal(size=brands)[self.brand],
            "product": rng.normal(size=products),
            "seller and kind": rng.normal(size=(sellers, len(KINDS)))[self.seller, self.kind],
        }
        self.quality = sum(QUALITY[name] * effect for name, effect in effects.items())
        wanted = np.exp(-((np.log(self.price) - 3.2) ** 2)) + 0.4 * self.rating * (self.rating > 3.5)
        self.numbers = (wanted - wanted.mean()) / wanted.std()

    @cached_property
    def titles(self) -> npt.NDArray[np.object_]:
        """What each product is called."""
        fillers = np.random.default_rng((self.seed, 2)).integers(3 * len(FILLERS), size=self.size)
        return np.array([self._title(p, fillers[p]) for p in range(self.size)], dtype=object)

    @cached_property
    def descriptions(self) -> npt.NDArray[np.object_]:
        """What is said of each product."""
        fillers = np.random.default_rng((self.seed, 3)).integers(len(FILLERS), size=(self.size, 3))
        return np.array([self._description(p, fillers[p]) for p in range(self.size)], dtype=object)

    def _words(self, p: int, where: dict[str, npt.NDArray[np.bool_]]) -> list[str]:
        return [words[self.attributes[name][p]] for name, words in ATTRIBUTES.items() if where[name][p]]

    def _title(self, p: int, filler: int) -> str:
        words = [f"Brand{self.brand[p]}", *self._words(p, self.in_title), KINDS[self.kind[p]][self.name_in_title[p]]]
        return " ".join(words) + (f" - {FILLERS[filler]}" if filler < len(FILLERS) else "")

    def _description(self, p: int, fillers: Whole) -> str:
        name = KINDS[self.kind[p]][self.name_in_description[p]]
        words = self._words(p, self.in_description)
        return f"This {' '.join([*words, name])} is here: {'; '.join(FILLERS[one] for one in fillers)}."

    def table(self, queries: int = 2_000, documents: int = 20, seed: int = 0) -> tuple[pd.DataFrame, Truth]:
        """Searches, the products that were judged for each, and their grades; `seed` decides which.

        Two thirds of the products of a search are of the kind that it names. Popular products come more often.
        """
        rng = np.random.default_rng((self.seed, 4, seed))
        kind = rng.integers(len(KINDS), size=queries)
        asked = {name: rng.integers(len(words), size=queries) for name, words in ATTRIBUTES.items()}
        named = np.argsort(rng.random((queries, len(ATTRIBUTES))), axis=1)[:, : len(ATTRIBUTES)]
        counts = rng.integers(1, 4, size=queries)  # attributes in the search
        asks = {name: (named == place).argmax(axis=1) < counts for place, name in enumerate(ATTRIBUTES)}
        product = self._candidates(rng, kind, documents)
        query = np.repeat(np.arange(queries), documents)
        match = self._match(query, product, kind, asked, asks)
        noise = rng.normal(size=len(query))
        liking = 1.5 * match + self.quality[product] + 0.8 * self.numbers[product] + 0.7 * noise
        grades = np.digitize(liking, self._limits)
        frame = self._columns(product)
        spoken = [self._search(rng, kind[q], {name: asked[name][q] for name in asks if asks[name][q]})
                  for q in range(queries)]  # fmt: skip
        frame.insert(0, "query_id", [f"{seed}:{q}" for q in query])
        frame.insert(1, "search_term", np.array(spoken, dtype=object)[query])
        frame["relevance"] = grades
        return frame, Truth(1.5 * match, self.quality[product], 0.8 * self.numbers[product], liking)

    def _columns(self, product: Whole) -> pd.DataFrame:
        rows = {
            "product_id": np.array([f"p{p}" for p in range(self.size)], dtype=object)[product],
            "title": self.titles[product],
            "description": self.descriptions[product],
            "seller": np.array([f"seller {s}" for s in range(self.seller.max() + 1)], dtype=object)[
                self.seller[product]
            ],
            "brand": np.array([f"Brand{b}" for b in range(self.brand.max() + 1)], dtype=object)[self.brand[product]],
            "kind": np.array([names[0] for names in KINDS], dtype=object)[self.kind[product]],
            # As a category of its own: the id of a document is no feature.
            "product": pd.Categorical([f"p{p}" for p in product]),
            "price": self.price[product],
            "rating": self.rating[product],
            "reviews": self.reviews[product],
            "added": pd.Timestamp("2023-01-01") + pd.to_timedelta(self.added[product], unit="D"),
        }
        return pd.DataFrame(rows)

    def _candidates(self, rng: np.random.Generator, kind: Whole, documents: int) -> Whole:
        """Different products for each search; popularity falls as 1 / (place + 50)."""
        popular = 1.0 / (np.random.default_rng((self.seed, 5)).permutation(self.size) + 50.0)
        keys = np.cumsum(popular) / popular.sum()
        order = np.argsort(self.kind, kind="stable")
        ends = np.searchsorted(self.kind[order], np.arange(len(KINDS) + 1))
        of_kind = np.cumsum(popular[order])
        found = np.empty((len(kind), documents), dtype=np.int64)
        for q, wanted in enumerate(kind):
            low, high = (of_kind[end - 1] if end else 0.0 for end in ends[wanted : wanted + 2])
            own = order[np.searchsorted(of_kind, rng.uniform(low, high, 2 * documents)).clip(max=self.size - 1)]
            other = np.searchsorted(keys, rng.random(2 * documents)).clip(max=self.size - 1)
            drawn = np.where(rng.random(2 * documents) < 2 / 3, own, other)
            distinct = drawn[np.sort(np.unique(drawn, return_index=True)[1])]
            while len(distinct) < documents:
                distinct = np.unique(np.concatenate([distinct, rng.integers(self.size, size=documents)]))
            found[q] = distinct[:documents]
        return found.ravel()

    def _match(
        self, query: Whole, product: Whole, kind: Whole, asked: dict[str, Whole],
        asks: dict[str, npt.NDArray[np.bool_]],
    ) -> Floats:  # fmt: skip
        """The share of what was asked for that the product is, half where only its description says so; standardized.

        The center and the spread are those of a large sample: every table has the same.
        """
        parts = [2.0 * (self.kind[product] == kind[query])]
        weights = np.full(len(query), 2.0)
        for name, wanted in asked.items():
            is_one = asks[name][query] & (self.attributes[name][product] == wanted[query])
            said = np.where(self.in_title[name][product], 1.0, 0.5 * self.in_description[name][product])
            parts.append(is_one * said)
            weights += asks[name][query]
        return np.asarray((sum(parts) / weights - 0.38) / 0.30)

    @cached_property
    def _limits(self) -> Floats:
        """Where grades begin: at shares of what the parts would be if they were normal and independent."""
        rng = np.random.default_rng((self.seed, 6))
        spread = np.sqrt(1.5**2 + self.quality.var() + 0.8**2 + 0.7**2)
        return np.quantile(spread * rng.normal(size=200_000), np.cumsum(SHARES)[:-1])

    def _search(self, rng: np.random.Generator, kind: int, attributes: dict[str, int]) -> str:
        name = KINDS[kind][rng.integers(2)]
        words = [ATTRIBUTES[which][value] for which, value in attributes.items()]
        return " ".join([*words, name + ("s" if rng.random() < 0.3 else "")])


def drawn_by_size(rng: np.random.Generator, count: int, size: int) -> Whole:
    """Numbers below `count`, the k-th largest with a share ∝ 1 / (k + 10); each at least once where there is room."""
    shares = 1.0 / (np.arange(count) + 10.0)
    drawn = rng.choice(count, size, p=shares / shares.sum())
    if size >= count:
        drawn[rng.choice(size, count, replace=False)] = np.arange(count)
    return drawn


def main() -> None:
    parser = argparse.ArgumentParser(description="Write a table of product searches.")
    parser.add_argument("-o", "--output", required=True, help="a Parquet file")
    parser.add_argument("--queries", type=int, default=2_000)
    parser.add_argument("--documents", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    chosen = parser.parse_args()
    frame, truth = Catalogue().table(chosen.queries, chosen.documents, chosen.seed)
    frame.to_parquet(chosen.output, index=False)
    said = ", ".join(f"{name} {np.std(part):.2f}" for name, part in truth._asdict().items())
    print(f"{len(frame):,} rows, {frame['query_id'].nunique():,} searches; spread of the parts: {said}")


if __name__ == "__main__":
    main()
