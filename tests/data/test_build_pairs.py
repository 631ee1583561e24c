import json
import re
from collections import Counter
from dataclasses import replace

import pyarrow.parquet
import pytest
from datasets import load_dataset
from fake_endpoint import as_gpt5, default_reply, error, fake_endpoint
from tiny_world import run_config, stats, tiny_world

from notewriter.artifacts.pairs import COLUMNS
from notewriter.data import build_pairs
from notewriter.data.judges import JUDGES
from notewriter.data.judges.tie_breaking import NO_REASON
from notewriter.datasets import BENCHMARKS
from notewriter.ground import jsonl, plugins
from notewriter.ground.errors import UserError
from notewriter.methods import METHODS

STAGES = {
    "deepnote/init_note": "reference",
    "deepnote/refine_query": "retrieval",
    "deepnote/accumulate_knowledge": "decision",
    "deepnote/decide": "status",
    "vanilla/answer": "metric",
}
QUESTIONS = 6


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), QUESTIONS)


@pytest.fixture(scope="module")
def endpoint():
    with fake_endpoint() as running:
        yield running


@pytest.fixture
def build(world, endpoint, tmp_path):
    """Build pairs in the folder `name` with changes to a small configuration; returns the folder."""

    def run(name="pairs", **changes):
        settings = {
            "stages": STAGES,
            "gold_stages": ["deepnote/init_note", "deepnote/decide", "vanilla/answer"],
            "method_options": {"deepnote": {"max_step": 1, "max_failure": 1}},
            "temperatures": [0.1, 0.9],
            "top_ps": [0.5, 0.9],
            "dev_share": 0.3,
        }
        build_pairs.main(run_config(tmp_path, name, world, endpoint, settings | changes))
        return tmp_path / name

    return run


def rows(folder, split="train"):
    return pyarrow.parquet.read_table(folder / f"{split}.parquet").to_pylist()


def test_the_folder_loads_with_datasets_by_its_name_alone(build, tmp_path):
    folder = build()
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "huggingface"))
    assert set(loaded) == {"train", "dev"}
    for split in loaded:
        assert loaded[split].column_names == COLUMNS.names
        assert loaded[split].num_rows == stats(folder)["pairs"][split] > 0


def test_answers_are_asked_for_in_the_style_of_the_benchmark_as_in_evaluation(build, monkeypatch):
    yes_no = replace(BENCHMARKS["jsonl"], answer_style="yes_no")
    monkeypatch.setitem(BENCHMARKS, "jsonl", yes_no)
    changes = {"stages": {"vanilla/answer": "metric"}, "gold_stages": ["vanilla/answer"], "method_options": {}}
    made = rows(build("yes_no", **changes))
    assert made and all("yes or no" in row["prompt"][0]["content"].lower() for row in made)
    styled = {"vanilla": {"answer_style": "short"}}
    assert not any(
        "yes or no" in row["prompt"][0]["content"].lower()
        for row in rows(build("short", **changes | {"method_options": styled}))
    )


def test_a_stage_asks_for_its_budget_of_words_as_in_evaluation(build):
    asked = {row["stage"]: row["prompt"][0]["content"] for row in rows(build(words={"deepnote/init_note": 40}))}
    assert {stage for stage, text in asked.items() if text.endswith("Write at most 40 words.")} == {
        "deepnote/init_note"
    }


def test_a_pair_is_two_different_replies_to_one_prompt(build):
    for row in rows(build()):
        assert [message["role"] for message in row["prompt"]] == ["user"]
        for side in ("chosen", "rejected"):
            ((role, content),) = [(message["role"], message["content"]) for message in row[side]]
            assert role == "assistant" and content
        assert row["chosen"] != row["rejected"]
        assert row["judge"] == STAGES[row["stage"]] and row["stage"].startswith(row["method"])
        assert row["dataset"] == "jsonl"


def test_several_continuations_need_a_temperature(build):
    with pytest.raises(
        UserError, match="continuations: 4 continuations are all the same at temperature 0; give --temperature"
    ):
        build(stages={"deepnote/init_note": "outcome"}, gold_stages=[], continuations=4, temperature=0.0)


