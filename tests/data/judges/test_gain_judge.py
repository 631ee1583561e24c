"""The judge `gain`: what a frozen answerer makes of a note beyond plain passages."""

from judge_cases import QUESTION, RIGHT, WRONG, answering

from notewriter.data.judges import gain
from notewriter.data.judges.case import NOTHING


async def test_gain_is_the_answerers_score_with_the_note_less_its_score_with_plain_passages(make_case):
    # "in Tolen, too" has an F1 of 1/2.
    reply = answering({"a": RIGHT, "b": WRONG, "c": "in Tolen, too"}, plain="in Tolen, too")
    case, asked = make_case(list("abc"), reply=reply, found={QUESTION.question: ["p1", "p2", "p3"]})
    verdict = await gain(case)
    assert (verdict.chosen, verdict.rejected, verdict.scores) == (0, 1, [0.5, -0.5, 0])
    assert verdict.replies == ["in Tolen, too", RIGHT, WRONG, "in Tolen, too"]
    assert {(stage.name, stage.role) for stage, _ in asked} == {("vanilla/answer", "answer")}
    assert [[passage.text for passage in variables["passages"]] for _, variables in asked] == [
        ["p1", "p2"],
        *(["a"], ["b"], ["c"]),
    ]


async def test_gain_scores_what_an_answerer_says_and_not_what_it_thinks(make_case):
    thought = f"<think>Is it {WRONG}, or {RIGHT}?</think>\n\n"
    reply = answering({"a": thought + RIGHT, "b": thought + WRONG}, plain=thought + WRONG)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]})
    verdict = await gain(case)
    assert verdict.scores == [1, 0]
    assert verdict.replies[1] == thought + RIGHT


async def test_an_answerer_that_was_cut_while_it_thought_said_nothing(make_case):
    # What it thought names the answer, and has an F1 above 0 with it.
    reply = answering({"a": RIGHT, "b": f"<think>\nIs it {RIGHT}"}, plain=WRONG)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]})
    assert (await gain(case)).scores == [1, 0]


async def test_a_note_that_does_not_beat_the_passages_is_not_chosen(make_case):
    reply = answering({"a": RIGHT, "b": WRONG}, plain=RIGHT)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]})
    assert (await gain(case)).rejected is None


async def test_a_note_that_equals_the_passages_does_not_beat_them_in_thirds_either(make_case):
    one_of_three = [RIGHT, WRONG, WRONG]
    reply = answering({"a": one_of_three, "b": WRONG}, plain=one_of_three)
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]}, continuations=3, noise_margin=0.0)
    verdict = await gain(case)
    assert (verdict.rejected, verdict.reason) == (None, NOTHING)


async def test_gain_of_several_answers_is_their_mean_and_its_noise_that_of_the_notes_answers(make_case):
    reply = answering({"a": [RIGHT, RIGHT, RIGHT, WRONG], "b": WRONG}, plain=[RIGHT, WRONG, WRONG, WRONG])
    case, _ = make_case(["a", "b"], reply=reply, found={QUESTION.question: ["p1"]}, continuations=4)
    verdict = await gain(case)
    assert (verdict.scores, verdict.noise, verdict.rejected) == ([0.5, -0.25], [0.25, 0], 1)
