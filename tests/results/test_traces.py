import base64
import gzip
import json
import random
import re

import pytest

from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results.runs import read_runs
from notewriter.results.traces import CHUNK, pack


def unpacked(block):
    return json.loads(gzip.decompress(base64.b64decode(block)))


def change_traces(run, change):
    """Rewrites a run's traces as what the function makes of their list."""
    jsonl.write(run / "traces.jsonl", change([record for _, record in jsonl.read(run / "traces.jsonl")]))


def prompts_of(records, prompt):
    """The records with another prompt each, by its number."""
    for number, record in enumerate(records):
        record["steps"][1]["messages"][0]["content"] = prompt(number)
    return records


def test_a_block_holds_answers_and_steps_and_each_piece_of_a_prompt_once(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 1.0}, prediction="<b>")
    change_traces(run, lambda records: prompts_of(records, lambda _: "Passages:\n[1] Fulda: a river\n\nWho?"))
    traces = pack(read_runs([run]), 10**6)
    assert traces.places == [{"a": 0, "b": 1}]
    first, second = unpacked(traces.with_prompts[0])
    assert [first[key] for key in ("prediction", "note", "error")] == ["<b>", "", ""]
    retrieval, generation = first["steps"]
    assert (retrieval["query"], retrieval["titles"]) == ("Who?", ["Fulda"])
    assert (generation["text"], generation["prompt_tokens"]) == ("<b>", 400)
    assert first["pieces"] == ["Passages:\n", "[1] ", "Fulda: a river\n", "\n", "Who?"]
    assert first["prompts"] == second["prompts"] == [[["user", [0, 1, 2, 3, 4]]]]
    assert second["pieces"] == []
    (bare, _) = unpacked(traces.without_prompts[0])
    assert bare == {key: first[key] for key in ("prediction", "note", "error", "steps")}


def test_runs_take_turns_so_that_the_first_blocks_are_those_of_each_runs_first_traces(write_run, tmp_path):
    scores = {str(number): 0.0 for number in range(CHUNK + 2)}
    long, short = write_run(tmp_path / "long", scores), write_run(tmp_path / "short", {"0": 0.0})
    change_traces(long, lambda records: [records[-1], *records[:-1]])
    traces = pack(read_runs([long, short]), 10**6)
    assert traces.places[0] == {
        str(CHUNK + 1): 0,
        **{str(number): number + 1 for number in range(CHUNK - 1)},
        str(CHUNK - 1): 2 * CHUNK,
        str(CHUNK): 2 * CHUNK + 1,
    }
    assert traces.places[1] == {"0": CHUNK}
    assert [len(unpacked(block)) for block in traces.without_prompts] == [CHUNK, 1, 2]


def test_prompts_are_left_out_from_the_end_where_room_is_short(write_run, tmp_path):
    run = write_run(tmp_path / "run", {str(number): 0.0 for number in range(3 * CHUNK)})
    noise = random.Random(0)
    change_traces(run, lambda records: prompts_of(records, lambda _: noise.randbytes(2_000).hex()))
    traces = pack(read_runs([run]), 10**9)
    sizes = [len(block) for block in traces.with_prompts]
    assert traces.fitting(sum(sizes)) == (traces.with_prompts, 3)
    blocks, whole = traces.fitting(sum(sizes) - 1)
    assert (blocks, whole) == ([*traces.with_prompts[:2], traces.without_prompts[2]], 2)
    assert traces.fitting(0) == (traces.without_prompts, 0)
    # Beyond the limit none are made.
    assert len(pack(read_runs([run]), sizes[0]).with_prompts) == 2


def test_an_error_that_only_the_trace_tells_is_kept(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0})
    change_traces(run, lambda records: [record | {"error": "the prompt is too long"} for record in records])
    traces = pack(read_runs([run]), 10**6)
    assert traces.errors == [{"a": "the prompt is too long"}]
    assert unpacked(traces.with_prompts[0])[0]["error"] == "the prompt is too long"


def test_a_prediction_without_a_trace_comes_last_and_has_no_steps(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 0.0})
    change_traces(run, lambda records: records[1:])
    traces = pack(read_runs([run]), 10**6)
    assert traces.places == [{"b": 0, "a": 1}]
    outcome = unpacked(traces.with_prompts[0])[1]
    assert (outcome["prediction"], outcome["steps"]) == ("Fulda", None)


def test_a_trace_that_is_there_twice_is_named(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0})
    change_traces(run, lambda records: records * 2)
    with pytest.raises(UserError, match=r"traces\.jsonl:2: duplicate question 'a'"):
        pack(read_runs([run]), 10**6)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"schema": "notewriter/trace/0"}, "has the schema 'notewriter/trace/0'"),
        (
            {"steps": [{"kind": "dream"}]},
            "steps[0] must be object of kind retrieve | object of kind ",
        ),
        ({"steps": [{"kind": "retrieve", "query": "q"}]}, "steps[0] has no 'top_k'"),
        ({"steps": 7}, "steps must be list[object of kind retrieve | "),
    ],
)
def test_a_malformed_trace_is_named_by_its_line(write_run, tmp_path, change, message):
    run = write_run(tmp_path / "run", {"a": 0.0, "b": 0.0})
    change_traces(run, lambda records: [records[0], records[1] | change])
    with pytest.raises(UserError, match=re.escape("traces.jsonl:2: " + message)):
        pack(read_runs([run]), 10**6)