def test_gain_needs_an_answerer_of_its_own_and_works_with_one(build, endpoint, tmp_path):
    stages = {"deepnote/init_note": "gain"}
    with pytest.raises(UserError, match="gain needs a model for the role answer that stays the same"):
        build(stages=stages, gold_stages=[])
    answerer = {"answer": {"base_url": endpoint.base_url, "model": endpoint.model}}
    # A model of random words gains nothing.
    with pytest.raises(UserError, match="no candidate better than nothing"):
        build(stages=stages, gold_stages=[], models=answerer)
    told = stats(tmp_path / "pairs")
    yielded = told["stages"]["deepnote/init_note"]
    assert yielded["pairs"] + sum(yielded["dropped"].values()) == QUESTIONS
    # Notes, and for each question an answer from the passages.
    assert told["tokens"]["vanilla/answer"]["answer"]["calls"] > QUESTIONS


def test_an_edited_judge_is_another_run_whose_folder_without_a_pair_has_no_empty_file(build, tmp_path):
    judge = tmp_path / "mine.py"
    begin = "from notewriter.data.judges.case import Verdict, judge\n@judge()\nasync def mine(case): return "
    stages = {"deepnote/init_note": f"{judge}:mine"}
    judge.write_text(f"{begin}Verdict(0, 1)\n")
    assert rows(build(stages=stages, gold_stages=[]))
    judge.write_text(f"{begin}Verdict()\n")
    with pytest.raises(UserError, match=rf"contains a run with other contents of judge: {judge}:mine"):
        build(stages=stages, gold_stages=[])
    plugins._LOADED.pop(f"{judge}:mine")
    JUDGES.pop(f"{judge}:mine")
    with pytest.raises(UserError, match=f"the commonest reason, {QUESTIONS} times: {NO_REASON}"):
        build("again", stages=stages, gold_stages=[])
    assert (tmp_path / "again/README.md").exists() and not (tmp_path / "again/train.parquet").exists()


@pytest.fixture
def load_method(tmp_path):
    """Have a file with the method `mine`, which returns what an expression makes of its note."""
    place = f"{tmp_path / 'mine.py'}:METHOD"

    def load(expression):
        plugins._LOADED.pop(place, None)
        METHODS.pop("mine", None)
        (tmp_path / "note.jinja").write_text("Answer: {{ question }}")
        (tmp_path / "mine.py").write_text(
            "from notewriter import Method, Stage\nNOTE = Stage('mine/note', 'notes', 'note')\n"
            "async def mine(question, rollout):\n  note = await rollout.generate(NOTE, question=question)\n"
            f"  return {expression}\nMETHOD = Method(mine, (NOTE,))\n"
        )
        plugins.load(place)

    return load


def test_stages_of_a_method_in_a_file_are_trained_and_its_faults_and_edits_are_told(build, load_method):
    settings = {"stages": {"mine/note": "chance"}, "gold_stages": [], "method_options": {}}
    load_method("note[: 0 / 1]")
    with pytest.raises(UserError, match=r"method mine after mine/note ended in TypeError: .* \(mine\.py:5\); correct"):
        build(**settings)
    load_method("note")
    with pytest.raises(UserError, match="contains a run with other contents of method: mine, which have changed"):
        build(**settings)
    assert {row["stage"] for row in rows(build("again", **settings))} == {"mine/note"}


def test_no_question_is_on_both_sides_of_the_split(build, world):
    folder = build()
    train, dev = ({row["question_id"] for row in rows(folder, split)} for split in ("train", "dev"))
    assert train and dev and not train & dev
    assert train | dev <= {record["id"] for _, record in jsonl.read(world["path"])}
    # Two of six questions are 0.3 of them, rounded.
    assert len(dev) <= 2


def test_without_dev_questions_there_is_no_dev_file_and_the_folder_loads_all_the_same(build, tmp_path):
    folder = build(dev_share=0.0)
    assert not (folder / "dev.parquet").exists()
    loaded = load_dataset(str(folder), cache_dir=str(tmp_path / "huggingface"))
    assert set(loaded) == {"train"}
    assert loaded["train"].num_rows == stats(folder)["pairs"]["train"]


