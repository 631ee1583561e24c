"""A fictional world: passages and multi-hop questions about people, places and works that exist nowhere else.

No model can know the answers, so a right answer was read, not remembered, and a pipeline can be tried out
without downloading a benchmark. A world is a graph of entities. Each relation is a function (a film has one
director, a town lies in one region), so a chain of relations from a named entity has one answer. Every entity
gets one passage, and every relation in it one sentence that stands alone. The entities that no question asks
about are the distractors: they bear similar names and stand in the same relations to other things.
"""

import json
import random
import sys
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field
from math import ceil
from pathlib import Path
from typing import NamedTuple

from notewriter import config, jsonl
from notewriter.errors import UserError
from notewriter.records import Passage, Question

WORLD_SCHEMA = "notewriter/world/1"


def _words(text: str) -> list[str]:
    return text.split()


# Clusters between the vowels, and hard endings, keep the invented words away from real names.
ONSETS = _words("b bl br d dr f fl g gr h j k kl kr l m n p pl pr r s sk sl sm st t th tr v w y z")
VOWELS = _words("a e i o u")
LINKS = _words("lv rv ld rd lm rm nv ndr sk lt rk mb rl str")
CODAS = _words("k sk sh ll rn nd th x ff")
TAILS = _words("l n r lk sk nd rl")

# What names are built from besides the invented words; these may occur in every split.
TOWN_ENDINGS = _words("moor haven mere holm stead fell")
REGION_ENDINGS = _words("ia mark esse onia")
ADJECTIVES = _words("Amber Silent Broken Winter Crimson Hollow Paper Distant Copper Restless Gilded Forgotten")
NOUNS = {
    "film": _words("Ledger Lantern Harbour Witness Passenger Carnival Verdict Staircase Signal Orchard"),
    "novel": _words("Inheritance Almanac Cartographer Letters Weaver Testament Garden Apprentice Voyage Tides"),
    "opera": _words("Masquerade Nocturne Oath Vigil Bride Prophecy Lament Crown Serenade Pilgrim"),
}
BUSINESSES = {
    "production company": _words("Pictures Films Studios"),
    "publisher": _words("Press Books Printworks"),
    "employer": _words("Foundry Shipyards Glassworks Railways Brewery Instruments"),
}
TRADES = _words(
    "clockmaker botanist surveyor glassblower beekeeper carpenter telegraphist bookbinder geologist locksmith "
    "gardener mapmaker shipwright pharmacist stonemason typesetter weaver schoolteacher falconer cheesemaker "
    "translator potter tailor lawyer miller saddler dentist baker florist goldsmith"
)


class Relation(NamedTuple):
    """One relation of an entity: the kind of its object, and how it is told and asked about.

    `phrases` name the object inside a longer chain; they are empty where the object is a plain value,
    which can only end a chain.
    """

    object: str
    sentences: tuple[str, ...]
    questions: tuple[str, ...]
    phrases: tuple[str, ...] = ()


