import asyncio
import itertools
import json
import re
from dataclasses import dataclass, field

import pytest

from notewriter.artifacts.pairs import COLUMNS
from notewriter.artifacts.traces import ControlReply, GoldReply
from notewriter.data.harvest import Harvest, harvest_rollouts
from notewriter.data.judges import decision, likelihood, llm, metric, outcome, reference, retrieval
from notewriter.data.judges.case import NOTHING, Rules, Verdict, judge
from notewriter.data.recipe import PreparedMethod, Recipe
from notewriter.data.sampling import SamplingRollout
from notewriter.ground.records import Completion, Passage, Question, Sampling
from notewriter.methods import METHODS
from notewriter.methods.vanilla import ANSWER
from notewriter.models.client import RequestRefused
from notewriter.rollouts.controls import Control, Replay, empty, hard_negative, in_order
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources

MOTHER, BIRTH = "Osk's mother is Mira.", "Mira was born in Tolen."
QUESTION = Question("q1", "Where was the mother of Osk born?", ("Tolen",), ("p1", "p2"), (MOTHER, BIRTH))
PASSAGES = [Passage("p1", "Osk", MOTHER), Passage("p2", "Mira", BIRTH), Passage("p3", "Bore", "The Bore is a river.")]
NINE = list(itertools.product((0.1, 0.5, 0.9), repeat=2))
NAMES = ["init_note", "refine_query", "accumulate_knowledge", "decide", "answer"]
ONCE = {"max_step": 1, "max_failure": 1}


class Shelf:
    """An index that finds every passage, whatever is asked."""

    def search(self, query, top_k):
        return PASSAGES[:top_k]


class ByTitle:
    """An index that finds the passage whose title a query names first, and the Bore's."""

    def search(self, query, top_k):
        named = min(PASSAGES, key=lambda passage: f"{query} {passage.title}".index(passage.title))
        return [named, PASSAGES[2]]


@dataclass
class Model:
    """A model that replies with what `reply(text of the prompt, sampling, sample)` says; a trailing `...` is a cut."""

    reply: object
    calls: list = field(default_factory=list)

    async def complete(self, messages, sampling, *, sample=0, affinity=""):
        self.calls.append((messages, sampling, sample))
        # Replies come back in another order than they were asked for.
        await asyncio.sleep(0.001 * (9 - len(self.calls) % 9))
        text = self.reply(messages[0]["content"], sampling, sample)
        cut = text.endswith("...")
        return Completion(text.removesuffix("..."), "length" if cut else "stop", 50, len(text.split()), 0, 0.1)

    async def opening(self, messages, **_):
        """Its template opens no thought."""
        return ""


def by_sampler(*texts, otherwise="No idea."):
    """One text for each of the nine samplings, in their order."""
    table = dict(zip(NINE, texts, strict=False))
    return lambda prompt, sampling, sample: table.get((sampling.temperature, sampling.top_p), otherwise)


def always(text):
    return lambda prompt, sampling, sample: text


@pytest.fixture
def roll_out():
    """Run a method on the question; returns its answer, the harvest, the trace and the models by role."""

    async def run(
        judges,
        *,
        method="deepnote",
        question=QUESTION,
        stage_sampling=(),
        options=(),
        recipe=(),
        rules=(),
        to_the_end=True,
        models=(),
        controls=(),
        extractive=(),
        index=None,
        **replies,
    ):
        replies = {"notes": always(MOTHER), "query": always("Mira?"), "answer": always("Tolen")} | replies
        players = {"policy": Model(always("")), **{role: Model(reply) for role, reply in replies.items()}}
        players |= dict(models)
        played = {role: model for role, model in players.items() if role not in dict(controls)}
        sampling = Sampling(0.3, 0.7, 40)
        prompts = Prompts(extractive=extractive)
        resources = Resources(
            played, prompts, index or Shelf(), sampling, dict(stage_sampling), controls=dict(controls)
        )
        harvest = Harvest()
        judges = {stage: several if isinstance(several, list) else [several] for stage, several in judges.items()}
        rollout = SamplingRollout(
            question,
            METHODS[method],
            {"top_k": 3} | dict(options),
            resources,
            Recipe(stages=list(judges), judges=judges, rules=Rules(**dict(rules)), **dict(recipe)),
            harvest,
        )
        await rollout.run(to_the_end)
        return rollout.trace.answer, harvest, rollout.trace, players

    return run


def spy(seen):
    """A judge that keeps its cases and pairs the last candidate with the first."""

    @judge()
    async def spying(case):
        seen.append(case)
        return Verdict(len(case.candidates) - 1, 0)

    return spying


@judge()
async def first_of_both(case):
    """A judge that prefers the first of two candidates."""
    return Verdict(0, 1)


FIRST_NOTE = {"options": {"adaptive_retrieval": False}}


async def test_a_trained_stage_draws_nine_candidates_over_temperature_and_top_p_and_others_one(roll_out):
    _, _, _, models = await roll_out({"deepnote/init_note": reference}, **FIRST_NOTE)
    assert [(sampling.temperature, sampling.top_p) for _, sampling, _ in models["notes"].calls] == NINE
    assert len({str(messages) for messages, _, _ in models["notes"].calls}) == 1
    assert [sampling for _, sampling, _ in models["answer"].calls] == [Sampling(0.3, 0.7, 40)]


async def test_a_candidate_is_what_a_model_said_without_what_it_thought(roll_out):
    seen = []
    notes = by_sampler("<think>\nWho?\n</think>\n\n" + MOTHER, MOTHER, "<think>Who?</think>" + BIRTH, otherwise=BIRTH)
    _, harvest, _, _ = await roll_out({"deepnote/init_note": spy(seen)}, notes=notes, **FIRST_NOTE)
    assert seen[0].candidates == [MOTHER, BIRTH]
    assert harvest.rows[0]["chosen"][0]["content"] == BIRTH