def test_every_stage_of_every_question_is_a_pair_or_dropped_for_a_reason(build, capsys):
    folder = build()
    told = stats(folder)
    assert told["questions"] == QUESTIONS
    for count in told["stages"].values():
        # One step a question, so each stage is reached once.
        assert count["pairs"] + sum(count["dropped"].values()) == QUESTIONS
    # The fake judge writes no decision.
    assert told["stages"]["deepnote/accumulate_knowledge"] == {
        "pairs": 0,
        "dropped": {"judge reply not readable": QUESTIONS},
    }
    by_stage = Counter(row["stage"] for split in ("train", "dev") for row in rows(folder, split))
    assert by_stage == {stage: count["pairs"] for stage, count in told["stages"].items() if count["pairs"]}
    assert sum(told["pairs"].values()) == by_stage.total()
    assert told["unreadable_judge_replies"].keys() == {"deepnote/accumulate_knowledge"}
    out = capsys.readouterr().out
    assert f"{QUESTIONS} judge reply not readable" in out
    assert re.search(r"accumulate_knowledge.*\n    \d+ judge replies could not be parsed", out)


def test_a_stage_that_no_question_reached_is_reported(build, capsys):
    # After the last round nothing is planned.
    stages = {"resp/global_evidence": "reference", "resp/plan": "retrieval"}
    build(stages=stages, gold_stages=[], method_options={"resp": {"max_step": 1}}, quotas={})
    assert "  resp/plan: 0 pairs; stage not reached\n" in capsys.readouterr().out


def test_agreement_of_a_judge_with_itself_is_reported_and_its_replies_are_kept_in_the_row(build, capsys):
    def reply(request):
        prompt = request["messages"][0]["content"]
        if '<candidate id="1">' not in prompt:
            return default_reply(request)
        # Prefers the longest text in any position; without the schema in the request it only chats.
        shown = re.findall(r'<candidate id="(\d+)">\n(.*?)\n</candidate>', prompt, re.DOTALL)
        longest, shortest = (pick(shown, key=lambda each: (len(each[1]), each[1]))[0] for pick in (max, min))
        ids = request["response_format"]["json_schema"]["schema"]["properties"]["best_id"]["enum"]
        assert ids == list(range(1, len(shown) + 1))
        return f'{{"best_id": {longest}, "worst_id": {shortest}}}'

    with fake_endpoint(reply) as endpoint:
        folder = build(stages={"deepnote/init_note": "llm"}, gold_stages=[], base_url=endpoint.base_url, dev_share=0.0)
    assert stats(folder)["agreement"] == {"deepnote/init_note": {"asked": 6, "agreed": 6, "rate": 1.0}}
    assert "agreed with itself in 6 of 6 cases" in capsys.readouterr().out
    for row in rows(folder):
        (there, back), replies = row["judge_orders"], [json.loads(reply) for reply in row["judge_replies"]]
        assert there == back[::-1] and there[replies[0]["best_id"] - 1] == back[replies[1]["best_id"] - 1]


def test_any_stage_of_any_method_gives_pairs_by_naming_it(build, world):
    answers = {record["question"]: record["answers"][0] for _, record in jsonl.read(world["path"])}

    def reply(request):
        prompt = request["messages"][0]["content"]
        gold = next(answer for question, answer in answers.items() if question in prompt)
        if request["max_tokens"] == 99:
            return f"It is known: {gold}" if request["temperature"] == 0.9 else "Nothing is known."
        return gold if f"It is known: {gold}" in prompt else "Nobody"

    with fake_endpoint(reply) as endpoint:
        folder = build(
            stages={"resp/global_evidence": "outcome"},
            gold_stages=[],
            method_options={"resp": {"max_step": 1}},
            stage_sampling={"resp/global_evidence": {"max_tokens": 99}},
            base_url=endpoint.base_url,
            dev_share=0.0,
        )
    assert len(rows(folder)) == QUESTIONS
    for row in rows(folder):
        assert row["chosen"][0]["content"].startswith("It is known") and row["rejected_score"] == 0
    # Two answers to every question, of which one is the method's own.
    assert stats(folder)["tokens"]["resp/answer"]["answer"]["calls"] == 2 * QUESTIONS


