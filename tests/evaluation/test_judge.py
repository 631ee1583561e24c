"""A judge rates finished runs: what it is shown, what becomes of its replies, and where the scores go."""

import json
import re
from dataclasses import replace

import pytest
from fake_endpoint import fake_endpoint
from hypothesis import given
from hypothesis import strategies as st
from tiny_world import run_config, tiny_world, write_config
from trace_steps import generation, trace

from notewriter.artifacts.metrics import read_metrics
from notewriter.artifacts.predictions import read_predictions
from notewriter.artifacts.traces import Retrieval
from notewriter.evaluation import evaluate
from notewriter.evaluation import judge as command
from notewriter.evaluation.evidence import reference_of
from notewriter.evaluation.judgements import marked
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results.compare import compare
from notewriter.results.report import write_report
from notewriter.results.runs import Run

QUESTIONS = 6
RATINGS = {"efficiency": 4, "redundancy": 5, "coherence": 2}


def asked_for(request):
    """Which judgement a prompt asks for."""
    prompt = request["messages"][0]["content"]
    return {"Che": "answer", "Rat": "chain", "Mar": "density"}[prompt[:3]]


def good_judge(request):
    """Compares letter by letter, rates all chains alike, and marks the first two words and two that are not there."""
    prompt = request["messages"][0]["content"]
    if asked_for(request) == "chain":
        return json.dumps(RATINGS)
    if asked_for(request) == "density":
        words = re.search(r"<text>\n(\S+ \S+)", prompt)[1]
        return json.dumps({"evidence": [words, "never written"]})
    gold, prediction = re.search(r"- (.*)\n\n.*\n<answer>\n(.*)\n</answer>", prompt).groups()
    return json.dumps({"correct": "yes" if gold == prediction else "no"})


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture
def evaluated(world, tmp_path):
    """Evaluates into a folder, every other answer right; called again, it finishes the folder again."""
    golds = {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}

    def reply(request):
        prompt = request["messages"][0]["content"]
        question = prompt.rpartition("Question: ")[2]
        if prompt.startswith("Answer"):
            return golds[question] if sorted(golds).index(question) % 2 else "nobody knows"
        return f"About the river, {len(prompt)}."

    def run(name="run", faults=(), **changes):
        with fake_endpoint(reply, faults) as endpoint:
            settings = {"method_options": {"max_step": 1, "max_failure": 1}, "concurrency": 1} | changes
            evaluate.main(run_config(tmp_path, name, world, endpoint, settings))
        return tmp_path / name

    return run


@pytest.fixture
def judge(tmp_path):
    """Runs the command over run folders with a judge; returns the requests that the judge got."""
    with fake_endpoint(good_judge) as endpoint:

        def run(*folders, judgements=("answer", "chain", "density"), **changes):
            options = {
                "runs": list(map(str, folders)),
                "judgements": list(judgements),
                "base_url": endpoint.base_url,
                "model": endpoint.model,
                "cache": str(tmp_path / "judge.sqlite"),
                "concurrency": 1,
            }
            asked = len(endpoint.requests)
            command.main(write_config(tmp_path / "judge.yaml", options | changes))
            return endpoint.requests[asked:]

        yield run


def metrics_of(run):
    return read_metrics(run / "metrics.json")


def predictions_of(run):
    return list(read_predictions(run / "predictions.jsonl").values())


def records(run, judgement):
    return [record for _, record in jsonl.read(run / "judged" / f"{judgement}.jsonl")]


def test_the_scores_of_every_judgement_join_those_of_the_run(evaluated, judge):
    run = evaluated()
    before = metrics_of(run)
    requests = judge(run)
    assert [asked_for(request) for request in requests] == sorted(["answer", "chain", "density"] * QUESTIONS)
    metrics = metrics_of(run)
    means = {metric: interval.mean for metric, interval in metrics.metrics.items()}
    assert means["judged_accuracy"] == means["em"] == 0.5
    assert {key: means[f"chain_{key}"] for key in RATINGS} == RATINGS
    # "About the" of "About the river, 1234."
    assert means["knowledge_density"] == pytest.approx(2 / 6)
    assert metrics.metrics.items() > before.metrics.items()
    assert replace(metrics, metrics=before.metrics, judged=None) == before
    for prediction in predictions_of(run):
        assert prediction.scores["judged_accuracy"] == prediction.scores["em"]
    told = metrics.judged
    assert told.keys() == {"answer", "chain", "density"}
    assert all((each["model"], each["scored"], each["left_out"]) == ("fake", QUESTIONS, {}) for each in told.values())
    assert (told["density"]["not_verbatim"], told["density"]["pieces"]) == (QUESTIONS, 2 * QUESTIONS)
    assert told["answer"]["prompt_tokens"] > told["answer"]["completion_tokens"] > 0