RELATIONS: dict[str, dict[str, Relation]] = {
    "film": {
        "release year": Relation(
            "year",
            (
                "{s} is a feature film that was first shown to the public in {o}.",
                "The feature film {s} reached the cinemas in {o} after a long delay.",
                "{s} is a film in black and white, released in {o}.",
            ),
            ("In which year was {s} released?",),
        ),
        "director": Relation(
            "person",
            (
                "{s} was directed by {o}, who insisted on natural light.",
                "The director of {s} was {o}, who also had a hand in the script.",
                "{o} directed {s} within eleven weeks and on a small budget.",
                "Behind the camera of {s} stood {o} as its only director.",
            ),
            ("Who directed {s}?", "Who is the director of {s}?"),
            ("the director of {s}", "the person who directed {s}"),
        ),
        "film composer": Relation(
            "person",
            (
                "The music for {s} was composed by {o} in a single month.",
                "{o} wrote the score of {s} for strings and brass.",
                "For {s}, the composer {o} supplied more than an hour of music.",
            ),
            ("Who composed the music for {s}?", "Who wrote the score of {s}?"),
            ("the composer of the music for {s}", "the person who wrote the score of {s}"),
        ),
        "production company": Relation(
            "company",
            (
                "{s} was produced by {o}, which lost money on it.",
                "The company {o} made {s} in its own studio.",
                "The production of {s} lay in the hands of {o} from the first day.",
            ),
            ("Which company produced {s}?", "Which company made {s}?"),
            ("the company that made {s}", "the company that produced {s}"),
        ),
    },
    "novel": {
        "publication year": Relation(
            "year",
            (
                "{s} is a novel in three parts that first appeared in {o}.",
                "The novel {s} was published in {o} and reprinted twice.",
                "{s} is a long novel of the sea, published in {o}.",
            ),
            ("In which year was {s} published?",),
        ),
        "author": Relation(
            "person",
            (
                "{s} was written by {o} over the course of nine years.",
                "The author of {s} is {o}, who revised it many times.",
                "{o} wrote {s} during a long illness.",
                "It was {o} who wrote {s}, at first under a false name.",
            ),
            ("Who wrote {s}?", "Who is the author of {s}?"),
            ("the author of {s}", "the writer of {s}"),
        ),
        "publisher": Relation(
            "company",
            (
                "{s} was published by {o} in a cheap paper edition.",
                "The publisher of {s} was {o}, which printed four thousand copies.",
                "After six refusals, {o} agreed to publish {s} as a book.",
            ),
            ("Which company published {s}?",),
            ("the publisher of {s}", "the company that published {s}"),
        ),
    },
    "opera": {
        "premiere year": Relation(
            "year",
            (
                "{s} is an opera in four acts that had its premiere in {o}.",
                "The opera {s} was heard for the first time in {o}.",
                "{s} is a comic opera, first performed in {o}.",
            ),
            ("In which year was {s} first performed?",),
        ),
        "composer": Relation(
            "person",
            (
                "The music of {s} was composed by {o} between two journeys.",
                "{s} was composed by {o} for a small orchestra.",
                "{o} composed {s} and conducted it from the piano.",
            ),
            ("Who composed {s}?", "Who is the composer of {s}?"),
            ("the composer of {s}", "the person who composed {s}"),
        ),
        "librettist": Relation(
            "person",
            (
                "The libretto of {s} was written by {o} in verse.",
                "{o} wrote the libretto of {s} after an old legend.",
                "The words of {s} are the work of the librettist {o}.",
            ),
            ("Who wrote the libretto of {s}?",),
            ("the librettist of {s}", "the person who wrote the libretto of {s}"),
        ),
        "place of premiere": Relation(
            "town",
            (
                "The first performance of {s} took place in {o} on a rainy evening.",
                "{s} had its premiere in the town of {o} before a full house.",
                "The stage of {o} was the first on which {s} was given.",
            ),
            ("In which town was {s} first performed?",),
            ("the town where {s} had its premiere",),
        ),
    },
    "person": {
        "birthplace": Relation(
            "town",
            (
                "{s} was born in {o} while the bells rang for a wedding.",
                "{s} was born in the town of {o} during a hard winter.",
                "The birthplace of {s} is {o}, where a plaque recalls the event.",
                "{s} came into the world in {o}, in a house by the mill.",
            ),
            ("In which town was {s} born?", "What is the birthplace of {s}?"),
            ("the town where {s} was born", "the birthplace of {s}"),
        ),
        "birth year": Relation(
            "year",
            (
                "The church register gives {o} as the year in which {s} was born.",
                "The year of birth of {s} is {o}, as a letter confirms.",
                "{s} was born in the spring of {o}, some weeks too early.",
            ),
            ("In which year was {s} born?",),
        ),
        "trade": Relation(
            "trade",
            (
                "As a young adult, {s} trained as a {o} for three years.",
                "{s} learned the trade of a {o} before anything else.",
                "By training, {s} was a {o} and never lost the habit.",
            ),
            ("Which trade did {s} learn?", "As what did {s} train?"),
        ),
        "spouse": Relation(
            "person",
            (
                "{s} was married to {o} for more than thirty years.",
                "The spouse of {s} was {o}, a friend since childhood.",
                "After a long engagement, {s} married {o} in a quiet ceremony.",
            ),
            ("Who is the spouse of {s}?", "Whom did {s} marry?"),
            ("the spouse of {s}", "the person who married {s}"),
        ),
        "mother": Relation(
            "person",
            (
                "The mother of {s} was {o}, who ran the household alone.",
                "{s} was raised by a strict mother, {o}, and two aunts.",
                "{o} was the mother of {s} and outlived most of the family.",
            ),
            ("Who is the mother of {s}?",),
            ("the mother of {s}",),
        ),
        "father": Relation(
            "person",
            (
                "The father of {s} was {o}, who was seldom at home.",
                "{s} got a love of books from a patient father, {o}.",
                "{o} was the father of {s} and outlived most of the family.",
            ),
            ("Who is the father of {s}?",),
            ("the father of {s}",),
        ),
        "employer": Relation(
            "company",
            (
                "{s} was employed by {o} for most of a working life.",
                "For twelve years, {s} worked for {o} as a clerk.",
                "The employer of {s} was {o}, which paid poorly.",
            ),
            ("For which company did {s} work?",),
            ("the company that employed {s}", "the employer of {s}"),
        ),
    },
    "company": {
        "founding year": Relation(
            "year",
            (
                "{s} is a company that was founded in {o} with borrowed money.",
                "The company {s} was set up in {o} in a disused stable.",
                "{s} is a family business that dates from {o}.",
            ),
            ("In which year was {s} founded?",),
        ),
        "founder": Relation(
            "person",
            (
                "{s} was founded by {o}, who led it for two decades.",
                "The founder of {s} was {o}, who began with four workers.",
                "{o} founded {s} after an inheritance.",
            ),
            ("Who founded {s}?", "Who is the founder of {s}?"),
            ("the founder of {s}", "the person who founded {s}"),
        ),
        "headquarters": Relation(
            "town",
            (
                "The headquarters of {s} are in {o}, close to the river.",
                "{s} has its head office in {o}, in a former granary.",
                "{s} is run from its headquarters in the town of {o}.",
            ),
            ("In which town does {s} have its headquarters?",),
            ("the town where {s} has its headquarters",),
        ),
    },
    "town": {
        "region": Relation(
            "region",
            (
                "{s} is a town in the region of {o}, built on two hills.",
                "The town of {s} lies in {o}, a day's walk from the border.",
                "{s} is a market town that belongs to the region of {o}.",
            ),
            ("In which region is {s}?", "To which region does {s} belong?"),
            ("the region of {s}", "the region that includes {s}"),
        ),
        "charter year": Relation(
            "year",
            (
                "{s} received its town charter in {o} after a long dispute.",
                "The town charter of {s} dates from {o} and is kept in the chapel.",
                "In {o}, the village of {s} was raised to a town by charter.",
            ),
            ("In which year did {s} receive its town charter?",),
        ),
    },
    "region": {
        "capital": Relation(
            "town",
            (
                "The capital of the region of {s} is {o}, its largest town.",
                "The region of {s} is administered from its capital, {o}.",
                "{o} has been the capital of {s} ever since the great flood.",
            ),
            ("What is the capital of {s}?", "Which town is the capital of {s}?"),
            ("the capital of {s}",),
        ),
        "governor": Relation(
            "person",
            (
                "The first elected governor of {s} was {o}, who won by nine votes.",
                "{o} was the first elected governor of {s} and served twice.",
                "When {s} held its first election, {o} became governor.",
            ),
            ("Who was the first elected governor of {s}?",),
            ("the first elected governor of {s}",),
        ),
    },
}
"""The relations of each kind of entity; the first one opens its passage."""

