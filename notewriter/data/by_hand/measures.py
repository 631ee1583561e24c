"""The agreement of people with automatic judges and with each other, and people's other preferences."""

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple

from notewriter.artifacts.hand_labels import HandLabel
from notewriter.data.by_hand.items import Item
from notewriter.evaluation.agreement import agreement
from notewriter.ground.errors import UserError
from notewriter.ground.text import words_in
from notewriter.pages.tables import Table

Labels = Mapping[str, Mapping[str, HandLabel]]
"""Person -> item -> label."""

NEITHER = 2
"""The category of items in which a person finds neither text better; 0 and 1 are the texts."""

MIRRORED = {0: 1, 1: 0, NEITHER: NEITHER}
"""A category -> that of the same preference where the texts are in the other order."""

Ratings = dict[str, int]
"""Item -> category."""

GAPS = ((1.1, "up to 10% longer"), (1.5, "10% to 50% longer"), (float("inf"), "over 50% longer"))
"""Bounds of the length of the longer text over that of the shorter one, in words, and their names."""


class Raters(NamedTuple):
    """Two raters and the items that both rated."""

    names: str
    items: list[Item]
    ratings: list[tuple[int, int]]

    def decided(self) -> "Raters":
        """The raters on the items for which both name a text."""
        kept = [place for place, pair in enumerate(self.ratings) if NEITHER not in pair]
        return Raters(self.names, [self.items[place] for place in kept], [self.ratings[place] for place in kept])

    def of(self, group: Callable[[Item], str], value: str) -> "Raters":
        """On the items of a group alone."""
        kept = [place for place, item in enumerate(self.items) if group(item) == value]
        return Raters(self.names, [self.items[place] for place in kept], [self.ratings[place] for place in kept])


def length_gap(item: Item) -> str:
    """The difference in length between an item's texts."""
    shorter, longer = sorted(len(words_in(text)) for text in item.texts)
    return next(name for bound, name in GAPS if longer <= bound * max(1, shorter))


GROUPS: dict[str, Callable[[Item], str]] = {
    "stage": lambda item: item.stage,
    "dataset": lambda item: item.dataset or "unknown",
    "length gap": length_gap,
}


def measures(items: Mapping[str, Item], labels: Labels) -> list[Table]:
    """The tables: agreement over all, by each of `GROUPS` that has several values, and each person's leanings.

    Agreement and kappa are over the items that both decided: a judge never answers "neither", and a person beside a
    judge is compared as two people are. The last table is of people alone, with "neither" as a category.

    Raises:
        UserError: no label is of these items.
    """
    people = {name: _ratings_of(items, own) for name, own in labels.items()}
    people = {name: ratings for name, ratings in people.items() if ratings}
    if not people:
        raise UserError("no label belongs to these pairs or runs; give the pairs or runs that were judged")
    judges: dict[str, Ratings] = {}
    for item in items.values():
        for judge, text in item.preferred.items():
            judges.setdefault(judge, {})[item.id] = text
    among_people = [_raters(items, one, other) for one, other in itertools.combinations(people.items(), 2)]
    all_raters = [*(_raters(items, one, other) for one in people.items() for other in judges.items()), *among_people]
    decided = [raters.decided() for raters in all_raters if raters.items]
    header = ["agreement", "items", "agree [95%]", "Cohen's kappa [95%]"]
    tables: list[Table] = [
        ("Agreement, where both prefer one", header, [_row(raters.names, raters) for raters in decided])
    ]
    for name, group in GROUPS.items():
        values = sorted({group(item) for raters in decided for item in raters.items})
        if len(values) > 1:
            rows = [
                _row(f"{raters.names}, {value}", part)
                for raters in decided
                for value in values
                if (part := raters.of(group, value)).items
            ]
            tables.append((f"By {name}", [name, *header[1:]], rows))
    if rows := [_row(raters.names, raters) for raters in among_people if raters.items]:
        tables.append(("Between people, neither as an answer", header, rows))
    leanings = [[name, *_leanings(items, ratings, labels[name])] for name, ratings in people.items()]
    leanings += [[name, *_leanings(items, ratings, {})] for name, ratings in judges.items()]
    tables.append(
        ("Who prefers what", ["", "items", "neither", "the longer [95%]", "the left one [95%]", "seconds"], leanings)
    )
    return tables


def _ratings_of(items: Mapping[str, Item], labels: Mapping[str, HandLabel]) -> Ratings:
    """A person's labels of these items as categories.

    Raises:
        UserError: a label is of other texts than its item has.
    """
    ratings: Ratings = {}
    for label in labels.values():
        if item := items.get(label.item):
            if {label.left, label.right} != {*item.texts}:
                raise UserError(f"{label.judge}: the label of item {label.item} has other texts; remove its line")
            ratings[item.id] = NEITHER if label.text is None else item.texts.index(label.text)
    return ratings


def _raters(items: Mapping[str, Item], one: tuple[str, Ratings], other: tuple[str, Ratings]) -> Raters:
    (first, ratings), (second, others) = one, other
    shared = [item for item in items.values() if item.id in ratings and item.id in others]
    return Raters(f"{first} and {second}", shared, [(ratings[item.id], others[item.id]) for item in shared])


def _row(name: str, raters: Raters) -> list[str]:
    if not raters.items:
        return [name, "0", "", ""]
    # The order of the two texts is arbitrary: each pair counts in both, so that a leaning to the first is no part of
    # kappa.
    mirrored = [(MIRRORED[one], MIRRORED[other]) for one, other in raters.ratings]
    found = agreement([*raters.ratings, *mirrored], [item.question_id for item in raters.items] * 2)
    return [
        name,
        str(len(raters.items)),
        found.share.text(),
        "undefined" if found.kappa is None else found.kappa.text(),
    ]


def _leanings(items: Mapping[str, Item], ratings: Ratings, labels: Mapping[str, HandLabel]) -> Iterator[str]:
    """Items, and the shares of neither, of the longer text and of the left one, and the median time, where known."""
    yield str(len(ratings))
    decided = {item: text for item, text in ratings.items() if text != NEITHER}
    yield f"{1 - len(decided) / len(ratings):.3f}"
    lengths = {item: [len(words_in(text)) for text in items[item].texts] for item in decided}
    yield _share(
        [
            (lengths[item][text] == max(lengths[item]), items[item].question_id)
            for item, text in decided.items()
            if len(set(lengths[item])) > 1
        ]
    )
    own = [labels[item] for item in ratings if item in labels]
    yield _share([(label.preferred == "left", label.question_id) for label in own if label.text is not None])
    yield f"{sorted(label.seconds for label in own)[len(own) // 2]:.0f}" if own else ""


def _share(values: Sequence[tuple[bool, str]]) -> str:
    """The share of items with a property, with its interval over questions."""
    if not values:
        return ""
    return agreement([(value, True) for value, _ in values], [question for _, question in values]).share.text()