def test_the_reply_is_bound_to_the_form_and_kept_as_it_was(evaluated, judge):
    run = evaluated()
    requests = judge(run, judgements=["chain"])
    schema = requests[0]["response_format"]["json_schema"]["schema"]
    # The reasons come before the ratings (NotesWriting, figure 7).
    assert list(schema["properties"]) == schema["required"] == ["reasoning", *RATINGS]
    assert [record["replies"] for record in records(run, "chain")] == [[json.dumps(RATINGS)]] * QUESTIONS


def test_costs_are_told_by_judgement_and_in_money_and_a_repetition_may_give_other_prices(evaluated, judge, capsys):
    run = evaluated()
    judge(run, judgements=["answer", "chain"], prices={"judge": [2, 4]})
    assert "money: " in capsys.readouterr().out
    costs = json.loads((run / "judged/costs.json").read_text())
    assert list(costs["stages"]) == ["judge/answer (judge)", "judge/chain (judge)"]
    for stage, name in zip(costs["stages"].values(), ("answer", "chain"), strict=True):
        counted = {"calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds", "wall_seconds"}
        assert stage.keys() == counted
        assert stage["calls"] == QUESTIONS
        assert stage["seconds"] == pytest.approx(sum(record["seconds"] for record in records(run, name)), abs=0.001)
    sums = [sum(stage[key] for stage in costs["stages"].values()) for key in ("prompt_tokens", "completion_tokens")]
    assert costs["money"] == pytest.approx((2 * sums[0] + 4 * sums[1]) / 1e6)
    metrics = (run / "metrics.json").read_bytes()
    assert judge(run, judgements=["answer", "chain"], prices={"judge": [4, 8]}) == []
    assert json.loads((run / "judged/costs.json").read_text())["money"] == pytest.approx(2 * costs["money"], abs=1e-6)
    assert (run / "metrics.json").read_bytes() == metrics


def test_answers_are_graded_by_halves(evaluated, judge):
    """ReaRAG's ACC_L: 28.25 of 200 questions cannot come from zeros and ones."""
    run = evaluated()
    replies = iter(['{"score": 1}', '{"score": 0.5}', '{"score": "0.5"}', '{"score": 0}', '{"score": 0.25}', "well"])
    with fake_endpoint(lambda _: next(replies)) as endpoint:
        judge(run, judgements=["graded_answer"], base_url=endpoint.base_url)
    grades = [prediction.scores.get("graded_accuracy") for prediction in predictions_of(run)]
    assert grades == [1.0, 0.5, 0.5, 0.0, None, None]
    assert metrics_of(run).metrics["graded_accuracy"].mean == 0.5
    assert metrics_of(run).judged["graded_answer"]["left_out"] == {"judge reply not readable": 2}


def test_answers_are_decided_on_after_an_explanation(evaluated, judge):
    """NotesWriting, figure 6; no JSON, which would leave no room for the explanation."""
    run = evaluated()
    replies = iter(["Explanation: So.\nDecision: TRUE", "Explanation: No.\nDecision: FALSE", "TRUE"] * 2)
    with fake_endpoint(lambda _: next(replies)) as endpoint:
        judge(run, judgements=["explained_answer"], base_url=endpoint.base_url)
        assert not any("response_format" in request for request in endpoint.requests)
    scores = [prediction.scores.get("explained_accuracy") for prediction in predictions_of(run)]
    assert scores == [1.0, 0.0, None] * 2
    assert metrics_of(run).judged["explained_answer"]["scored"] == 4


def test_evaluating_again_loses_no_judgement(evaluated, judge):
    run = evaluated()
    judge(run)
    files = {name: (run / name).read_bytes() for name in ("metrics.json", "predictions.jsonl")}
    evaluated()
    assert {name: (run / name).read_bytes() for name in files} == files


def test_runs_are_compared_and_reported_by_what_was_judged(evaluated, judge, tmp_path):
    before, after = evaluated("before", method="vanilla", method_options={}), evaluated("after")
    judge(before, after)
    comparison = compare([Run(before)], [Run(after)])
    assert comparison["judged_accuracy"].questions == comparison["knowledge_density"].questions == QUESTIONS
    # The passages of the one are longer than the note of the other, and as much of both is marked.
    assert comparison["knowledge_density"].difference.mean > 0
    write_report([before, after], tmp_path / "report.html")
    assert "Knowledge density" in (tmp_path / "report.html").read_text()