async def test_a_thought_that_was_cut_is_no_candidate_even_to_be_rejected(roll_out):
    seen = []
    notes = by_sampler("<think>\nOkay, the mother...", MOTHER, otherwise=BIRTH)
    _, harvest, _, _ = await roll_out({"deepnote/init_note": spy(seen)}, notes=notes, **FIRST_NOTE)
    assert seen[0].candidates == [MOTHER, BIRTH]
    assert harvest.rows[0]["rejected"][0]["content"] == MOTHER


async def test_candidates_that_were_stopped_in_their_thinking_cost_both_draws_and_are_as_long_as_the_last(roll_out):
    thought = "<think>\nWho?\nWell.\n</think>\n\n"

    def reply(prompt, sampling, sample):
        text = thought + (MOTHER if sampling.temperature == 0.1 else BIRTH)
        return text.partition("\n")[0] + " it" if sampling.stop else text

    judges = {"ircot/step": spy([])}
    _, harvest, _, models = await roll_out(judges, method="ircot", options={"max_step": 1}, policy=reply)
    assert len(models["policy"].calls) == 2 * 9
    (row,) = harvest.rows
    assert (row["prompt_tokens"], row["chosen_tokens"]) == (50, len((thought + BIRTH).split()))
    tokens = {each["stage"]: each["tokens"] for each in harvest.record("q1", [])["usage"]}["ircot/step"]
    final = 3 * len((thought + MOTHER).split()) + 6 * len((thought + BIRTH).split())
    assert tokens == {"calls": 18, "prompt_tokens": 18 * 50, "completion_tokens": 9 * 2 + final}


async def test_candidates_are_as_long_as_the_stage_allows(roll_out):
    limits = {"deepnote/init_note": Sampling(0.3, 0.7, 12)}
    _, _, _, models = await roll_out({"deepnote/init_note": reference}, stage_sampling=limits, **FIRST_NOTE)
    assert {sampling.max_tokens for _, sampling, _ in models["notes"].calls} == {12}


async def test_a_sampling_that_is_listed_twice_is_drawn_twice(roll_out):
    seen = []
    await roll_out(
        {"deepnote/init_note": spy(seen)},
        notes=lambda prompt, sampling, sample: f"note {sample}",
        recipe={"samplers": [(0.9, 0.9)] * 3},
        **FIRST_NOTE,
    )
    assert seen[0].candidates == ["note 0", "note 1", "note 2"]


async def test_the_better_candidate_of_a_stage_goes_into_the_prompts_of_the_next(roll_out):
    better = f"{MOTHER} {BIRTH}"
    answer, harvest, trace, models = await roll_out(
        {"deepnote/init_note": reference, "deepnote/refine_query": retrieval},
        notes=lambda prompt, sampling, sample: better if (sampling.temperature, sampling.top_p) == NINE[6] else MOTHER,
        judge=always('{"status": "False"}'),
        options=ONCE,
    )
    (row,) = harvest.rows
    assert row["chosen"] == [{"role": "assistant", "content": better}]
    assert row["rejected"] == [{"role": "assistant", "content": MOTHER}]
    for role in ("query", "answer"):
        assert better in models[role].calls[0][0][0]["content"]
    assert (trace.note, answer) == (better, "Tolen")


@pytest.mark.parametrize("to_the_end", [True, False])
async def test_somebody_elses_method_is_rolled_to_a_search_and_to_the_last_trained_stage(
    to_the_end, roll_out, monkeypatch
):
    """What ends it there is no fault of it."""
    monkeypatch.setattr(METHODS["deepnote"].run, "__module__", "theirs")
    answer, harvest, *_ = await roll_out(
        {"deepnote/refine_query": retrieval},
        query=by_sampler("Who is Osk?", "Who is Mira?", otherwise="The Bore?"),
        judge=always('{"status": "True"}'),
        index=ByTitle(),
        options=ONCE | {"top_k": 1},
        to_the_end=to_the_end,
    )
    assert [row["chosen"][0]["content"] for row in harvest.rows] == ["Who is Mira?"]
    assert answer == ("Tolen" if to_the_end else "")


async def test_the_next_round_searches_with_the_better_query(roll_out):
    @judge()
    async def likes_last(case):
        return Verdict(len(case.candidates) - 1, 0)

    _, harvest, trace, models = await roll_out(
        {"deepnote/refine_query": likes_last},
        query=by_sampler("Who is Osk?", "Who is Mira?", otherwise="Where is Tolen?"),
        judge=always('{"status": "True"}'),
        options=ONCE,
    )
    assert harvest.rows[0]["chosen"][0]["content"] == "Where is Tolen?"
    searches = [step.query for step in trace.steps if step.kind == "retrieve"]
    assert searches == [QUESTION.question, f"Where is Tolen? {QUESTION.question}"]
    # Nine candidate queries, and one completion at the stages that are not trained.
    calls = {role: len(model.calls) for role, model in models.items()}
    assert calls == {"policy": 0, "notes": 2, "query": 9, "judge": 1, "answer": 1}


async def test_the_prompt_of_a_pair_is_the_one_that_evaluation_sends(roll_out):
    notes = by_sampler(MOTHER, BIRTH)
    _, harvest, trained, _ = await roll_out({"deepnote/init_note": reference}, notes=notes, **FIRST_NOTE)
    _, _, plain, _ = await roll_out({}, notes=notes, **FIRST_NOTE)
    assert harvest.rows[0]["prompt"] == plain.steps[1].messages == trained.steps[1].messages


async def test_duplicates_are_merged_and_empty_candidates_left_out(roll_out):
    seen = []
    notes = by_sampler("b", " a\n", "a", "", "  \n", "b", otherwise="c")
    _, harvest, _, _ = await roll_out({"deepnote/init_note": spy(seen)}, notes=notes, **FIRST_NOTE)
    assert seen[0].candidates == ["b", "a", "c"]
    # What two samplings wrote belongs to the first of them.
    assert harvest.rows[0]["rejected_source"] == {"kind": "model", "temperature": 0.1, "top_p": 0.1, "max_tokens": 40}


