import json
import re
from dataclasses import fields
from statistics import mean

import pytest
from fake_endpoint import FAULTS, as_gpt5, fake_endpoint
from tiny_world import run_config, tiny_world

from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.predictions import COSTS, Prediction, read_predictions
from notewriter.artifacts.traces import Trace
from notewriter.evaluation import evaluate, evaluating
from notewriter.evaluation.scoring import prediction_of
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.records import Question
from notewriter.methods import METHODS
from notewriter.results.compare import compare
from notewriter.results.report import write_report
from notewriter.results.runs import Run
from notewriter.retrieval import index

QUESTIONS = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def golds(world):
    return {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}


@pytest.fixture(scope="module")
def endpoint(golds):
    """Answers every other question rightly, and takes notes of a dozen words."""

    def reply(request):
        prompt = request["messages"][0]["content"]
        if not prompt.startswith("Answer"):
            return f"{len(prompt)} words about the river " * 2
        question = prompt.rpartition("Question: ")[2]
        return golds[question] if question in golds and sorted(golds).index(question) % 2 else "nobody knows"

    with fake_endpoint(reply) as running:
        yield running


@pytest.fixture
def run(world, endpoint, tmp_path):
    """Evaluate into a folder with changes to a small configuration; returns the folder's path."""

    def evaluate_into(folder="run", **changes):
        settings = {"method_options": {"max_step": 1, "max_failure": 1}} | changes
        evaluate.main(run_config(tmp_path, folder, world, endpoint, settings))
        return tmp_path / folder

    return evaluate_into


def test_replies_that_were_cut_are_said_in_metrics_summary_warning_and_report(run, tmp_path, capsys, caplog):
    folder = run(max_tokens=1)
    cut = read_metrics(folder / "metrics.json").cut
    assert cut["deepnote/init_note"] == {"replies": 6, "cut": 6, "at_context_end": 0}
    assert "replies that were cut: deepnote/init_note 6 of 6" in capsys.readouterr().out
    assert "replies were cut and are used as they are: deepnote/init_note 6 of 6" in caplog.text
    write_report([folder], tmp_path / "report.html")
    assert "cut: deepnote/init_note 6 of 6" in (tmp_path / "report.html").read_text()


def test_predictions_have_a_line_a_question_in_the_order_of_the_file(run, world):
    records = [record for _, record in jsonl.read(run() / "predictions.jsonl")]
    questions = [record for _, record in jsonl.read(world["path"])]
    assert [record["question_id"] for record in records] == [question["id"] for question in questions]
    for record, question in zip(records, questions, strict=True):
        assert list(record) == ["schema", *(field.name for field in fields(Prediction))]
        assert record["answers"] == question["answers"]
        assert record["scores"].keys() == {
            *("em", "f1", "note_fact_recall", "note_has_answer", "note_words", "supporting_recall"),
            *("note_fact_recall_40", "note_has_answer_40", "note_whole_facts_40"),
        }
        # init_note, refine_query, accumulate_knowledge, decide, answer; two searches.
        assert (record["calls"], record["retrievals"]) == (5, 2)
        assert record["prompt_tokens"] > record["completion_tokens"] > 0


def test_metrics_are_the_means_of_the_predictions_with_their_intervals(run):
    folder = run(concurrency=3)
    metrics = json.loads((folder / "metrics.json").read_text())
    left_out = {"estimate", "judged", "controls", "unknown_marks"}
    expected = ["schema", *(field.name for field in fields(Metrics) if field.name not in left_out)]
    assert list(metrics) == expected
    predictions = list(read_predictions(folder / "predictions.jsonl").values())
    assert (metrics["questions"], metrics["errors"]) == (QUESTIONS, 0)
    for metric, interval in metrics["metrics"].items():
        assert interval["mean"] == pytest.approx(mean(prediction.scores[metric] for prediction in predictions))
        assert interval["low"] <= interval["mean"] <= interval["high"]
    for cost in COSTS:
        assert metrics["per_question"][cost] == pytest.approx(mean(prediction.cost(cost) for prediction in predictions))
    assert metrics["metrics"]["em"]["mean"] == 0.5
    told = {key: metrics[key] for key in ("name", "dataset", "method", "model", "family")}
    assert told == {"name": "run", "dataset": "jsonl", "method": "deepnote", "model": "fake", "family": "own"}