def test_gold_candidates_occur_only_at_the_gold_stages(build):
    kinds = {stage: set() for stage in STAGES}
    for row in rows(build()):
        kinds[row["stage"]] |= {row["chosen_source"]["kind"], row["rejected_source"]["kind"]}
    assert "gold" in kinds["deepnote/decide"] and "gold" in kinds["vanilla/answer"]
    assert kinds["deepnote/refine_query"] <= {"model"}


def test_top_k_varies_within_its_range_and_is_the_same_for_a_question_in_every_run(build):
    def top_ks(folder):
        return {
            record["question_id"]: {
                step["top_k"] for trace in record["traces"] for step in trace["steps"] if step["kind"] == "retrieve"
            }
            for _, record in jsonl.read(folder / "rollouts.jsonl")
        }

    first, second = top_ks(build("a", top_k_range=[2, 4])), top_ks(build("b", top_k_range=[2, 4], concurrency=1))
    assert first == second
    assert all(len(drawn) == 1 for drawn in first.values())
    values = set.union(*first.values())
    assert len(values) > 1 and values <= {2, 3, 4}
    assert set.union(*top_ks(build("c", top_k_range=[5, 5])).values()) == {5}


def test_two_runs_give_the_same_bytes_at_any_concurrency(build):
    first, second = build("a", concurrency=1), build("b", concurrency=6)
    for name in ("train.parquet", "dev.parquet", "stats.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert rows(build("c", seed=1)) != rows(first)


def test_a_finished_run_asks_nothing_and_a_lost_file_is_written_again(build, endpoint):
    folder = build()
    before = (folder / "train.parquet").read_bytes()
    (folder / "train.parquet").unlink()
    asked = len(endpoint.requests)
    build(concurrency=2)
    assert len(endpoint.requests) == asked
    assert (folder / "train.parquet").read_bytes() == before


def test_a_run_without_a_limit_resumes_with_one_that_leaves_nothing_out_and_vice_versa(build, endpoint):
    build()
    asked = len(endpoint.requests)
    build(limit=QUESTIONS)
    build(limit=15000)
    build()
    assert len(endpoint.requests) == asked
    with pytest.raises(UserError, match=f"contains a run with limit: None, not {QUESTIONS - 1}"):
        build(limit=QUESTIONS - 1)


def test_a_run_that_lost_its_folder_finds_every_reply_in_the_cache(build, endpoint, tmp_path):
    first = build("a")
    asked = len(endpoint.requests)
    second = build("b", cache=str(tmp_path / "a.sqlite"))
    assert len(endpoint.requests) == asked
    assert (second / "train.parquet").read_bytes() == (first / "train.parquet").read_bytes()


def test_the_question_of_a_partial_line_is_rolled_out_again(build):
    folder = build()
    before = (folder / "train.parquet").read_bytes()
    journal = folder / "rollouts.jsonl"
    journal.write_bytes(journal.read_bytes()[:-100])
    build()
    assert (folder / "train.parquet").read_bytes() == before


def test_a_prompt_beyond_the_context_is_a_counted_reason_and_the_others_continue(build):
    with fake_endpoint(faults=["400"]) as refusing:
        folder = build(base_url=refusing.base_url, concurrency=1)
        told = stats(folder)
        journal = [record for _, record in jsonl.read(folder / "rollouts.jsonl")]
        build(base_url=refusing.base_url, retry_errors=True)
    assert told["stages"]["deepnote/*"] == {"pairs": 0, "dropped": {"the endpoint refused the request": 1}}
    reached = told["stages"]["deepnote/init_note"]
    assert reached["pairs"] + sum(reached["dropped"].values()) == QUESTIONS - 1
    # Another method continues with the same question, and the trace has the endpoint's message.
    answers = told["stages"]["vanilla/answer"]
    assert answers["pairs"] + sum(answers["dropped"].values()) == QUESTIONS
    errors = [trace["error"] for record in journal for trace in record["traces"]]
    assert sorted(error[:33] for error in errors if error) == ["This model's maximum context leng"]
    # On request it is asked again, and nothing else.
    assert "deepnote/*" not in stats(folder)["stages"]
    again = [record for _, record in jsonl.read(folder / "rollouts.jsonl")]
    assert again[:-1] == journal[1:]
    assert again[-1]["question_id"] == journal[0]["question_id"]


def test_a_folder_with_other_settings_is_refused(build):
    build()
    with pytest.raises(UserError, match=r"contains a run with min_gap: 0\.0, not 0\.5; choose another output_dir"):
        build(min_gap=0.5)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"stages": {}}, "stages: is empty; give stage -> judge"),
        ({"stages": {"deepnote/init_note": "oracle"}}, "unknown judge for deepnote/init_note 'oracle'; choose one of"),
        ({"stages": {"deepnote/first_note": "llm"}}, "no stage 'deepnote/first_note'"),
        (
            {"stages": {"deepnote/init_note": "decision"}},
            "decision judges candidates of kind updated note, and deepnote/init_note gives a note; "
            "its judges are: chance, llm, outcome, gain, reference",
        ),
        ({"stages": {"deepnote/init_note": ["outcome", "metric"]}}, "metric judges candidates of kind answer"),
        ({"stages": {"rearag/step": "reference"}}, "rearag/step gives a step; its judges are: chance, llm, outcome"),
        ({"stages": {"search_r1/reason": "llm"}}, "search_r1/reason: continues a text and has no reply of its own"),
        ({"stages": {"replug/answer": "metric"}}, "stages: replug/answer: is read through its log-probabilities"),
        ({"stages": {"corag/penalty": "outcome"}}, "stages: corag/penalty: is read through its log-probabilities"),
        ({"stages": {"deepnote/init_note": []}}, "names no judge"),
        ({"judge_orders": 3}, "judge_orders: 3 is too large; give at least 1 and at most 2"),
        ({"top_k_range": [4]}, "top_k_range"),
        ({"top_k_range": [5, 4]}, "top_k_range"),
        ({"top_k_range": [0, 4]}, "top_k_range"),
        ({"dev_share": 1.0}, r"dev_share: 1.0 is too large; give at least 0 and below 1"),
        ({"temperatures": []}, r"0 sampling\(s\) leave deepnote/init_note without two candidates"),
        ({"temperatures": [0.1], "top_ps": [0.9]}, r"1 sampling\(s\) leave deepnote/refine_query"),
        ({"temperatures": [0.1, -1.0]}, "temperatures x top_ps: temperature: -1.0 is too small; give at least 0"),
        ({"top_ps": [0.0, 0.9]}, "temperatures x top_ps: top_p: 0.0 is too small; give above 0 and at most 1"),
        ({"quotas": {"deepnote/init_note": True}}, "quotas: deepnote/init_note must be int, not True"),
        ({"family": "bleu"}, "unknown metric family 'bleu'"),
        ({"method_options": {"deepnote": {"steps": 1}}}, "method deepnote has no option 'steps'"),
        ({"method_options": {"deepnote": {"max_step": 0}}}, "option max_step: 0"),
        ({"method_options": {"direct": {}}}, "'direct' is not the method of any stage in stages; leave it out"),
        (
            {"gold_stages": ["deepnote/answer"]},
            "gold_stages: 'deepnote/answer' is not among the stages; add it to stages",
        ),
        ({"limit": 0}, "limit"),
        ({"index": None}, "method deepnote retrieves; add --index PATH"),
        ({"eval_files": {"dev.json": "squad"}}, "unknown dataset of dev.json in eval_files 'squad'"),
        ({"eval_files": {"dev.json": 3}}, "eval_files: dev.json must be str, not 3"),
        ({"stagess": {}}, "unknown key 'stagess'; did you mean 'stages'"),
    ],
)
def test_a_mistake_in_the_configuration_is_found_before_any_model_is_asked(build, endpoint, tmp_path, changes, message):
    asked = len(endpoint.requests)
    with pytest.raises(UserError, match=message):
        build(**changes)
    assert len(endpoint.requests) == asked
    assert not (tmp_path / "pairs").exists()


