"""Labels as preference pairs, with people as the judge."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any, cast

from notewriter.artifacts.hand_labels import HandLabel
from notewriter.artifacts.pairs import COLUMNS, SCHEMA, SIDES, Pair
from notewriter.data.by_hand.items import Item
from notewriter.data.by_hand.measures import Labels

JUDGE = "human"

OF_A_SIDE = [name.removeprefix(SIDES[0]) for name in COLUMNS.names if name.startswith(SIDES[0])]
"""The ends of the names of the columns that each side has."""

NO_PAIR = "notes of two runs are no pair"
NOBODY = "neither is better"
TIED = "people disagree"


def rows_of(items: Mapping[str, Item], labels: Labels, dropped: Counter[str]) -> Iterator[tuple[str, Pair]]:
    """The pairs that most people agree on, each with its split; `dropped` counts the reasons against others.

    More people prefer its chosen side than the other one, and more than say neither. A score is the number of people
    who preferred the side. The replies are theirs, `name: chosen` and so on. Where they prefer what the judge rejected,
    the sides change places, with all that is known of each.
    """
    for item in items.values():
        given = {name: own[item.id] for name, own in labels.items() if item.id in own}
        votes = Counter(text for label in given.values() if (text := label.text) is not None)
        counts = [votes[text] for text in item.texts]
        if item.pair is None:
            dropped[NO_PAIR] += 1
        elif not votes:
            dropped[NOBODY] += 1
        elif counts[0] == counts[1] or max(counts) <= len(given) - votes.total():
            dropped[TIED] += 1
        else:
            yield item.split, _row(item.pair, item.texts[counts.index(max(counts))], votes, given)


def _row(pair: Pair, better: str, votes: Counter[str], given: Mapping[str, HandLabel]) -> Pair:
    values: dict[str, Any] = dict(pair)
    if pair["chosen"][-1]["content"] != better:
        chosen, rejected = SIDES
        for name in OF_A_SIDE:
            values |= {chosen + name: pair.get(rejected + name), rejected + name: pair.get(chosen + name)}
    texts = {side: values[side][-1]["content"] for side in SIDES}
    of_text = {text: side for side, text in texts.items()}
    replies = [f"{name}: {'neither' if label.text is None else of_text[label.text]}" for name, label in given.items()]
    row = values | {
        "schema": SCHEMA,
        "judge": JUDGE,
        "judge_replies": replies,
        "judge_orders": None,
        **{f"{side}_score": float(votes[text]) for side, text in texts.items()},
        **{f"{side}_noise": None for side in SIDES},
    }
    return cast(Pair, row)