@pytest.mark.parametrize(("method", "calls", "retrievals"), [("direct", 1, 0), ("vanilla", 1, 1)])
def test_methods_without_a_note_are_scored_by_their_answers_alone(run, method, calls, retrievals):
    changes = {"method": method, "method_options": {}} | ({"index": None} if method == "direct" else {})
    for prediction in read_predictions(run(**changes) / "predictions.jsonl").values():
        assert prediction.scores.keys() - {"supporting_recall"} == {"em", "f1"}
        assert (prediction.calls, prediction.retrievals) == (calls, retrievals)


def test_several_indexes_are_searched_as_one(run, world, tmp_path):
    (tmp_path / "other.jsonl").write_text(json.dumps({"id": "p1", "title": "Mira", "text": "Who was born where?"}))
    index.main(["--path", str(tmp_path / "other.jsonl"), "--index", str(tmp_path / "other")])
    folder = run(index=[world["index"], str(tmp_path / "other")], method="vanilla", method_options={"top_k": 50})
    found = [
        passage["id"] for _, trace in jsonl.read(folder / "traces.jsonl") for passage in trace["steps"][0]["passages"]
    ]
    assert {"2:p1"} == {id for id in found if id.startswith("2:")}
    assert len(set(found)) > 2


def test_a_run_can_be_compared_and_reported(run, tmp_path):
    before, after = run("before", method="direct", method_options={}), run("after")
    assert compare([Run(before)], [Run(after)])["f1"].questions == QUESTIONS
    write_report([before, after], tmp_path / "report.html")
    assert "before" in (tmp_path / "report.html").read_text()


def test_a_run_that_goes_on_ends_with_the_files_of_one_that_was_not_stopped(run, endpoint):
    whole = run("whole", name="run")
    names = ("metrics.json", "predictions.jsonl")
    stopped = run("stopped", name="run")
    # As a kill leaves it: some lines, the last one cut.
    journal = stopped / "traces.jsonl"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:3])[:-40])
    for name in names:
        (stopped / name).unlink()
    asked = len(endpoint.requests)
    run("stopped", name="run", concurrency=1)
    for name in names:
        assert (stopped / name).read_bytes() == (whole / name).read_bytes()
    # Every reply was in the cache.
    assert len(endpoint.requests) == asked


def test_a_notebook_evaluates_as_the_command_does(run, world, endpoint, tmp_path):
    by_command = run("run", name="same")
    metrics = evaluating.evaluate(
        **world,
        output_dir=tmp_path / "called",
        cache=tmp_path / "called.sqlite",
        base_url=endpoint.base_url,
        model=endpoint.model,
        method_options={"max_step": 1, "max_failure": 1},
        name="same",
    )
    assert metrics == read_metrics(by_command / "metrics.json")
    for name in ("metrics.json", "predictions.jsonl"):
        assert (tmp_path / "called" / name).read_bytes() == (by_command / name).read_bytes()
    with pytest.raises(UserError, match="unknown option 'methd'; did you mean 'method'"):
        evaluating.evaluate(methd="react")
    with pytest.raises(UserError, match="dataset is missing"):
        evaluating.evaluate(method="react")
    with pytest.raises(UserError, match="limit must be"):
        evaluating.evaluate(**world, output_dir=tmp_path / "called", limit="3")


def test_the_model_of_a_run_is_that_of_the_policy_wherever_it_is_named(run, endpoint):
    folder = run(base_url=None, model=None, models={"policy": {"base_url": endpoint.base_url, "model": "fake"}})
    assert read_metrics(folder / "metrics.json").model == "fake"


def test_a_finished_run_needs_no_endpoint(run):
    with fake_endpoint() as gone:
        folder = run(base_url=gone.base_url)
    before = (folder / "metrics.json").read_bytes()
    run(base_url=gone.base_url)
    assert (folder / "metrics.json").read_bytes() == before


def test_a_run_without_a_model_leaves_no_folder_that_would_refuse_the_next(run, endpoint):
    with pytest.raises(UserError, match="no model; give --serve PATH"):
        run(base_url=None, model=None)
    assert read_metrics(run() / "metrics.json").errors == 0


