"""The wording of fictional worlds: parts of names, relations, and sentences."""

from typing import NamedTuple


def _words(text: str) -> list[str]:
    return text.split()


# Consonant clusters and hard endings keep invented words distinct from real names.
ONSETS = _words("b bl br d dr f fl g gr h j k kl kr l m n p pl pr r s sk sl sm st t th tr v w y z")
VOWELS = _words("a e i o u")
LINKS = _words("lv rv ld rd lm rm nv ndr sk lt rk mb rl str")
CODAS = _words("k sk sh ll rn nd th x ff")
TAILS = _words("l n r lk sk nd rl")

# The other parts of names, which may occur in every split.
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
    """A relation of an entity: the kind of its object, the sentences that state it and the questions that ask for it.

    `phrases` refer to the object within a longer chain; they are empty if the object is a plain value, which can only
    end a chain.
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
"""The relations per kind of entity; the first one opens its passage."""

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
"""Sentences that fill up a passage; they mention other entities without answering any question."""

STARTS = {"film": "the film {}", "novel": "the novel {}", "opera": "the opera {}", "company": "{}", "person": "{}"}
"""The kinds of entities that a question can start from, and how it refers to them."""