@pytest.mark.parametrize(("note", "goes_on_with"), [("the same", "the same"), ("  ", "")])
async def test_without_two_candidates_the_stage_is_dropped_with_the_reason_and_the_method_continues(
    roll_out, note, goes_on_with
):
    seen = []
    answer, harvest, trace, _ = await roll_out({"deepnote/init_note": spy(seen)}, notes=always(note), **FIRST_NOTE)
    assert (seen, harvest.rows) == ([], [])
    assert harvest.drops == [{"stage": "deepnote/init_note", "reason": "fewer than two distinct candidates"}]
    assert (trace.note, answer) == (goes_on_with, "Tolen")


async def test_a_verdict_without_a_pair_is_dropped_with_its_reason(roll_out):
    answers = by_sampler("Fulda", otherwise="Osk")
    _, harvest, _, _ = await roll_out({"deepnote/answer": metric}, answer=answers, **FIRST_NOTE)
    assert harvest.rows == []
    assert harvest.drops == [{"stage": "deepnote/answer", "reason": NOTHING}]


async def test_a_candidate_that_was_cut_at_its_token_limit_is_never_chosen(roll_out):
    answers = by_sampler("Tolen...", "in Tolen I think", otherwise="Fulda...")
    answer, harvest, _, _ = await roll_out({"deepnote/answer": metric}, answer=answers, **FIRST_NOTE)
    (row,) = harvest.rows
    assert answer == row["chosen"][0]["content"] == "in Tolen I think"
    assert row["rejected"][0]["content"] == "Fulda"


async def test_a_pair_that_teaches_nothing_is_dropped_with_its_reason_and_the_method_continues(roll_out):
    notes = by_sampler("Osk has a mother. " * 8, "Osk " * 20, otherwise=MOTHER)
    _, harvest, trace, _ = await roll_out({"deepnote/init_note": spy([])}, notes=notes, **FIRST_NOTE)
    assert harvest.rows != [] and harvest.drops == []
    loops = by_sampler("No idea.", otherwise="Osk has a mother. " * 8)
    _, harvest, trace, _ = await roll_out({"deepnote/init_note": spy([])}, notes=loops, **FIRST_NOTE)
    assert harvest.rows == []
    assert harvest.drops == [{"stage": "deepnote/init_note", "reason": "the chosen side repeats itself"}]
    assert trace.note.startswith("Osk has a mother.")


async def test_a_text_that_was_also_finished_counts_as_finished(roll_out):
    answers = by_sampler("Tolen...", "Tolen", otherwise="Fulda")
    _, harvest, _, _ = await roll_out({"deepnote/answer": metric}, answer=answers, **FIRST_NOTE)
    assert harvest.rows[0]["chosen"][0]["content"] == "Tolen"
    assert harvest.rows[0]["chosen_source"]["top_p"] == 0.5


async def test_a_control_is_the_one_candidate_beside_the_gold_evidence_and_asks_no_model(roll_out):
    recipe = {"gold_stages": frozenset({"deepnote/init_note"})}
    controls = {"notes": Control(hard_negative)}
    _, harvest, trace, _ = await roll_out(
        {"deepnote/init_note": reference}, recipe=recipe, controls=controls, **FIRST_NOTE
    )
    (row,) = harvest.rows
    sides = [row[side][0]["content"] for side in ("chosen", "rejected")]
    assert sides == [f"{MOTHER}\n{BIRTH}", "The Bore is a river."]
    assert [row[f"{side}_source"] for side in ("chosen", "rejected")] == [{"kind": "gold"}, {"kind": "control"}]
    assert (row["prompt_tokens"], row["chosen_tokens"], row["rejected_tokens"]) == (None, None, None)
    assert [step.text for step in trace.steps if isinstance(step, GoldReply)] == [sides[0]]


async def test_at_an_extractive_stage_judges_read_the_sentences_and_a_pair_teaches_their_marks(roll_out):
    seen = []
    replies = by_sampler("[C]", "[A]", "[C][B]", "[A][A]", otherwise="[C]")
    _, harvest, _, models = await roll_out(
        {"deepnote/init_note": spy(seen)}, extractive=["deepnote/init_note"], notes=replies, options=ONCE
    )
    # The fourth names what the second does.
    assert seen[0].candidates == ["The Bore is a river.", MOTHER, f"The Bore is a river.\n{BIRTH}"]
    row = harvest.rows[0]
    assert "Osk's mother is Mira. [A]" in row["prompt"][0]["content"]
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("[C][B]", "[C]")
    # The method goes on with the sentences.
    assert f"The Bore is a river.\n{BIRTH}" in models["query"].calls[0][0][0]["content"]


async def test_at_an_extractive_stage_a_written_text_is_taught_by_its_marks(roll_out):
    _, harvest, trace, _ = await roll_out(
        {"deepnote/init_note": reference},
        extractive=["deepnote/init_note"],
        recipe={"gold_stages": ["deepnote/init_note"]},
        notes=always("[C]"),
        options=ONCE,
    )
    row = harvest.rows[0]
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("[A][B]", "[C]")
    assert trace.note.startswith(f"{MOTHER}\n{BIRTH}")


async def test_an_extractive_note_is_rolled_forward_as_its_sentences(roll_out):
    def answer(prompt, sampling, sample):
        return "Tolen" if BIRTH in prompt else "Osk"

    replies = by_sampler("[C]", "[A][B]", otherwise="[C]")
    judges = {"deepnote/init_note": outcome}
    _, harvest, _, _ = await roll_out(
        judges,
        extractive=["deepnote/init_note"],
        notes=replies,
        answer=answer,
        options={"adaptive_retrieval": False},
    )
    row = harvest.rows[0]
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == ("[A][B]", "[C]")