def test_a_refused_question_counts_as_an_error_and_scores_nothing(run, caplog):
    # The first question's first call passes, so that it has a note, and its second is refused.
    with fake_endpoint(faults=[None, "400"]) as refusing:
        folder = run(base_url=refusing.base_url, concurrency=1)
    (told,) = [record.message for record in caplog.records if "ended in an error" in record.message]
    assert told.startswith(f"1 of {QUESTIONS} questions ended in an error, 1 in this one: This model's maximum context")
    assert told.endswith("To repeat them, run the same command with --retry_errors")
    metrics = read_metrics(folder / "metrics.json")
    assert (metrics.questions, metrics.errors) == (QUESTIONS, 1)
    first = next(iter(read_predictions(folder / "predictions.jsonl").values()))
    assert first.error.startswith("This model's maximum context length is 4096 tokens.")
    assert (first.prediction, first.calls) == ("", 1)
    assert first.note and set(first.scores.values()) == {0}


def test_an_error_of_a_method_of_ones_own_ends_the_run_in_a_line_and_keeps_the_finished_questions(run, world, tmp_path):
    third = [record["question"] for _, record in jsonl.read(world["path"])][2]
    file = tmp_path / "mine.py"
    file.write_text(
        "from notewriter import Method, Stage\n"
        "async def mine(question, rollout):\n"
        f"    if question != {third!r}: return 'Mira'\n"
        "    return [][0]\n"
        "METHOD = Method(mine, ())\n"
    )
    with pytest.raises(
        UserError, match=r"question train-q\d+: method mine ended in IndexError: .* \(mine\.py:4\); corr"
    ):
        run(method=f"{file}:METHOD", method_options={}, concurrency=1, index=None)
    assert [record["answer"] for _, record in jsonl.read(tmp_path / "run/traces.jsonl")] == ["Mira"] * 2


def test_questions_that_ended_in_an_error_are_asked_again_on_request_and_no_other_call_is_made(run):
    with fake_endpoint() as undisturbed:
        expected = read_metrics(run("undisturbed", base_url=undisturbed.base_url, concurrency=1) / "metrics.json")
    with fake_endpoint(faults=[None, "400"]) as refusing:
        folder = run(base_url=refusing.base_url, concurrency=1)
        run(base_url=refusing.base_url, concurrency=1)
        assert read_metrics(folder / "metrics.json").errors == 1
        run(base_url=refusing.base_url, concurrency=1, retry_errors=True)
    metrics = read_metrics(folder / "metrics.json")
    assert (metrics.errors, metrics.metrics) == (0, expected.metrics)
    assert metrics.config_hash == expected.config_hash
    # The refused call alone was made twice.
    assert len(refusing.requests) == len(undisturbed.requests) + 1


def test_a_run_whose_errors_are_being_asked_again_is_not_finished(run, monkeypatch):
    def interrupted(*_, **__):
        raise KeyboardInterrupt

    with fake_endpoint(faults=[None, "400"]) as refusing:
        folder = run(base_url=refusing.base_url, concurrency=1)
        with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
            patched.setattr(evaluating, "run_questions", interrupted)
            run(base_url=refusing.base_url, concurrency=1, retry_errors=True)
        assert not (folder / "metrics.json").exists()
        run(base_url=refusing.base_url, concurrency=1)
    assert read_metrics(folder / "metrics.json").errors == 0


def test_answers_that_were_judged_are_not_replaced_behind_the_judges_back(run):
    with fake_endpoint(faults=[None, "400"]) as refusing:
        folder = run(base_url=refusing.base_url, concurrency=1)
        (folder / "judged").mkdir()
        asked = len(refusing.requests)
        with pytest.raises(UserError, match=r"judged: has judgements of answers that --retry_errors would replace"):
            run(base_url=refusing.base_url, concurrency=1, retry_errors=True)
    assert len(refusing.requests) == asked
    assert read_metrics(folder / "metrics.json").errors == 1