FILLERS: dict[str, tuple[str, ...]] = {
    "film": (
        "Reviewers liked to compare {s} with {film}, not always kindly.",
        "{person} had turned down the leading part in {s}.",
        "A restored copy of {s} was shown for a whole season in {town}.",
        "Rumour had it that {company} wanted to buy the rights to {s}.",
    ),
    "novel": (
        "Several chapters of {s} are set in {town}, which is described street by street.",
        "{person} planned a stage version of {s} that was never finished.",
        "School pupils often read {s} together with {novel} in their last year.",
        "A signed copy of {s} was once sold to {person} at an auction.",
    ),
    "opera": (
        "{person} was to sing the leading part in {s} but fell ill.",
        "Lovers of music still argue whether {s} owes its overture to {opera}.",
        "Years later, {s} was revived in {town} with new costumes.",
    ),
    "person": (
        "{s} and {person} exchanged letters for many years.",
        "{s} spent several winters in {town} for reasons of health.",
        "A street in {town} bears the name of {s} today.",
        "{s} once brought a lawsuit against {company} and lost it.",
        "In old catalogues, {s} is sometimes confused with {person}.",
        "{s} is said to have admired {novel} above all other books.",
    ),
    "company": (
        "{s} tried twice to take over its rival {company}.",
        "A warehouse of {s} in {town} burned down and was rebuilt in brick.",
        "{person} sat on the board of {s} for a short time.",
        "The workers of {s} had a choir that was known far and wide.",
    ),
    "town": (
        "A coach runs from {s} to {town} every morning except on Sundays.",
        "The clock tower of {s} was repaired with money left by {person}.",
        "People in {s} live from fruit, timber and a yearly cattle fair.",
        "{company} planned a works in {s}, but the council refused.",
        "The bridge of {s} has five arches of grey stone and a toll house.",
    ),
    "region": (
        "An old salt road leads from {s} into the neighbouring {region}.",
        "The orchards of {s} supply cider to places as far away as {town}.",
        "{person} drew the first reliable map of {s} on foot.",
        "Wind and sheep are what travellers remember of {s} most of all.",
    ),
}
"""Sentences that fill a passage up; they name other entities in ways that answer no question."""