def test_a_quota_keeps_the_pairs_of_the_first_questions(build):
    everything = [row for row in rows(build("all", dev_share=0.0)) if row["stage"] == "deepnote/decide"]
    folder = build("few", dev_share=0.0, quotas={"deepnote/decide": 2})

    assert [row for row in rows(folder) if row["stage"] == "deepnote/decide"] == everything[:2]
    assert stats(folder)["stages"]["deepnote/decide"]["dropped"]["beyond the quota"] == len(everything) - 2


def test_a_stage_that_has_its_quota_is_no_longer_sampled_and_when_all_have_theirs_the_run_ends(build):
    stages = {"deepnote/init_note": "reference", "vanilla/answer": "chance"}
    quotas = {"deepnote/init_note": 3, "vanilla/answer": 1}
    folder = build(stages=stages, gold_stages=["deepnote/init_note"], quotas=quotas, quota_block=1, dev_share=0.0)
    records = [record for _, record in jsonl.read(folder / "rollouts.jsonl")]
    # Every question has a pair at both stages; what one samples depends on those up to the one before the last.
    sampled = sorted([row["stage"] for row in record["rows"]] for record in records)
    assert sampled == [["deepnote/init_note"]] * 2 + [["deepnote/init_note", "vanilla/answer"]] * 2
    assert {trace["method"] for trace in records[-1]["traces"]} == {"deepnote"}
    told = stats(folder)
    assert {stage: count["pairs"] for stage, count in told["stages"].items()} == {
        "deepnote/init_note": 3,
        "vanilla/answer": 1,
    }
    assert (told["questions"], told["questions_rolled_out"]) == (QUESTIONS, 4)
    assert told["tokens"]["vanilla/answer"]["answer"]["calls"] == 2 * 4


