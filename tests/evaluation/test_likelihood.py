"""What a note is worth to a reader: the gold answer's log-likelihood with the note, minus that without it."""

import logging

import pytest
from fake_endpoint import error, fake_endpoint

from notewriter.evaluation.likelihood import answer_likelihood, note_gain, note_gains
from notewriter.ground.errors import UserError
from notewriter.ground.records import Completion, Question, Sampling
from notewriter.ground.text import is_yes_no
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.testing import scripted_endpoint

WHO = Question("q1", "Who built the bridge of Tolen?", ("Mira Osk", "Mira"))
WHEN = Question("q2", "Was the bridge built before 1900?", ("yes",))


class Reader:
    """Finds a word that is in its prompt likely, -0.5, and any other one not, -4; two tokens a word."""

    def __init__(self) -> None:
        self.prompts: list[str] = []

    async def complete(self, messages, sampling: Sampling, **_) -> Completion:
        prompt, reply = messages[0]["content"], messages[-1]["content"]
        assert messages[-1]["role"] == "assistant" and sampling.score_from < 0 and sampling.max_tokens == 1
        self.prompts.append(prompt)
        tokens = [("<|assistant|>", -9.0)]
        for word in reply.split():
            logprob = -0.5 if word in prompt else -4.0
            tokens += [(f" {word[:1]}", logprob), (word[1:], logprob)]
        return Completion("", "length", len(tokens), 1, 0, 0.0, tokens)


@pytest.fixture
def reader() -> Resources:
    return Resources({"policy": Reader()}, Prompts())


async def test_the_likeliest_gold_answer_counts_per_token(reader):
    assert await answer_likelihood(WHO, "Osk is a river.", reader) == (2 * -4.0 + 2 * -0.5) / 4
    assert await answer_likelihood(WHO, "It was Mira.", reader) == -0.5


async def test_the_reader_sees_question_and_note_as_in_vanilla_rag(reader):
    await answer_likelihood(WHO, "It was Mira.", reader)
    (prompt, _) = reader.clients["policy"].prompts
    assert "[1] Note: It was Mira." in prompt and "Question: Who built the bridge of Tolen?" in prompt


async def test_a_note_gains_what_it_adds_to_no_note_within_its_words(reader):
    note = "The bridge is by Mira"
    assert await note_gain(WHO, note, reader) == -0.5 + 4.0
    assert await note_gain(WHO, note, reader, words=4) == 0.0
    assert await note_gain(WHO, "", reader) == await note_gain(WHO, note, reader, words=0) == 0.0


def test_yes_and_no_are_told_from_other_answers():
    assert is_yes_no(WHEN.answers) and is_yes_no(("No.", "no"))
    assert not is_yes_no(WHO.answers) and not is_yes_no(())


NOTES = {"ours": {"q1": "It was Mira.", "q2": "In 1871."}, "lead": {"q1": "Tolen is a town."}}


def test_every_writers_notes_are_scored_once_and_found_in_the_cache_by_the_next_run(tmp_path):
    models = {"model": "scripted", "cache": str(tmp_path / "cache.sqlite")}
    with scripted_endpoint() as endpoint:
        given = ModelArguments(base_url=endpoint.base_url, **models)
        gains = note_gains(NOTES, [WHO, WHEN, Question("q3", "Where?", ())], given, tmp_path)
        # Two notes and none on two gold answers; a note and none on one.
        assert len(endpoint.requests) == 3 * 2 + 2
        assert {writer: set(of) for writer, of in gains.items()} == {"ours": {"q1", "q2"}, "lead": {"q1"}}
        # Its likelihoods are the same whatever is in the prompt.
        assert {gain for of in gains.values() for gain in of.values()} == {0.0}
        assert note_gains(NOTES, [WHO, WHEN], given, tmp_path) == gains
        assert len(endpoint.requests) == 3 * 2 + 2


def test_a_question_that_the_reader_refuses_is_left_out_for_all_writers(tmp_path, caplog):
    caplog.set_level(logging.WARNING)

    def refuses(request):
        return error(400, "maximum context length") if "town" in request["messages"][0]["content"] else None

    with fake_endpoint() as endpoint:
        endpoint.refuses = refuses
        given = ModelArguments(base_url=endpoint.base_url, model="fake", cache=str(tmp_path / "cache.sqlite"))
        assert note_gains(NOTES, [WHO, WHEN], given, tmp_path) == {"ours": {"q2": 0.0}, "lead": {}}
        assert "1 questions left out" in caplog.text
        with pytest.raises(UserError, match=r"returns no log-probabilities of answers \(.*maximum context length"):
            note_gains(NOTES, [WHO], given, tmp_path)