async def test_every_worse_candidate_makes_a_pair_of_its_own_if_asked(roll_out):
    notes = by_sampler(f"{MOTHER} {BIRTH}", MOTHER, "The Bore is a river.", otherwise=f"{MOTHER} {BIRTH}")
    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": reference}, notes=notes, rules={"rejected": "every", "min_gap": 0.05}, **FIRST_NOTE
    )
    sides = [[row[side][0]["content"] for side in ("chosen", "rejected")] for row in harvest.rows]
    assert sides == [[f"{MOTHER} {BIRTH}", MOTHER], [f"{MOTHER} {BIRTH}", "The Bore is a river."]]
    assert [row["rejected_score"] for row in harvest.rows] == sorted(
        (row["rejected_score"] for row in harvest.rows), reverse=True
    )
    assert not harvest.drops


async def test_of_every_worse_candidate_those_without_a_fault_make_pairs(roll_out):
    notes = by_sampler(f"{MOTHER} {BIRTH}", MOTHER, "The river. " * 60, otherwise=f"{MOTHER} {BIRTH}")
    rules = {"rejected": "every", "max_length_gap": 0.7}
    _, harvest, _, _ = await roll_out({"deepnote/init_note": reference}, notes=notes, rules=rules, **FIRST_NOTE)
    assert [row["rejected"][0]["content"] for row in harvest.rows] == [MOTHER]


async def test_a_control_that_is_preferred_is_a_step_of_the_trace(roll_out):
    recipe = {"gold_stages": frozenset({"deepnote/init_note"})}
    controls = {"notes": Control(hard_negative)}
    judge = {"deepnote/init_note": first_of_both}
    _, harvest, trace, _ = await roll_out(judge, recipe=recipe, controls=controls, **FIRST_NOTE)
    assert harvest.rows[0]["chosen_source"] == {"kind": "control"}
    assert [step.text for step in trace.steps if isinstance(step, ControlReply)] == ["The Bore is a river."]


async def test_each_candidate_is_rolled_forward_where_a_control_wrote_one_of_them(roll_out):
    recipe = {"gold_stages": frozenset({"deepnote/init_note"})}
    controls = {"notes": Control(hard_negative)}
    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": outcome},
        recipe=recipe,
        controls=controls,
        answer=lambda prompt, sampling, sample: "Tolen" if BIRTH in prompt else "Bore",
        **FIRST_NOTE,
    )
    (row,) = harvest.rows
    assert [row[f"{side}_source"]["kind"] for side in ("chosen", "rejected")] == ["gold", "control"]
    assert (row["chosen_score"], row["rejected_score"]) == (1.0, 0.0)


async def test_a_candidate_is_rolled_forward_to_a_controls_note_of_all_that_was_read(roll_out):
    _, _, _, models = await roll_out(
        {"deepnote/init_note": outcome},
        recipe={"gold_stages": frozenset({"deepnote/init_note"})},
        index=ByTitle(),
        query=always("Mira?"),
        controls={"notes": Control(in_order)},
        judge=always('{"status": "True"}'),
        options=ONCE,
    )
    # Two candidates and the method itself.
    prompts = [messages[0]["content"] for messages, _, _ in models["answer"].calls]
    assert len(prompts) == 3 and all(MOTHER in prompt and BIRTH in prompt for prompt in prompts)


async def test_a_control_that_replays_a_run_goes_on_with_its_next_note_after_a_candidate(roll_out):
    notes = {"deepnote/init_note": [MOTHER], "deepnote/accumulate_knowledge": ["The first.", "The second."]}
    replies = {(QUESTION.id, stage): each for stage, each in notes.items()}
    _, _, _, models = await roll_out(
        {"deepnote/accumulate_knowledge": outcome},
        recipe={"gold_stages": frozenset({"deepnote/accumulate_knowledge"})},
        index=ByTitle(),
        query=always("Mira?"),
        controls={"notes": Replay(empty, replies)},
        judge=always('{"status": "True"}'),
        options={"max_step": 2, "max_failure": 2},
    )
    prompts = [messages[0]["content"] for messages, _, _ in models["answer"].calls]
    # Of the two candidates for the first update, each rolled forward.
    assert all("The second." in prompt for prompt in prompts[:2])


async def test_the_gold_evidence_is_a_candidate_at_the_gold_stages_alone_and_is_marked(roll_out):
    seen = []
    judges = {"deepnote/init_note": reference, "deepnote/answer": spy(seen)}
    recipe = {"gold_stages": frozenset({"deepnote/init_note"})}
    answers = by_sampler("Fulda", otherwise="Osk")
    _, harvest, trace, models = await roll_out(judges, answer=answers, recipe=recipe, **FIRST_NOTE)
    note, answer = harvest.rows
    gold = f"{MOTHER}\n{BIRTH}"
    assert (note["chosen"][0]["content"], note["chosen_source"]) == (gold, {"kind": "gold"})
    assert note["rejected_source"]["kind"] == "model"
    # No server has counted it.
    assert (note["prompt_tokens"], note["chosen_tokens"], note["rejected_tokens"]) == (50, None, len(MOTHER.split()))
    assert seen[0].candidates == ["Fulda", "Osk"]
    assert answer["chosen_source"]["kind"] == answer["rejected_source"]["kind"] == "model"
    # The method continues with it as with any other.
    assert trace.note == gold and gold in models["answer"].calls[0][0][0]["content"]


async def test_a_step_that_continued_with_the_gold_evidence_says_so_in_the_trace(roll_out):
    recipe = {"gold_stages": frozenset({"deepnote/init_note"})}
    _, _, trace, models = await roll_out({"deepnote/init_note": reference}, recipe=recipe, **FIRST_NOTE)
    prompt = models["notes"].calls[0][0]
    assert trace.steps[1] == GoldReply("deepnote/init_note", "notes", prompt, f"{MOTHER}\n{BIRTH}")
    assert [step["kind"] for step in trace.to_dict()["steps"]] == ["retrieve", "gold", "generate"]