STARTS = {"film": "the film {}", "novel": "the novel {}", "opera": "the opera {}", "company": "{}", "person": "{}"}
"""The kinds that a question can start from, and how it names them."""


HOPS = (2, 2, 2, 3, 3)
"""Three questions of two hops to two questions of three hops."""


@dataclass(frozen=True, slots=True)
class World:
    """The passages of one split, in no particular order, and the questions about them."""

    passages: list[Passage]
    questions: list[Question]


@dataclass(slots=True)
class Entity:
    """A node of the world: its facts (relation -> object), its passage's text, and the sentence in it for each fact."""

    kind: str
    name: str
    facts: dict[str, str] = field(default_factory=dict)
    evidence: dict[str, str] = field(default_factory=dict)
    text: str = ""


class Names:
    """Invented words and full names that are never handed out twice, whichever split asks."""

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
            # Taken: a longer word, so that names never run out.
            links += 1


def generate(seed: int, sizes: dict[str, int], hops: Sequence[int] = (2, 3)) -> dict[str, World]:
    """One world for each split, with `sizes[split]` questions in it and about six passages a question.

    The splits share no entity and no invented word. The same arguments give the same worlds.

    Raises:
        UserError: a size below 1, or hops that are neither 2 nor 3.
    """
    if not hops or not set(hops) <= set(HOPS):
        raise UserError(f"hops: questions of {list(hops)} hops cannot be made; choose from 2 and 3")
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
        _tell(rng, entity, by_kind)
    passages = {
        entity.name: Passage(f"{split}-p{number:05d}", entity.name, entity.text)
        for number, entity in enumerate(entities, start=1)
    }
    return World(list(passages.values()), _ask(rng, entities, passages, split, size, hops))


