"""A fictional world: passages and questions of one to three hops about people, places and works that do not exist.

No model can know the answers, so a right answer was read and not remembered, and the pipeline can be tried without
downloading a benchmark. A world is a graph of entities. Each relation is a function (a film has one director, a town
lies in one region), so a chain of relations that starts at a named entity has one answer. Every entity has one passage
with one self-contained sentence per relation. Entities that no question asks about are the distractors: they have
similar names and the same relations to other entities.
"""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from math import ceil

from notewriter.data.world.wording import (
    ADJECTIVES,
    BUSINESSES,
    CODAS,
    FILLERS,
    LINKS,
    NOUNS,
    ONSETS,
    REGION_ENDINGS,
    RELATIONS,
    STARTS,
    TAILS,
    TOWN_ENDINGS,
    TRADES,
    VOWELS,
)
from notewriter.ground.errors import UserError
from notewriter.ground.records import Passage, Question

HOPS = (1, 1, 1, 2, 2, 2, 3, 3)
"""The ratio of questions by hops: of one and of two hops three each to two of three."""


@dataclass(frozen=True, slots=True)
class World:
    """The passages of one split, in no particular order, and the questions about them."""

    passages: list[Passage]
    questions: list[Question]


@dataclass(slots=True)
class Entity:
    """A node of the world: its facts (relation -> object), the text of its passage, and each fact's sentence in it."""

    kind: str
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    text: str = ""