async def test_the_gold_answer_is_a_candidate_where_the_prompt_tells_it(roll_out):
    """The model would otherwise learn to answer from memory."""
    recipe = {"gold_stages": frozenset({"deepnote/answer"})}
    told = {"notes": always(BIRTH), "answer": by_sampler("Fulda", otherwise="Osk"), "options": {"max_step": 0}}
    _, harvest, _, _ = await roll_out({"deepnote/answer": metric}, recipe=recipe, **told)
    assert harvest.rows[0]["chosen_source"] == {"kind": "gold"}
    _, harvest, _, _ = await roll_out({"deepnote/answer": metric}, recipe=recipe, **told | {"notes": always(MOTHER)})
    assert not harvest.rows


async def test_what_the_model_wrote_itself_is_not_gold(roll_out):
    recipe = {"gold_stages": frozenset({"deepnote/answer"})}
    answers = by_sampler("Tolen", otherwise="Fulda")
    _, harvest, _, _ = await roll_out({"deepnote/answer": metric}, answer=answers, recipe=recipe, **FIRST_NOTE)
    assert harvest.rows[0]["chosen_source"]["kind"] == "model"


async def test_a_row_states_its_provenance_and_fits_the_columns(roll_out):
    notes = by_sampler(MOTHER, otherwise=f"{MOTHER} {BIRTH}")
    _, harvest, _, _ = await roll_out({"deepnote/init_note": reference}, notes=notes, **FIRST_NOTE)
    (row,) = harvest.rows
    assert row.keys() | {"dataset", "chosen_noise", "rejected_noise"} == set(COLUMNS.names)
    told = {key: row[key] for key in ("stage", "method", "question_id", "top_k")}
    assert told == {"stage": "deepnote/init_note", "method": "deepnote", "question_id": "q1", "top_k": 3}
    assert (row["judge"], row["judge_replies"], row["judge_orders"]) == ("reference", [], [])
    assert row["chosen_score"] == 1 > row["rejected_score"] > 0
    assert (row["chosen_tokens"], row["rejected_tokens"]) == (9, 4)
    assert row["chosen_source"] == {"kind": "model", "temperature": 0.1, "top_p": 0.5, "max_tokens": 40}


async def test_the_judge_model_is_asked_once_per_call_and_its_replies_are_kept_with_the_pair(roll_out):
    def judge(prompt, sampling, sample):
        is_birth = prompt.partition("New note:")[2].strip().startswith(BIRTH)
        return f'{{"status": "{is_birth}"}}'

    _, harvest, _, models = await roll_out(
        {"deepnote/accumulate_knowledge": decision},
        notes=by_sampler(MOTHER, BIRTH, otherwise="No idea."),
        judge=judge,
        options=ONCE,
    )
    (row,) = harvest.rows
    assert row["chosen"][0]["content"] == BIRTH and row["rejected"][0]["content"] in (MOTHER, "No idea.")
    assert (row["chosen_score"], row["rejected_score"]) == (1, 0)
    assert sorted(row["judge_replies"]) == ['{"status": "False"}', '{"status": "False"}', '{"status": "True"}']
    # Three distinct candidates, and the method's own decision.
    assert len(models["judge"].calls) == 3 + 1


async def test_calls_of_a_judge_are_no_steps_of_the_method_but_their_tokens_count(roll_out):
    _, harvest, trace, _ = await roll_out(
        {"deepnote/accumulate_knowledge": decision},
        notes=by_sampler(MOTHER, BIRTH, otherwise="No idea."),
        judge=always('{"status": "True"}'),
        options=ONCE,
    )
    stages = [step.stage for step in trace.steps if step.kind == "generate"]
    assert stages == [f"deepnote/{name}" for name in NAMES]
    calls = {(each["stage"], each["role"]): each["tokens"] for each in harvest.record("q1", [])["usage"]}
    assert calls["deepnote/accumulate_knowledge", "notes"]["calls"] == 9
    # Three distinct candidates, and the method's own decision.
    assert calls["deepnote/decide", "judge"] == {"calls": 4, "prompt_tokens": 200, "completion_tokens": 8}
    assert sum(tokens["calls"] for tokens in calls.values()) == 1 + 1 + 9 + 4 + 1


async def test_a_call_that_two_methods_make_for_a_question_counts_once():
    """As the answer from plain passages, with which the judge gain compares the notes of each."""

    @judge()
    async def asking(case):
        await case.ask(ANSWER, question="Who?", passages=[], answer_style="short")
        return Verdict(0, 1)

    methods = {name: PreparedMethod(METHODS[name], {}) for name in ("vanilla", "direct")}
    judges = {f"{name}/answer": [asking] for name in methods}
    recipe = Recipe(stages=list(judges), judges=judges, methods=methods)
    resources = Resources({"policy": Model(by_sampler("Tolen", "Fulda"))}, Prompts(), Shelf())
    record = await harvest_rollouts(QUESTION, resources, recipe, SamplingRollout)
    calls = {each["stage"]: each["tokens"]["calls"] for each in record["usage"]}
    assert calls == {"vanilla/answer": 9 + 1, "direct/answer": 9}


async def test_searches_of_a_judge_are_no_steps_of_the_method(roll_out):
    _, _, trace, _ = await roll_out(
        {"deepnote/refine_query": retrieval},
        query=by_sampler("Mira?", otherwise="Osk?"),
        judge=always('{"status": "True"}'),
        options=ONCE,
    )
    assert sum(step.kind == "retrieve" for step in trace.steps) == 2


async def test_random_choices_depend_on_seed_question_and_stage_not_on_the_order_of_questions(roll_out):
    async def draw(question, seed=0):
        seen = []
        notes = by_sampler(MOTHER, otherwise=BIRTH)
        judges = {"deepnote/init_note": spy(seen)}
        await roll_out(judges, question=question, notes=notes, recipe={"seed": seed}, **FIRST_NOTE)
        return seen[0].random.random()

    other = Question("q2", QUESTION.question, ("Tolen",))
    first, second = await asyncio.gather(draw(QUESTION), draw(other))
    assert (await draw(other), await draw(QUESTION)) == (second, first)
    assert len({first, second, await draw(QUESTION, seed=1)}) == 3


