from notewriter.ground import jsonl
from notewriter.results.runs import read_runs
from notewriter.results.traces import index, pack, questions_of, words


def test_the_index_tells_of_each_question_what_the_list_and_its_filters_need(write_run, tmp_path):
    before = write_run(tmp_path / "before", {"a": 0.0, "b": 0.5})
    runs = read_runs([before, write_run(tmp_path / "after", {"b": 1.0}, error="too long")])
    found = index(runs, questions_of(runs), pack(runs, 10**6))
    assert [run["label"] for run in found["runs"]] == ["before", "after"]
    assert found["metrics"] == [{"name": "f1", "label": "Token F1"}]
    assert found["questions"] == [
        {
            "id": "a",
            "question": "Who?",
            "answers": ["Fulda"],
            "runs": [{"scores": {"f1": 0.0}, "failed": False, "trace": 0}, None],
        },
        {
            "id": "b",
            "question": "Who?",
            "answers": ["Fulda"],
            "runs": [
                {"scores": {"f1": 0.5}, "failed": False, "trace": 1},
                {"scores": {"f1": 1.0}, "failed": True, "trace": found["chunk"]},
            ],
        },
    ]


def test_the_question_that_is_open_at_first_is_the_one_on_which_the_runs_differ_most(write_run, tmp_path):
    folders = [
        write_run(tmp_path / name, dict(zip("abc", scores, strict=True)))
        for name, scores in (("before", (0.5, 0.0, 0.9)), ("after", (0.5, 0.7, 1.0)))
    ]

    def first(*chosen):
        runs = read_runs(chosen)
        questions = questions_of(runs)
        return questions[index(runs, questions, pack(runs, 10**6))["first"]].question_id

    assert first(*folders) == "b"
    # Of one run it is the one that it did best on.
    assert first(folders[0]) == "c"


def test_one_id_with_two_questions_is_two_questions(write_run, tmp_path):
    runs = read_runs(
        [write_run(tmp_path / "one", {"a": 0.0}), write_run(tmp_path / "other", {"a": 1.0}, question="Where?")]
    )
    found = index(runs, questions_of(runs), pack(runs, 10**6))["questions"]
    assert [[result is not None for result in question["runs"]] for question in found] == [[True, False], [False, True]]


def test_the_search_knows_the_words_of_predictions_and_notes_of_all_runs(write_run, tmp_path):
    folders = [
        write_run(tmp_path / "one", dict.fromkeys("abcd", 0.0), prediction="The Fulda"),
        write_run(tmp_path / "two", dict.fromkeys("abcd", 0.0), prediction="the Rhine, the Rhine"),
    ]
    records = [record for _, record in jsonl.read(folders[0] / "predictions.jsonl")]
    jsonl.write(
        folders[0] / "predictions.jsonl", [record | {"note": f"Note {record['question_id']}"} for record in records]
    )
    runs = read_runs(folders)
    found = words(runs, questions_of(runs))
    assert found == {
        **{word: [0, 1, 2, 3] for word in ("fulda", "note", "rhine", "rhine,", "the")},
        **{name: [number] for number, name in enumerate("abcd")},
    }