@pytest.mark.parametrize("sampled", [True, False])
def test_a_stage_that_has_its_quota_is_still_sampled_for_the_stages_after_it(build, sampled):
    """DNAlign: later prompts continue from y+ of the note, also once D_Init is full (DeepNote, section 3.4)."""
    stages = {"deepnote/init_note": "reference", "deepnote/decide": "status"}
    quotas = {"quotas": {"deepnote/init_note": 1}, "quota_block": 1, "sample_full_stages": sampled}
    folder = build(stages=stages, gold_stages=list(stages), dev_share=0.0, **quotas)
    records = [record for _, record in jsonl.read(folder / "rollouts.jsonl")]
    notes = sum(row["stage"] == "deepnote/init_note" for record in records for row in record["rows"])
    assert notes == (QUESTIONS if sampled else 2)
    assert stats(folder)["stages"]["deepnote/init_note"]["pairs"] == 1


def test_quotas_are_of_training_pairs_and_dev_has_its_share_in_addition(build):
    stage = "deepnote/init_note"
    folder = build(stages={stage: "reference"}, gold_stages=[stage], dev_share=0.3, quotas={stage: 3}, quota_block=1)
    assert stats(folder)["pairs"] == {"train": 3, "dev": 1}


@pytest.mark.parametrize("concurrency", [1, 6])
def test_quotas_that_end_the_run_give_the_same_pairs_at_any_concurrency(build, endpoint, concurrency):
    stages = {stage: judge for stage, judge in STAGES.items() if stage != "deepnote/accumulate_knowledge"}
    quotas = {"quotas": dict.fromkeys(stages, 1), "quota_block": 1}
    changes = {"stages": stages, "dev_share": 0.0} | quotas
    first, second = build("a", concurrency=3, **changes), build("b", concurrency=concurrency, **changes)
    for name in ("train.parquet", "stats.json"):
        assert (first / name).read_bytes() == (second / name).read_bytes()
    assert stats(first)["questions_rolled_out"] < QUESTIONS
    asked = len(endpoint.requests)
    build("a", concurrency=3, **changes)
    assert len(endpoint.requests) == asked


@pytest.mark.parametrize("quotas", [{"deepnote/nothing": 3}, {"deepnote/decide": 0}, {"deepnote/decide": "many"}])
def test_a_quota_that_means_nothing_is_refused(build, quotas):
    with pytest.raises(UserError, match=r"quotas: .*(add it to stages|give at least 1|must be int)"):
        build("refused", quotas=quotas)