# Hard negatives


async def test_a_cut_completion_is_rejected_only_if_no_whole_one_is_worse(roll_out):
    chosen, cut, wrong = f"{MOTHER} {BIRTH}", "The Bore", "The Bore is a river of much water."
    notes = by_sampler(chosen, f"{cut}...", wrong, otherwise=chosen)
    for rejected, expected in (("worst", {cut, wrong}), ("hardest", {wrong})):
        seen = set()
        for seed in range(6):
            recipe, rules = {"seed": seed}, {"rejected": rejected}
            _, harvest, _, _ = await roll_out(
                {"deepnote/init_note": reference}, notes=notes, recipe=recipe, rules=rules, **FIRST_NOTE
            )
            seen.add(harvest.rows[0]["rejected"][0]["content"])
        assert seen <= expected
    notes = by_sampler(f"{cut}...", otherwise=chosen)
    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": reference}, notes=notes, rules={"rejected": "hardest"}, **FIRST_NOTE
    )
    assert harvest.rows[0]["rejected"][0]["content"] == cut


async def test_sides_that_a_judge_names_without_scores_are_within_the_gap_of_length_too(roll_out):
    notes = by_sampler(f"{MOTHER} {BIRTH}", "Tolen.", otherwise=f"{MOTHER} {BIRTH}")
    judge_reply = always('{"best_id": 1, "worst_id": 2}')
    for gap, reason in ((None, ""), (0.15, "the sides differ in length by more than max_length_gap")):
        rules = {"judge_orders": 1, "max_length_gap": gap}
        _, harvest, _, _ = await roll_out(
            {"deepnote/init_note": llm}, notes=notes, judge=judge_reply, rules=rules, **FIRST_NOTE
        )
        assert [drop["reason"] for drop in harvest.drops] == [reason] * bool(reason)
        assert len(harvest.rows) == (gap is None)


async def test_likelihood_scores_with_the_answerer_counted_and_not_in_the_trace(roll_out):
    @dataclass
    class Reader(Model):
        async def complete(self, messages, sampling, *, sample=0, affinity=""):
            if sampling.score_from is None:
                return await super().complete(messages, sampling, sample=sample, affinity=affinity)
            self.calls.append((messages, sampling, sample))
            likely = -0.5 if BIRTH in messages[0]["content"] else -4.0
            return Completion("", "length", 50, 1, 0, 0.1, [(messages[-1]["content"], likely)])

    notes = by_sampler(MOTHER, f"{MOTHER} {BIRTH}", otherwise=MOTHER)
    reader = Reader(always("Fulda"))
    _, harvest, trace, _ = await roll_out(
        {"deepnote/init_note": likelihood}, notes=notes, models={"answer": reader}, **FIRST_NOTE
    )
    (row,) = harvest.rows
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (f"{MOTHER} {BIRTH}", MOTHER)
    assert (row["chosen_score"], row["rejected_score"]) == (3.5, 0)
    assert "vanilla/answer" not in [step.stage for step in trace.steps if hasattr(step, "stage")]
    # The answer with each of the two notes, and without one.
    assert harvest.usage["vanilla/answer", "answer"]["calls"] == 3


# Rolling candidates forward


def reader(prompt, sampling, sample):
    """A model that answers rightly from a note or passages that tell of the birth, and wrongly elsewhere."""
    return "Tolen" if BIRTH in prompt else "Fulda"


TRIED = {"notes": by_sampler(MOTHER, f"{MOTHER} {BIRTH}", otherwise="No idea."), "answer": reader}


async def test_outcome_prefers_the_note_that_the_right_answer_came_from(roll_out):
    answer, harvest, _, _ = await roll_out({"deepnote/init_note": outcome}, **TRIED, **FIRST_NOTE)
    (row,) = harvest.rows
    assert row["chosen"][0]["content"] == f"{MOTHER} {BIRTH}"
    assert (row["chosen_score"], row["rejected_score"]) == (1, 0)
    assert row["judge_replies"] == ["Fulda", "Tolen", "Fulda"]
    assert answer == "Tolen"


async def test_a_candidate_is_rolled_forward_through_the_rest_of_the_method_without_asking_again_what_was_said(
    roll_out,
):
    _, harvest, trace, models = await roll_out(
        {"deepnote/refine_query": outcome},
        query=by_sampler("Mira?", "Osk?", otherwise="Bore?"),
        notes=lambda prompt, sampling, sample: BIRTH,
        judge=always('{"status": "True"}'),
        answer=lambda prompt, sampling, sample: "Tolen",
        options=ONCE,
    )
    assert harvest.rows == [] and harvest.drops[0]["reason"] == "candidates too much alike"
    # One first note; the prompts after the query are the same for every candidate here: one update a candidate.
    first = [messages for messages, _, _ in models["notes"].calls if "Notes so far" not in messages[0]["content"]]
    assert len(first) == 1
    assert len(models["query"].calls) == 9
    # Three candidates and the method itself.
    assert [len(models[role].calls) for role in ("judge", "answer")] == [4, 4]
    # What was tried is no step of the method, and equal calls count once.
    assert [step.stage for step in trace.steps if step.kind == "generate"] == [f"deepnote/{name}" for name in NAMES]
    usage = {each["stage"]: each["tokens"]["calls"] for each in harvest.record("q1", [])["usage"]}
    assert usage["deepnote/answer"] == 1