def test_replies_that_cannot_be_read_are_counted_by_their_reason_and_left_out(evaluated, judge, capsys):
    run = evaluated()
    replies = iter(["It is well.", "I compare them. " * 10, '{"correct": "yes"}'] + ['{"correct": "no"}'] * 9)

    # Of a cut reply vLLM is asked, for one token, how its prompt ended.
    def reply(request):
        return "It" if request["max_tokens"] == 1 else next(replies)

    # Refused with its JSON schema, and then without.
    with fake_endpoint(reply, faults=["400", "400"]) as endpoint:
        judge(run, judgements=["answer"], base_url=endpoint.base_url, max_tokens=20)
    metrics = metrics_of(run)
    assert metrics.metrics["judged_accuracy"].mean == pytest.approx(1 / (QUESTIONS - 3))
    assert metrics.judged["answer"]["scored"] == QUESTIONS - 3
    assert metrics.judged["answer"]["left_out"] == {
        "judge reply cut at max_tokens": 1,
        "judge reply not readable": 1,
        "request refused": 1,
    }
    assert "1 left out: judge reply not readable" in capsys.readouterr().out
    scored = ["judged_accuracy" in prediction.scores for prediction in predictions_of(run)]
    assert scored == [False] * 3 + [True] * (QUESTIONS - 3)
    refused, unreadable, *_ = records(run, "answer")
    assert refused["refusal"].startswith("This model's maximum context length") and refused["replies"] == []
    assert unreadable["replies"] == ["It is well."]


def test_what_the_judge_refused_is_asked_again_when_that_is_wanted(evaluated, judge):
    run = evaluated()
    with fake_endpoint(good_judge, faults=["400", "400"]) as endpoint:
        judge(run, judgements=["answer"], base_url=endpoint.base_url)
    assert metrics_of(run).judged["answer"]["left_out"] == {"request refused": 1}
    assert judge(run, judgements=["answer"]) == []
    assert len(judge(run, judgements=["answer"], retry_errors=True)) == 1
    assert metrics_of(run).judged["answer"]["left_out"] == {}
    assert metrics_of(run).metrics["judged_accuracy"].mean == 0.5


def test_questions_that_ended_in_an_error_score_nothing_and_no_judge_is_asked(evaluated, judge):
    run = evaluated(faults=["400"])
    assert len(judge(run)) == 3 * (QUESTIONS - 1)
    first = predictions_of(run)[0]
    assert first.error and {first.scores[score] for score in ("judged_accuracy", "chain_coherence")} == {0}


def test_a_killed_judge_goes_on_and_ends_with_the_same_metrics(evaluated, judge):
    run = evaluated()
    judge(run, judgements=["answer"])
    whole = (run / "metrics.json").read_bytes()
    journal = run / "judged/answer.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3])[:-40])
    # Every reply was in the cache.
    assert judge(run, judgements=["answer"]) == []
    assert (run / "metrics.json").read_bytes() == whole
    journal.write_bytes(journal.read_bytes()[:-40])
    evaluated()
    assert metrics_of(run).judged["answer"]["scored"] == QUESTIONS - 1


def test_a_judgement_is_added_to_those_that_there_are(evaluated, judge):
    run = evaluated()
    judge(run, judgements=["answer"])
    assert {asked_for(request) for request in judge(run, judgements=["chain", "answer"])} == {"chain"}
    assert metrics_of(run).judged.keys() == {"answer", "chain"}


def test_another_judge_is_refused(evaluated, judge):
    run = evaluated()
    judge(run)
    with pytest.raises(UserError, match=r"judged: contains a run with temperature: 0\.1, not 0\.7; .* remove this one"):
        judge(run, temperature=0.7)


def test_judgements_of_other_answers_are_refused(evaluated, judge):
    run = evaluated()
    judge(run, judgements=["answer"])
    traces = [trace for _, trace in jsonl.read(run / "traces.jsonl")]
    jsonl.write(run / "traces.jsonl", [trace | {"answer": "Another one"} for trace in traces])
    with pytest.raises(UserError, match=r"had a different answer when it was judged; remove .*judged and run"):
        evaluated()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"judgements": ["beauty"]},
            "unknown judgement 'beauty'; choose one of: answer, chain, density, explained_answer, graded_answer",
        ),
        ({"runs": []}, r"judge\.yaml:1: runs.* at least 1"),
        ({"runs": ["nowhere"]}, "nowhere: no such folder"),
        ({"base_url": None}, "no model; give --serve PATH"),
    ],
)
def test_a_mistake_is_found_before_a_judge_is_asked(evaluated, judge, changes, message):
    run = evaluated()
    with pytest.raises(UserError, match=message):
        judge(run, **changes)
    assert metrics_of(run).judged is None