@pytest.mark.parametrize("bounds", [[4, 3], [3]])
def test_bounds_of_passages_that_are_none_are_refused_with_an_example(build, bounds):
    with pytest.raises(UserError, match=r"top_k_range: .* is not \[least, most\]; give two numbers, such as \[3, 9\]"):
        build("refused", top_k_range=bounds)


def test_questions_of_an_evaluation_file_are_not_rolled_out_and_said_to_be_left_out(build, world, tmp_path, capsys):
    questions = [record for _, record in jsonl.read(world["path"])]
    evaluation = tmp_path / "evaluation.jsonl"
    jsonl.write(evaluation, [questions[1] | {"id": "e1"}, questions[4] | {"id": "e4"}])

    folder = build(eval_files={str(evaluation): "jsonl"})

    rolled_out = {record["question_id"] for _, record in jsonl.read(folder / "rollouts.jsonl")}
    assert rolled_out == {record["id"] for record in questions} - {questions[1]["id"], questions[4]["id"]}
    assert stats(folder)["hygiene"] == {
        "questions_dropped": {"the question is in an evaluation file": 2},
        "evaluation_files": {
            str(evaluation): {"questions": 2, "training_questions_dropped": 2, "evaluation_questions_met": 2}
        },
    }
    dropped = [(drop["question_id"], drop["other_id"]) for _, drop in jsonl.read(folder / "dropped_questions.jsonl")]
    assert dropped == [(questions[1]["id"], "e1"), (questions[4]["id"], "e4")]
    assert "2 left out: the question is in an evaluation file" in capsys.readouterr().out
    assert (
        "Held against evaluation.jsonl (2 questions): 2 training questions left out."
        in (folder / "README.md").read_text()
    )


JUDGED = {"stages": {"vanilla/answer": "llm"}, "gold_stages": [], "method_options": {}, "judge_orders": 1}
"""Pairs that a model judges."""


def name_the_first(request):
    """A judge that prefers the first candidate to the last."""
    return '{"best_id": 1, "worst_id": 2}'


def test_a_judge_of_today_is_tried_out_before_the_run_and_makes_pairs(build, tmp_path):
    parameters = {"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None}
    with fake_endpoint(name_the_first, refuses=as_gpt5) as judge:
        role = {"base_url": judge.base_url, "model": judge.model, "parameters": parameters}
        folder = build(**JUDGED, models={"judge": role})
    assert sum(stats(folder)["pairs"].values()) > 0
    first, *others = (len(request["messages"][0]["content"]) < 40 for request in judge.requests)
    assert first and not any(others)
    (start,) = json.loads((folder / "run.json").read_text())["starts"]
    assert start["parameters"] == {"judge": parameters}


def test_a_judge_that_refuses_ends_the_run_and_is_asked_again_when_that_is_wanted(build, caplog):
    with fake_endpoint(name_the_first) as judge:
        # vLLM, as far as its list of models tells, so that it is not tried out.
        judge.refuses = lambda request: error(400, "no judging today")
        changes = {**JUDGED, "models": {"judge": {"base_url": judge.base_url, "model": judge.model}}}
        with pytest.raises(UserError, match=r"nothing was made.*no judging today"):
            build(**changes)
        assert any("no judging today" in record.message for record in caplog.records)
        judge.refuses = lambda request: None
        assert sum(stats(build(**changes, retry_errors=True))["pairs"].values()) > 0


def test_a_run_without_a_pair_is_an_error_that_gives_the_commonest_reason(build, tmp_path):
    with (
        fake_endpoint(lambda request: "always the same") as endpoint,
        pytest.raises(UserError, match="fewer than two distinct candidates"),
    ):
        build(**JUDGED, base_url=endpoint.base_url)
    # A stage of a pipeline is finished where stats.json is.
    assert not (tmp_path / "pairs" / "stats.json").exists()
    assert stats(tmp_path / "pairs")["pairs"] == {"train": 0, "dev": 0}