async def test_outcome_works_at_every_generated_stage_of_a_method(roll_out):
    stages = {f"deepnote/{name}": outcome for name in NAMES}
    _, harvest, trace, _ = await roll_out(
        stages,
        query=by_sampler("Mira?", otherwise="Osk?"),
        judge=by_sampler('{"status": "True"}', otherwise='{"status": "False"}'),
        notes=lambda prompt, sampling, sample: f"{MOTHER} {BIRTH}" if sampling.top_p == 0.9 else MOTHER,
        answer=lambda prompt, sampling, sample: reader(prompt, sampling, sample) + " it is" * (sampling.top_p == 0.1),
        options=ONCE,
    )
    assert [attempt.stage for attempt in harvest.attempts] == list(stages)
    rows = {row["stage"]: row for row in harvest.rows}
    assert rows["deepnote/init_note"]["chosen"][0]["content"] == f"{MOTHER} {BIRTH}"
    assert rows["deepnote/answer"]["chosen"][0]["content"] == trace.answer == "Tolen"
    assert rows["deepnote/answer"]["rejected"][0]["content"] == "Tolen it is"


async def test_several_continuations_draw_several_answers_and_the_first_is_that_of_a_single_one(roll_out):
    def lucky(prompt, sampling, sample):
        return "Tolen" if BIRTH in prompt or sample == 0 else "Fulda"

    judges = {"deepnote/init_note": outcome}
    tried = TRIED | {"answer": lucky}
    _, single, _, alone = await roll_out(judges, **tried, **FIRST_NOTE)
    assert single.drops[0]["reason"] == "candidates too much alike"
    _, harvest, _, models = await roll_out(judges, rules={"continuations": 4}, **tried, **FIRST_NOTE)
    (row,) = harvest.rows
    assert row["chosen"][0]["content"] == f"{MOTHER} {BIRTH}"
    assert (row["chosen_score"], row["chosen_noise"]) == (1, 0)
    assert (row["rejected_score"], row["rejected_noise"]) == (0.25, 0.25)
    assert row["judge_replies"] == ["Tolen", "Fulda", "Fulda", "Fulda"] + ["Tolen"] * 4 + ["Tolen"] + ["Fulda"] * 3
    first = {str(call) for call in models["answer"].calls if call[2] == 0}
    assert first == {str(call) for call in alone["answer"].calls}
    # The method's own answer is the first continuation of its note.
    calls = {each["stage"]: each["tokens"]["calls"] for each in harvest.record("q1", [])["usage"]}
    assert calls["deepnote/answer"] == 12


async def test_a_single_continuation_knows_no_noise(roll_out):
    _, harvest, _, _ = await roll_out({"deepnote/init_note": outcome}, **TRIED, **FIRST_NOTE)
    assert not {"chosen_noise", "rejected_noise"} & harvest.rows[0].keys()


async def test_a_candidate_whose_continuation_the_endpoint_refuses_has_no_score_and_is_neither_side(roll_out):
    def refusing(prompt, sampling, sample):
        if "No idea." in prompt:
            raise RequestRefused("too long")
        return reader(prompt, sampling, sample)

    _, harvest, _, _ = await roll_out({"deepnote/init_note": outcome}, **TRIED | {"answer": refusing}, **FIRST_NOTE)
    (row,) = harvest.rows
    assert row["rejected"][0]["content"] == MOTHER


async def test_if_every_continuation_is_refused_there_is_no_pair_and_the_method_continues(roll_out):
    def refuses(prompt, sampling, sample):
        raise RequestRefused("too long")

    _, harvest, trace, _ = await roll_out({"deepnote/init_note": outcome}, **TRIED | {"answer": refuses}, **FIRST_NOTE)
    assert [drop["reason"] for drop in harvest.drops] == [
        "no candidate could be rolled forward",
        "the endpoint refused the request",
    ]
    assert trace.error == "too long"


async def test_a_prompt_without_a_pair_for_refused_continuations_counts_as_one_to_ask_again(roll_out):
    def refuses(prompt, sampling, sample):
        raise RequestRefused("too long")

    tried = TRIED | {"answer": refuses}
    _, harvest, trace, _ = await roll_out({"deepnote/init_note": outcome}, to_the_end=False, **tried, **FIRST_NOTE)
    assert [attempt.verdict.refusal for attempt in harvest.attempts] == ["too long"]
    # The rollout itself, which ends at the note, was refused nothing.
    assert trace.error == ""


@pytest.mark.parametrize("judges", [llm, decision, [llm, decision]])
async def test_a_refused_judge_is_a_counted_reason_and_the_method_continues(roll_out, judges):
    def refuses_candidates(prompt, sampling, sample):
        if sampling.json_schema:
            raise RequestRefused("nine notes are too long")
        return '{"status": "True"}'

    notes = by_sampler(MOTHER, BIRTH)
    answer, harvest, trace, _ = await roll_out(
        {"deepnote/accumulate_knowledge": judges}, notes=notes, judge=refuses_candidates, options=ONCE
    )
    assert harvest.drops == [
        {"stage": "deepnote/accumulate_knowledge", "reason": "the endpoint refused the judge's request"}
    ]
    assert (answer, trace.error) == ("Tolen", "")


async def test_if_one_judge_is_refused_the_next_decides(roll_out):
    def refuses(prompt, sampling, sample):
        raise RequestRefused("nine notes are too long")

    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": [llm, reference]}, notes=by_sampler(BIRTH, MOTHER), judge=refuses, **FIRST_NOTE
    )
    (row,) = harvest.rows
    assert (row["judge"], row["chosen"][0]["content"]) == ("llm, reference", BIRTH)