def test_an_unfinished_trace_is_named(evaluated, judge):
    run = evaluated()
    traces = [trace for _, trace in jsonl.read(run / "traces.jsonl")]
    jsonl.write(run / "traces.jsonl", traces[1:])
    with pytest.raises(UserError, match=r"traces\.jsonl: has no trace of question"):
        judge(run)
    jsonl.write(run / "traces.jsonl", [traces[0] | {"steps": [{"kind": "retrieve"}]}, *traces[1:]])
    with pytest.raises(UserError, match=r"traces\.jsonl:1: steps\[0\] has no 'query'"):
        judge(run)


def test_the_judge_of_chains_reads_what_was_observed_and_reasons_before_it_rates(evaluated, judge):
    prompt = judge(evaluated(), judgements=["chain"])[0]["messages"][0]["content"]
    assert "Observation: About the river" in prompt and "found:" not in prompt
    assert prompt.index('"reasoning"') < prompt.index('"efficiency"')


PASSAGES = "[1] Osk: Osk built it.\n\nOr Mira did.\n[2] Tolen: Who? A town."
PROMPT = f"Answer the question.\n\nPassages:\n{PASSAGES}\n\nQuestion: Who?"


@pytest.mark.parametrize(
    ("steps", "note", "reference"),
    [
        ([generation("a/answer", "Osk", PROMPT)], "Osk built it.", "Osk built it."),
        ([], "", ""),
        ([generation("a/answer", "Osk", PROMPT)], None, PASSAGES),
        (
            [generation("a/answer", "Osk", f"Who? Read this.\n{PASSAGES.replace('Who?', '')}")],
            None,
            PASSAGES.replace("Who?", ""),
        ),
        (
            [
                generation(
                    "react/step", "Action", "Find [1] answer.", "Action", "Observation: Osk", "Action", "Seen: 2"
                ),
                generation("react/answer", "Osk", "Steps: Action"),
            ],
            None,
            "Observation: Osk\nSeen: 2",
        ),
        ([generation("direct/answer", "Osk", "Answer. Question: Who?")], None, None),
    ],
    ids=["note", "empty note", "passages", "question before the passages", "observations", "nothing read"],
)
def test_the_reference_is_what_the_answer_was_written_from(steps, note, reference):
    found = Retrieval("Who?", 5, [{"id": "1", "title": "Osk"}], 0.1)
    assert reference_of(trace(found, *steps, note=note), "Who?") == reference
    # Where nothing was retrieved, all that was seen are complaints and what the prompt says.
    assert reference_of(trace(*steps, note=note), "Who?") == note


def test_a_method_that_read_nothing_has_no_density(evaluated, judge):
    run = evaluated(method="direct", method_options={})
    assert judge(run, judgements=["density"]) == []
    metrics = metrics_of(run)
    assert metrics.judged["density"]["left_out"] == {"no reference text": QUESTIONS}
    assert "knowledge_density" not in metrics.metrics


@pytest.mark.parametrize(
    ("evidence", "tokens", "lost"),
    [
        (["Osk built the bridge."], 5, 0),
        (["Osk built", "the bridge"], 4, 0),
        (["Osk  built\nthe bridge"], 4, 0),
        (["Osk built the bridge", "the bridge. Mira"], 4, 1),
        (["Osk built", "Osk built"], 2, 1),
        (["osk built"], 0, 1),
        (["Osk the"], 0, 1),
        (["sk buil", "?!", " "], 0, 3),
        ([], 0, 0),
    ],
)
def test_evidence_counts_where_it_stands_word_for_word_and_once(evidence, tokens, lost):
    counts = marked("Osk built the bridge. Mira, of Tolen, did not.", evidence)
    assert counts == {
        "reference_tokens": 13,
        "evidence_tokens": tokens,
        "pieces": len(evidence),
        "not_verbatim": lost,
    }


@given(st.text("ab .\n", max_size=40), st.lists(st.text("ab .\n", max_size=6), max_size=6))
def test_no_more_is_marked_than_there_is(reference, evidence):
    counts = marked(reference, evidence)
    assert 0 <= counts["evidence_tokens"] <= counts["reference_tokens"]
    assert 0 <= counts["not_verbatim"] <= counts["pieces"] == len(evidence)
    assert marked(reference, [reference])["evidence_tokens"] == counts["reference_tokens"]


def test_a_judge_that_refuses_every_request_is_an_error(evaluated, judge):
    run = evaluated()
    with (
        fake_endpoint(good_judge, faults=["400"] * 2 * QUESTIONS) as endpoint,
        pytest.raises(UserError, match=rf"all {QUESTIONS} questions ended in an error.*maximum context length"),
    ):
        judge(run, judgements=["answer"], base_url=endpoint.base_url)
    assert metrics_of(run).judged["answer"]["left_out"] == {"request refused": QUESTIONS}