class Names:
    """Invented words, none of which is returned twice, in any split."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._used: set[str] = set()

    def stem(self, links: int = 1, endings: list[str] = CODAS) -> str:
        """A new pronounceable word: an onset, a vowel, `links` times a cluster and a vowel, and an ending."""
        choice = self._rng.choice
        while True:
            middle = "".join(choice(LINKS) + choice(VOWELS) for _ in range(links))
            stem = (choice(ONSETS) + choice(VOWELS) + middle + choice(endings)).capitalize()
            if stem not in self._used:
                self._used.add(stem)
                return stem
            # Taken: try a longer word, so that names never run out.
            links += 1


def generate(seed: int, sizes: dict[str, int], hops: Sequence[int] = (2, 3)) -> dict[str, World]:
    """One world per split, with `sizes[split]` questions and about six passages per question.

    The splits share no entity and no invented word. The same arguments return the same worlds.

    Raises:
        UserError: a size below 1, or hops other than 1, 2 and 3.
    """
    if not hops or not set(hops) <= set(HOPS):
        raise UserError(f"hops: questions of {list(hops)} hops cannot be made; choose from 1, 2 and 3")
    for split, size in sizes.items():
        if size < 1:
            raise UserError(f"{split}: a world of {size} questions cannot be made; ask for at least 1")
    names = Names(random.Random(f"{seed}"))
    return {
        split: _generate(random.Random(f"{seed}/{split}"), names, split, size, hops) for split, size in sizes.items()
    }


def _generate(rng: random.Random, names: Names, split: str, size: int, hops: Sequence[int]) -> World:
    entities = _populate(rng, names, size)
    rng.shuffle(entities)
    by_kind = _by_kind(entities)
    for entity in entities:
        _write_passage(rng, entity, by_kind)
    passages = {
        entity.name: Passage(f"{split}-p{number:05d}", entity.name, entity.text)
        for number, entity in enumerate(entities, start=1)
    }
    return World(list(passages.values()), _make_questions(rng, entities, passages, split, size, hops))


def _populate(rng: random.Random, names: Names, size: int) -> list[Entity]:
    """The entities of a world with all their facts, enough of them for `size` questions.

    Two generations keep the years consistent: the parents found the companies, their children make the works. Names
    are drawn independently of kinship, so that they reveal no answer.
    """
    families = max(4, ceil(0.7 * size))
    people = [Entity("person", name) for name in _people_names(rng, names, 4 * families)]
    fathers, mothers, first_children, second_children = (people[start::4] for start in range(4))
    regions = [
        Entity("region", names.stem(endings=TAILS) + rng.choice(REGION_ENDINGS)) for _ in range(max(3, size // 5))
    ]
    towns = [
        Entity("town", stem + ending)
        for stem in (names.stem(links=0, endings=TAILS) for _ in range(max(4, size // 2)))
        for ending in rng.sample(TOWN_ENDINGS, 2)
    ]
    company_words = [rng.choice(words) for _ in range(max(3, size // 5)) for words in BUSINESSES.values()]
    # Two neighbours in the list share a stem, but never their line of business.
    company_stems = [names.stem() for _ in range(ceil(len(company_words) / 2))]
    companies = [Entity("company", f"{company_stems[i // 2]} {word}") for i, word in enumerate(company_words)]
    work_stems = [names.stem() for _ in range(max(3, size // 2))]
    works = {kind: [Entity(kind, _title(rng, kind, stem)) for stem in work_stems] for kind in NOUNS}

    birth_years = {}
    for father, mother, *children in zip(fathers, mothers, first_children, second_children, strict=True):
        father.facts["spouse"], mother.facts["spouse"] = mother.name, father.name
        for parent in (father, mother):
            birth_years[parent.name] = rng.randint(1880, 1900)
        for child in children:
            child.facts |= {"father": father.name, "mother": mother.name}
            child.facts["employer"] = rng.choice(companies[2::3]).name
            birth_years[child.name] = rng.randint(1922, 1938)
    # First children marry second children of the next family, hence never a brother or a sister.
    for one, other in zip(first_children, second_children[1:] + second_children[:1], strict=True):
        one.facts["spouse"], other.facts["spouse"] = other.name, one.name
    for person in people:
        person.facts |= {
            "birthplace": rng.choice(towns).name,
            "birth year": str(birth_years[person.name]),
            "trade": rng.choice(TRADES),
        }
    elders, makers = fathers + mothers, first_children + second_children
    for company in companies:
        founder = rng.choice(elders)
        company.facts = {
            "founding year": str(birth_years[founder.name] + rng.randint(22, 38)),
            "founder": founder.name,
            "headquarters": rng.choice(towns).name,
        }
    for film in works["film"]:
        director, composer = rng.sample(makers, 2)
        film.facts = {"director": director.name, "film composer": composer.name}
        film.facts["production company"] = rng.choice(companies[0::3]).name
    for novel in works["novel"]:
        novel.facts = {"author": rng.choice(makers).name, "publisher": rng.choice(companies[1::3]).name}
    for opera in works["opera"]:
        composer, librettist = rng.sample(makers, 2)
        opera.facts = {"composer": composer.name, "librettist": librettist.name}
        opera.facts["place of premiere"] = rng.choice(towns).name
    for kind, relation in (("film", "release year"), ("novel", "publication year"), ("opera", "premiere year")):
        for work in works[kind]:
            work.facts[relation] = str(rng.randint(1962, 1985))
    for town in towns:
        town.facts = {"region": rng.choice(regions).name, "charter year": str(rng.randint(1310, 1790))}
    for region, capital in zip(regions, rng.sample(towns, len(regions)), strict=True):
        capital.facts["region"] = region.name
        region.facts = {"capital": capital.name, "governor": rng.choice(makers).name}
    return [*people, *regions, *towns, *companies, *works["film"], *works["novel"], *works["opera"]]


def _people_names(rng: random.Random, names: Names, count: int) -> list[str]:
    """Full names, each half of which occurs in about four of them, always with another half."""
    words = max(4, ceil(count / 4))
    given_names = [names.stem() for _ in range(words)]
    surnames = [names.stem() for _ in range(words)]
    return [f"{given_names[n // words]} {surnames[n % words]}" for n in rng.sample(range(words**2), count)]


def _title(rng: random.Random, kind: str, stem: str) -> str:
    noun = rng.choice(NOUNS[kind])
    return rng.choice((f"The {stem} {noun}", f"{noun} in {stem}", f"The {rng.choice(ADJECTIVES)} {noun} of {stem}"))


def _by_kind(entities: Iterable[Entity]) -> dict[str, list[str]]:
    by_kind: dict[str, list[str]] = {}
    for entity in entities:
        by_kind.setdefault(entity.kind, []).append(entity.name)
    return by_kind


def _write_passage(rng: random.Random, entity: Entity, by_kind: dict[str, list[str]]) -> None:
    """Write the passage of an entity: a sentence per fact, and fillers; drop facts if there are more than fit."""
    opening, *others = [relation for relation in RELATIONS[entity.kind] if relation in entity.facts]
    kept = [opening, *rng.sample(others, min(3, len(others)))]
    entity.facts = {relation: entity.facts[relation] for relation in kept}
    for relation, value in entity.facts.items():
        template = rng.choice(RELATIONS[entity.kind][relation].sentences)
        entity.evidence[relation] = template.format(s=entity.name, o=value)
    first, *sentences = entity.evidence.values()
    fillers = rng.sample(FILLERS[entity.kind], 3)
    while len(sentences) < 3 or (len(sentences) < 4 and len(" ".join([first, *sentences]).split()) < 52):
        # Never the entity itself, as in "Tarvosk Press tried to take over its rival Tarvosk Press".
        others_by_kind = {kind: rng.choice(by_kind[kind]) for kind in by_kind}
        while others_by_kind[entity.kind] == entity.name:
            others_by_kind[entity.kind] = rng.choice(by_kind[entity.kind])
        sentences.append(fillers.pop().format(s=entity.name, **others_by_kind))
    rng.shuffle(sentences)
    entity.text = " ".join([first, *sentences])


def _make_questions(
    rng: random.Random,
    entities: list[Entity],
    passages: dict[str, Passage],
    split: str,
    size: int,
    hops: Sequence[int],
) -> list[Question]:
    by_name = {entity.name: entity for entity in entities}
    by_kind = _by_kind(entities)
    questions: list[Question] = []
    asked = set()
    while len(questions) < size:
        start = by_name[rng.choice(by_kind[rng.choice(list(STARTS))])]
        chain = _walk(rng, start, by_name, hops=rng.choice([number for number in HOPS if number in hops]))
        key = (start.name, *(relation for _, relation in chain))
        if key in asked or not _needs_every_hop(chain):
            continue
        asked.add(key)
        last, relation = chain[-1]
        questions.append(
            Question(
                id=f"{split}-q{len(questions) + 1:05d}",
                question=_wording(rng, chain),
                answers=(last.facts[relation],),
                supporting_ids=tuple(passages[entity.name].id for entity, _ in chain),
                supporting_facts=tuple(entity.evidence[relation] for entity, relation in chain),
                metadata={"hops": len(chain), "type": " > ".join(relation for _, relation in chain)},
            )
        )
    return questions


def _walk(rng: random.Random, start: Entity, by_name: dict[str, Entity], hops: int) -> list[tuple[Entity, str]]:
    """A random chain of (entity, relation) from `start`; the object of each relation is the next entity."""
    chain = []
    entity = start
    for hop in range(1, hops + 1):
        options = [r for r in entity.facts if hop == hops or RELATIONS[entity.kind][r].phrases]
        relation = rng.choice(options)
        chain.append((entity, relation))
        entity = by_name.get(entity.facts[relation], entity)
    return chain


def _needs_every_hop(chain: list[tuple[Entity, str]]) -> bool:
    """Whether no hop's object occurs in an earlier passage of the chain; this also rules out repeated entities."""
    objects = [entity.facts[relation] for entity, relation in chain]
    return not any(value in entity.text for position, value in enumerate(objects) for entity, _ in chain[:position])


def _wording(rng: random.Random, chain: list[tuple[Entity, str]]) -> str:
    start = chain[0][0]
    subject = STARTS[start.kind].format(start.name)
    *inside, (last, relation) = chain
    for entity, inner in inside:
        subject = rng.choice(RELATIONS[entity.kind][inner].phrases).format(s=subject)
    return rng.choice(RELATIONS[last.kind][relation].questions).format(s=subject)
