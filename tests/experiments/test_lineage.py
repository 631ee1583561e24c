"""The way from corpus to score is printed from what the stages recorded."""

import json
from pathlib import Path

import pytest
import yaml
from metrics_file import write_metrics
from stats_file import write_stats

from notewriter.evaluation.evaluating import OPTIONS as OF_EVALUATIONS
from notewriter.experiments.lineage import IGNORED, lineage, main
from notewriter.ground.errors import UserError
from notewriter.ground.options import names_of
from notewriter.rollouts.identity import open_run


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """An evaluation of a checkpoint that was trained on pairs over an index of a corpus."""
    corpus, index = tmp_path / "corpus.jsonl", tmp_path / "index"
    corpus.write_text("")
    index.mkdir()
    (index / "manifest.json").write_text(json.dumps({"kind": "bm25", "passages": 7, "source": str(corpus)}))
    with open_run(tmp_path / "pairs", {"index": [str(index)], "model": "teacher", "seed": 5}) as pairs:
        write_stats(pairs)
    with open_run(tmp_path / "dpo", {"pairs": str(pairs), "model_name_or_path": "owner/base"}) as dpo:
        rows = {"train": {"deepnote/init_note": 3}}
        record = {"schema": "notewriter/training/1", "method": "dpo", "parameters": "full", "steps": 2, "rows": rows}
        (dpo / "training.json").write_text(json.dumps(record))
        (dpo / "config.json").write_text("{}")
    config = {"serve": str(dpo), "index": [str(index)], "method": "deepnote"}
    with open_run(tmp_path / "after", config) as after:
        write_metrics(after / "metrics.json")
    return tmp_path


def test_every_stage_is_printed_with_what_it_was_made_from(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    main([str(runs / "after")])
    shown = capsys.readouterr().out
    lines = [line.strip() for line in shown.splitlines() if not line.strip().startswith("ran with")]
    place = lines.index
    assert lines[0].startswith(f"{runs / 'after'}: deepnote on 100 questions of hotpotqa; f1 0.512 [0.400, 0.600]")
    assert (
        place("serve:")
        < place(f"{runs / 'dpo'}: dpo, full, 2 steps on 3 rows")
        < place("pairs:")
        < place(f"{runs / 'pairs'}: pairs: train 3, dev 1")
        < place(f"{runs / 'index'}: index bm25 of 7 passages")
        < place(f"source: {runs / 'corpus.jsonl'}")
    )
    assert {"owner/base", "teacher"} <= set(lines)
    assert shown.count("ran with notewriter ") == 3
    assert "seed 5" in shown
    assert "CHANGED" not in shown


def test_data_that_is_mixed_in_is_on_the_way(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with open_run(runs / "gold", {"eval_files": {str(runs / "corpus.jsonl"): "jsonl"}}) as gold:
        write_stats(gold, "conversations", conversations={"train": 9, "dev": 0})
    with open_run(runs / "sft", {"data": str(runs / "pairs"), "mix": {str(gold): 0.5}}) as sft:
        pass
    main([str(sft)])
    lines = [line.strip() for line in capsys.readouterr().out.splitlines()]
    assert lines.index("mix:") + 1 == lines.index(f"{gold}: conversations: train 9, dev 0")
    assert "eval_files:" not in lines


def test_another_programs_statistics_say_nothing_and_damaged_ones_are_named(runs: Path) -> None:
    stats = runs / "pairs/stats.json"
    cut = json.loads(stats.read_text())
    stats.write_text('{"pairs": {"train": 3}}')
    assert f"    {runs / 'pairs'}" in lineage(runs / "dpo")
    del cut["pairs"]
    stats.write_text(json.dumps(cut))
    with pytest.raises(UserError, match=r"pairs/stats\.json has no 'pairs'; restore the file"):
        lineage(runs / "dpo")


def test_inputs_that_changed_since_are_marked(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "dpo" / "config.json").write_text('{"changed": true}')
    main(["--run", str(runs / "after")])
    assert "CHANGED SINCE: served was " in capsys.readouterr().out


def test_runs_that_name_each_other_end(runs: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (runs / "pairs" / "config.yaml").write_text(yaml.safe_dump({"path": str(runs / "after")}))
    main([str(runs / "after")])
    assert "(as above)" in capsys.readouterr().out


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.yaml: no such file"):
        main([str(tmp_path)])


@pytest.mark.integration
def test_no_option_that_names_a_place_to_write_to_is_a_source():
    # TRL's configurations take seconds to import, which is why the command does not ask them.
    from notewriter.training.options import OPTIONS as OF_TRAININGS

    kinds = [*OF_EVALUATIONS, *(kind for pair in OF_TRAININGS.values() for kind in pair)]
    assert names_of(*kinds, of="output") <= IGNORED