def test_a_note_is_measured_wherever_a_method_keeps_one_and_nowhere_else(run):
    # The very first call is refused: the question has an empty note, which counts as such.
    with fake_endpoint(faults=["400"]) as refusing:
        folder = run("refused", base_url=refusing.base_url, concurrency=1)
    first = next(iter(read_predictions(folder / "predictions.jsonl").values()))
    assert first.error and first.note == ""
    assert first.scores.keys() >= {"note_words", "note_has_answer"} and set(first.scores.values()) == {0}
    without = read_metrics(run("without", method="vanilla", method_options={}) / "metrics.json")
    assert without.metrics.keys() == {"em", "f1", "supporting_recall"}
    for note, measured in ((None, False), ("", True), ("Tolen", True)):
        trace = Trace("q", "any", note=note)
        scores = prediction_of(Question("q", "Where?", ("Tolen",)), trace, "hotpotqa").scores
        assert ("note_words" in scores) is measured


@pytest.mark.parametrize("error", ["", "the prompt is too long"])
def test_an_error_never_agrees_with_a_gold_answer_that_normalises_to_nothing(error):
    trace = Trace("q", "direct", error=error)
    scores = prediction_of(Question("q", "Which letter?", ("A",)), trace, "musique").scores
    assert scores == ({"em": 0, "f1": 0} if error else {"em": 1, "f1": 1})


@pytest.mark.parametrize("method", METHODS)
def test_every_method_runs_through_the_command(run, method):
    folder = run(method=method, method_options={}, limit=2)
    traces = [trace for _, trace in jsonl.read(folder / "traces.jsonl")]
    assert [(trace["method"], trace["error"]) for trace in traces] == [(method, "")] * 2
    assert all(trace["answer"] and trace["steps"] for trace in traces)
    assert read_metrics(folder / "metrics.json").per_question["calls"] >= 1


@pytest.mark.parametrize("method", ["ircot", "flare"])
def test_notes_are_an_option_of_methods_that_retrieve_step_by_step(run, method):
    folder = run(method=method, method_options={"notes": True, "max_step": 2}, limit=1)
    ((_, trace),) = jsonl.read(folder / "traces.jsonl")
    stages = {step["stage"].split("/")[1] for step in trace["steps"] if step["kind"] == "generate"}
    assert "step" in stages and trace["note"] is not None
    assert "note_words" in read_metrics(folder / "metrics.json").metrics


def test_the_family_decides_which_scores_there_are(run):
    folder = run(family="deepnote", method="direct", method_options={})
    assert read_metrics(folder / "metrics.json").metrics.keys() == {"acc", "em", "f1"}


def test_costs_are_told_by_stage_and_role_and_in_money(run):
    folder = run(method="vanilla", method_options={}, prices={"answer": [2, 4]})
    costs = json.loads((folder / "costs.json").read_text())
    (stage,) = costs["stages"].values()
    assert list(costs["stages"]) == ["vanilla/answer (answer)"]
    assert stage["calls"] == QUESTIONS
    assert costs["money"] == pytest.approx((2 * stage["prompt_tokens"] + 4 * stage["completion_tokens"]) / 1e6)
    assert costs["compression"] > 0


def test_a_benchmark_brings_its_metrics_and_its_style_of_answer(run, endpoint, tmp_path):
    path = tmp_path / "strategyqa.json"
    path.write_text(json.dumps([{"qid": "s1", "question": "Would it fit?", "answer": False, "evidence": []}]))
    folder = run(dataset="strategyqa", path=str(path), method="direct", method_options={})
    metrics = read_metrics(folder / "metrics.json")
    assert (metrics.family, list(metrics.metrics)) == ("strategyqa", ["acc"])
    assert "yes or no" in endpoint.requests[-1]["messages"][0]["content"]


def test_limit_draws_the_same_questions_for_a_seed(run):
    folders = [run(f"{seed}{again}", limit=3, seed=seed) for seed in (1, 2) for again in "ab"]
    drawn = [list(read_predictions(folder / "predictions.jsonl")) for folder in folders]
    assert drawn[0] == drawn[1] and drawn[2] == drawn[3] and drawn[0] != drawn[2]
    assert all(len(ids) == 3 for ids in drawn)