async def test_a_judge_can_break_the_ties_of_another(roll_out):
    def judge(prompt, sampling, sample):
        shown = re.findall(r'<candidate id="(\d+)">\n(.*)\n</candidate>', prompt)
        ids = {text: number for number, text in shown}
        return f'{{"best_id": {ids.get("d", ids.get("No idea."))}, "worst_id": {ids.get("b", ids.get("a"))}}}'

    # Two notes lead to the right answer and two do not.
    notes = by_sampler("a", f"b {BIRTH}", f"d {BIRTH}", otherwise="No idea.")
    table = {f"b {BIRTH}": "b", f"d {BIRTH}": "d"}
    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": [outcome, llm]},
        notes=notes,
        answer=reader,
        judge=lambda prompt, sampling, sample: judge(
            re.sub("|".join(map(re.escape, table)), lambda match: table[match[0]], prompt), sampling, sample
        ),
        **FIRST_NOTE,
    )
    (row,) = harvest.rows
    assert row["chosen"][0]["content"] == f"d {BIRTH}" and row["rejected"][0]["content"] == "a"
    assert row["judge"] == "outcome, llm"
    # Four answers, and both orders of either tie.
    assert len(row["judge_replies"]) == 4 + 2 + 2
    assert sorted(map(sorted, row["judge_orders"])) == [[0, 3], [0, 3], [1, 2], [1, 2]]
    assert [each["agreed"] for each in harvest.record("q1", [])["agreements"]] == [True, True]


async def test_retrieval_searches_with_what_the_method_makes_of_a_query(roll_out):
    searched = []

    @judge()
    async def searching(case):
        searched.extend([await case.next_query(candidate) for candidate in case.candidates])
        return Verdict(0, 1)

    queries = by_sampler("Mira?", otherwise="Osk?")
    _, _, trace, models = await roll_out(
        {"deepnote/refine_query": searching}, query=queries, judge=always('{"status": "True"}'), options=ONCE
    )
    assert searched == [f"Mira? {QUESTION.question}", f"Osk? {QUESTION.question}"]
    assert len(models["notes"].calls) == 2 and sum(step.kind == "retrieve" for step in trace.steps) == 2


# Teachers that cannot do it


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("", "fewer than two distinct candidates"),
        ("the note the note the note", "fewer than two distinct candidates"),
        ("and on and on...", "fewer than two distinct candidates"),
    ],
)
async def test_a_teacher_that_says_nothing_or_the_same_or_never_ends_is_a_counted_reason(roll_out, text, reason):
    for each in (outcome, reference, llm):
        answer, harvest, _, _ = await roll_out(
            {"deepnote/init_note": each}, notes=always(text), judge=always("Hm."), **FIRST_NOTE
        )
        assert (harvest.rows, [drop["reason"] for drop in harvest.drops], answer) == ([], [reason], "Tolen")


async def test_a_teacher_that_never_stops_yields_no_pair(roll_out):
    endless = by_sampler("so Mira...", "so Osk...", otherwise="so Tolen...")
    for each in (outcome, reference):
        _, harvest, _, _ = await roll_out({"deepnote/init_note": each}, notes=endless, **FIRST_NOTE)
        assert [drop["reason"] for drop in harvest.drops] == ["every candidate was cut at its token limit"]


BAD_REPLIES = [
    "The first is best.",
    "",
    '{"best_id": 1',
    '{"best_id": 0, "worst_id": 99}',
    '{"best_id": 1, "worst_id": 1}',
    '{"best_id": "one", "worst_id": null}',
    "[1, 2]",
]


@pytest.mark.parametrize("reply", BAD_REPLIES)
async def test_a_judge_that_cannot_be_read_is_a_counted_reason_and_no_pair(roll_out, reply):
    _, harvest, _, _ = await roll_out({"deepnote/init_note": llm}, **TRIED, judge=always(reply), **FIRST_NOTE)
    expected = "judge named one candidate twice" if reply == BAD_REPLIES[4] else "judge reply not readable"
    assert (harvest.rows, [drop["reason"] for drop in harvest.drops]) == ([], [expected])


@pytest.mark.parametrize("reply", BAD_REPLIES)
async def test_a_tie_that_an_unreadable_judge_leaves_is_broken_at_random(roll_out, reply):
    notes = by_sampler("a", f"b {BIRTH}", f"d {BIRTH}", otherwise="No idea.")
    _, harvest, _, _ = await roll_out(
        {"deepnote/init_note": [outcome, llm]}, notes=notes, answer=reader, judge=always(reply), **FIRST_NOTE
    )
    (row,) = harvest.rows
    assert BIRTH in row["chosen"][0]["content"] and row["rejected"][0]["content"] in ("a", "No idea.")
    assert reply in row["judge_replies"]


# Where a rollout ends


async def test_a_rollout_ends_with_the_last_prompt_of_a_trained_stage_and_yields_the_same_pairs(roll_out):
    judges = {"deepnote/accumulate_knowledge": decision}
    replies = {
        "notes": by_sampler(MOTHER, BIRTH, otherwise="No idea."),
        "judge": lambda prompt, sampling, sample: json.dumps({"status": str(BIRTH in prompt.rpartition(MOTHER)[2])}),
        "options": {"max_step": 2, "max_failure": 2},
    }
    answer, whole, trace, _ = await roll_out(judges, **replies)
    _, ended, ended_trace, models = await roll_out(judges, to_the_end=False, **replies)
    assert answer == "Tolen" and ended.rows == whole.rows and len(ended.rows) == 2
    assert (ended.drops, ended_trace.error) == (whole.drops, "")
    stages = [step.stage for step in trace.steps if step.kind == "generate"]
    # The second decision and the answer yield no pair.
    assert [step.stage for step in ended_trace.steps if step.kind == "generate"] == stages[:-2]
    assert models["answer"].calls == []


@pytest.mark.parametrize("stage", ["deepnote/decide", "deepnote/answer"])
async def test_a_rollout_continues_while_a_trained_stage_can_be_reached(roll_out, stage):
    options = {"max_step": 2, "max_failure": 1}
    _, harvest, _, models = await roll_out({stage: spy([])}, to_the_end=False, options=options)
    # One failure ends the loop before max_step, and only the answer's prompt was bound to come.
    assert [attempt.stage for attempt in harvest.attempts] == [stage]
    assert len(models["answer"].calls) == (9 if stage == "deepnote/answer" else 1)


async def test_a_method_that_does_not_say_how_often_it_calls_a_stage_runs_to_its_end(roll_out):
    answer, _, _, _ = await roll_out({"resp/global_evidence": reference}, method="resp", to_the_end=False)
    assert answer == "Tolen"
