"""What judges are asked about in their tests, and models that answer them."""

from notewriter.ground.records import Question

QUESTION = Question(
    "q1",
    "Where was the mother of Osk born?",
    ("Tolen",),
    supporting_ids=("p1", "p2"),
    supporting_facts=("Osk's mother is Mira.", "Mira was born in Tolen."),
)
BEFORE = "Osk's mother is Mira."
BOTH = "Osk's mother is Mira. Mira was born in Tolen."
RIGHT, WRONG = "Tolen", "Fulda"


def naming(best, worst):
    """A judge model that has its mind made up about texts, wherever they stand."""

    def reply(variables):
        ids = {text: place for place, text in enumerate(variables["candidates"], start=1)}
        return f'Surely {{"best_id": {ids[best]}, "worst_id": "{ids[worst]}"}}.'

    return reply


def deciding(true=(), false=()):
    def reply(variables):
        new = variables["new_note"]
        return '{"status": "True"}' if new in true else '{"status": "False"}' if new in false else "Hard to say."

    return reply


def answering(texts, *, plain=WRONG):
    """An answerer: from a note, what `texts` says of it, for each sample in turn; from passages, `plain`."""

    def reply(variables):
        (first, *_) = variables["passages"]
        answers = texts.get(first.text, plain)
        return answers[variables.get("sample", 0)] if isinstance(answers, list) else answers

    return reply