def test_a_folder_with_other_settings_is_refused(run):
    run()
    with pytest.raises(UserError, match=r"contains a run with temperature: 0\.1, not 0\.7; choose another output_dir"):
        run(temperature=0.7)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"index": None}, "method deepnote retrieves; add --index PATH"),
        ({"method": "dreamnote"}, "unknown method 'dreamnote'; choose one of: "),
        ({"prices": {"answer": 3}}, "prices: answer: 3 is not"),
        ({"family": "bleu"}, "unknown metric family 'bleu'"),
        ({"method_options": {"steps": 1}}, "has no option 'steps'"),
        ({"method_options": {"top_k": "5"}}, "top_k must be int, not '5'"),
        ({"dataset": "squad"}, "unknown dataset 'squad'"),
        ({"path": "nowhere.jsonl"}, "nowhere.jsonl: cannot be read"),
        ({"limit": 0}, "limit"),
        ({"methd": "direct"}, "unknown key 'methd'; did you mean 'method'"),
    ],
)
def test_a_mistake_in_the_configuration_is_found_before_any_model_is_asked(run, endpoint, tmp_path, changes, message):
    asked = len(endpoint.requests)
    with pytest.raises(UserError, match=message):
        run(**changes)
    assert len(endpoint.requests) == asked
    assert not (tmp_path / "run").exists()


def test_an_evaluation_without_an_answer_is_an_error_and_no_table_of_zeros(run, tmp_path, capsys):
    with (
        fake_endpoint(faults=["400"] * QUESTIONS) as refusing,
        pytest.raises(UserError, match=rf"all {QUESTIONS} questions ended in an error.*maximum context length"),
    ):
        run(method="direct", method_options={}, index=None, base_url=refusing.base_url)
    assert "em" not in capsys.readouterr().out
    assert not (tmp_path / "run" / "metrics.json").exists()


def test_a_model_of_today_is_evaluated_and_the_run_tells_what_it_was_not_sent(run):
    parameters = {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None, "stop": None}
    with fake_endpoint(refuses=as_gpt5) as endpoint:
        policy = {"base_url": endpoint.base_url, "model": endpoint.model, "parameters": parameters}
        models = {"base_url": None, "model": None, "models": {"policy": policy}}
        folder = run(method="direct", method_options={}, index=None, **models)
    assert read_metrics(folder / "metrics.json").errors == 0
    # Tried out, and the questions.
    assert len(endpoint.requests) == 1 + QUESTIONS
    (start,) = json.loads((folder / "run.json").read_text())["starts"]
    assert start["parameters"] == {"policy": parameters}


def test_pages_beyond_the_note_takers_context_are_read_in_parts_and_told(tmp_path, caplog, capsys):
    """Of a page nothing is cut off: it is read in parts that fit, and what cannot be read however short is told."""
    words = [f"word{number}" for number in range(20_000)]
    pages = [
        {
            "id": "long",
            "title": "Osk",
            "text": "\n".join(" ".join(words[at : at + 100]) for at in range(0, 20_000, 100)),
        },
        {"id": "short", "title": "Osk bridge", "text": "A short page."},
        {"id": "torn", "title": "Osk mill", "text": "x" * 50_000},
    ]
    jsonl.write(tmp_path / "corpus.jsonl", pages)
    jsonl.write(tmp_path / "questions.jsonl", [{"id": "q", "question": "What is the Osk?", "answers": ["word19999"]}])
    index.main(["--path", str(tmp_path / "corpus.jsonl"), "--index", str(tmp_path / "index")])
    read = []

    def refuses(request):
        content = request["messages"][0]["content"]
        return FAULTS["400"] if len(content) > 30_000 else None

    def reply(request):
        content = request["messages"][0]["content"]
        if "YES#" not in content:
            return "Action: finish[it]" if len(request["messages"]) > 1 else "Action: search[Osk; What is the Osk?]"
        read.extend(re.findall(r"word\d+", content))
        return "YES#word19999" if "word19999" in content else "NO#"

    world = {"path": str(tmp_path / "questions.jsonl"), "index": str(tmp_path / "index"), "dataset": "jsonl"}
    with fake_endpoint(reply, refuses=refuses) as endpoint, caplog.at_level("INFO"):
        evaluate.main(run_config(tmp_path, "run", world, endpoint, {"method": "renact"}))
    assert sorted(read) == sorted(words)
    costs = json.loads((tmp_path / "run" / "costs.json").read_text())
    assert costs["counts"] == {"split_pages": 1, "skipped_page_parts": 1, "steps": 2}
    assert read_predictions(tmp_path / "run" / "predictions.jsonl")["q"].note == "Osk - word19999"
    assert "pages beyond the note-taker's context, which were read in parts: 1\n" in caplog.text
    assert "parts of pages without a note, since they were refused at any length: 1;" in caplog.text