def _populate(rng: random.Random, names: Names, size: int) -> list[Entity]:
    """The entities of a world with all their facts, in numbers that suit `size` questions.

    Two generations keep the years in order: the elder one founds the companies, the younger one, its
    children, makes the works. Names are drawn apart from kinship, so that they give no answer away.
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
    # Two neighbours in the list share a stem; their lines of business differ, so their names do.
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
    """Full names of which each half occurs about four times, always with another half."""
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


def _tell(rng: random.Random, entity: Entity, by_kind: dict[str, list[str]]) -> None:
    """Write the passage of an entity: a sentence a fact, and fillers; people have more facts than fit, some go."""
    opening, *others = [relation for relation in RELATIONS[entity.kind] if relation in entity.facts]
    told = [opening, *rng.sample(others, min(3, len(others)))]
    entity.facts = {relation: entity.facts[relation] for relation in told}
    for relation, value in entity.facts.items():
        template = rng.choice(RELATIONS[entity.kind][relation].sentences)
        entity.evidence[relation] = template.format(s=entity.name, o=value)
    first, *sentences = entity.evidence.values()
    fillers = rng.sample(FILLERS[entity.kind], 3)
    while len(sentences) < 3 or (len(sentences) < 4 and len(" ".join([first, *sentences]).split()) < 52):
        # Never the entity itself: "Tarvosk Press tried to take over its rival Tarvosk Press".
        others_by_kind = {kind: rng.choice(by_kind[kind]) for kind in by_kind}
        while others_by_kind[entity.kind] == entity.name:
            others_by_kind[entity.kind] = rng.choice(by_kind[entity.kind])
        sentences.append(fillers.pop().format(s=entity.name, **others_by_kind))
    rng.shuffle(sentences)
    entity.text = " ".join([first, *sentences])


def _ask(
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
    """A random chain of (entity, relation) from `start`; each relation leads to the next entity."""
    chain = []
    entity = start
    for hop in range(1, hops + 1):
        goes_on = [r for r in entity.facts if hop == hops or RELATIONS[entity.kind][r].phrases]
        relation = rng.choice(goes_on)
        chain.append((entity, relation))
        entity = by_name.get(entity.facts[relation], entity)
    return chain


def _needs_every_hop(chain: list[tuple[Entity, str]]) -> bool:
    """Whether what each hop finds is in no earlier passage of the chain; so no entity comes twice either."""
    found = [entity.facts[relation] for entity, relation in chain]
    return not any(value in entity.text for position, value in enumerate(found) for entity, _ in chain[:position])


def _wording(rng: random.Random, chain: list[tuple[Entity, str]]) -> str:
    start = chain[0][0]
    subject = STARTS[start.kind].format(start.name)
    *inside, (last, relation) = chain
    for entity, inner in inside:
        subject = rng.choice(RELATIONS[entity.kind][inner].phrases).format(s=subject)
    return rng.choice(RELATIONS[last.kind][relation].questions).format(s=subject)


@dataclass
class Arguments:
    """What `notewriter world` can be told."""

    output_dir: str = field(
        default="data/world",
        metadata={"help": "the folder to write train/ and test/ into, each with corpus.jsonl and questions.jsonl"},
    )
    seed: int = field(default=7, metadata={"help": "another seed gives another world with other names"})
    train: int = field(
        default=300, metadata={"help": "number of training questions; about six passages come with each"}
    )
    test: int = field(default=150, metadata={"help": "number of test questions, about a world of their own"})
    hops: list[int] = field(
        default_factory=lambda: [2, 3], metadata={"help": "passages that a question needs: 2, 3, or both"}
    )


def main(argv: list[str]) -> None:
    """Write the worlds of `notewriter world`, unless they are there already.

    Raises:
        UserError: a size below 1, or a folder that holds a world with other settings, or files of other origin.
    """
    (arguments,) = config.parse(
        Arguments, argv, prog="notewriter world", description="Make a fictional world to try the pipeline on."
    )
    directory = Path(arguments.output_dir)
    sizes = {"train": arguments.train, "test": arguments.test}
    settings = {"schema": WORLD_SCHEMA, "seed": arguments.seed, **sizes, "hops": arguments.hops}
    files = [directory / split / name for split in sizes for name in ("corpus.jsonl", "questions.jsonl")]
    settings_path = directory / "world.json"
    # The settings are written first and the rest is made from them alone, so a killed run is simply run again.
    if settings_path.exists():
        if _read_settings(settings_path) != settings:
            raise UserError(f"{settings_path}: holds a world with other settings; choose another --output_dir")
        if all(path.exists() for path in files):
            sys.stdout.write(f"{directory}: this world is there already\n")
            return
    elif present := [path for path in files if path.exists()]:
        raise UserError(f"{present[0]}: is there already and is no part of a world; choose another --output_dir")
    worlds = generate(arguments.seed, sizes, arguments.hops)
    jsonl.write_text(settings_path, [json.dumps(settings, indent=2) + "\n"])
    for split, world in worlds.items():
        jsonl.write(directory / split / "corpus.jsonl", map(asdict, world.passages))
        jsonl.write(directory / split / "questions.jsonl", map(asdict, world.questions))
    counts = "; ".join(f"{s}: {len(w.questions)} questions, {len(w.passages)} passages" for s, w in worlds.items())
    sys.stdout.write(f"{directory}: wrote a world ({counts})\n")


def _read_settings(path: Path) -> object:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read ({error}); remove it or choose another --output_dir") from error
