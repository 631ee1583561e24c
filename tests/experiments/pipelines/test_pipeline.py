"""Reading pipeline files: stages, variables, shards, and what is wrong with a file."""

import textwrap

import pytest
import yaml

from notewriter.experiments.pipelines.pipeline import PROJECT, Needs, read_pipeline
from notewriter.ground.errors import UserError


@pytest.fixture
def read(tmp_path):
    """Read a pipeline from YAML text."""

    def read(text, *arguments):
        path = tmp_path / "pipeline.yaml"
        path.write_text(textwrap.dedent(text))
        return read_pipeline(path, *arguments)

    return read


SHARDED = """
    output_dir: runs/x
    variables:
      data: --path $output_dir/questions.jsonl
    stages:
      - title: Make questions
        command: make $output_dir
      - title: pairs
        command: notewriter pairs $data --shard $shard/$shards --output_dir $output_dir/pairs-$shard
        result: $output_dir/pairs-$shard/stats.json
        shards: 3
        needs: {gpus: 8, hours: 2}
      - title: another
        command: "true"
        after: [Make questions]
    """


def test_variables_may_stand_for_several_words_and_folders_only_for_one(read):
    pipeline = read(SHARDED, "my runs/x $y")
    assert pipeline.stages[0].argv() == ["make", "my runs/x $y"]
    words = ["notewriter", "pairs", "--path", "my runs/x $y/questions.jsonl", "--shard", "2/3"]
    assert pipeline.stages[1].argv(2) == [*words, "--output_dir", "my runs/x $y/pairs-2"]


def test_a_value_that_is_given_stays_within_its_word_inside_a_quotation_too(read):
    text = """
        output_dir: runs/x
        variables: {dev: dev.json, files: "--eval_files '{\\"$dev\\": \\"jsonl\\"}'"}
        stages:
          - {title: pairs, command: notewriter pairs $files --output_dir $output_dir}
        """
    argv = read(text, "it's mine", {"dev": "my dev.json"}).stages[0].argv()
    assert argv[2:] == ["--eval_files", '{"my dev.json": "jsonl"}', "--output_dir", "it's mine"]


def test_a_variable_can_have_another_value(read):
    assert read(SHARDED, None, {"data": "a b"}).stages[1].argv()[2] == "a b"


def test_a_stage_comes_after_the_one_before_unless_it_says_otherwise(read):
    pipeline = read(SHARDED)
    assert [[each.title for each in pipeline.before(stage)] for stage in pipeline.stages] == [
        [],
        ["Make questions"],
        ["Make questions"],
    ]


def test_a_shard_is_finished_when_its_result_exists(read, tmp_path):
    pipeline = read(SHARDED, str(tmp_path))
    assert pipeline.stages[1].missing() == [1, 2, 3]
    (tmp_path / "pairs-2").mkdir()
    (tmp_path / "pairs-2" / "stats.json").touch()
    assert pipeline.stages[1].missing() == [1, 3]
    assert pipeline.stages[0].missing() == [1]


def test_logs_are_numbered_and_named_after_their_stages(read):
    pipeline = read(SHARDED)
    assert str(pipeline.log(pipeline.stages[0])) == "runs/x/logs/01-make-questions.log"
    assert str(pipeline.log(pipeline.stages[1], "%a")) == "runs/x/logs/02-pairs-%a.log"


@pytest.mark.parametrize(
    ("needs", "nodes"), [(Needs(), 1), (Needs(gpus=8), 1), (Needs(gpus=9), 2), (Needs(nodes=4, gpus=8), 4)]
)
def test_gpus_are_spread_over_as_many_nodes_as_hold_them(needs, nodes):
    assert needs.nodes_of(8) == nodes


def test_needs_may_be_variables(read):
    text = """
        output_dir: runs/x
        variables: {gpus: 1}
        stages:
          - {title: train, command: train, needs: {gpus: $gpus}}
        """
    assert read(text).stages[0].needs.gpus == 1
    assert read(text, None, {"gpus": "8"}).stages[0].needs.gpus == 8
    with pytest.raises(UserError, match=r"gpus must be int, not '\$gpus'"):
        read(text, None, {"gpus": "many"})


def test_a_command_can_name_the_pipeline_as_it_was_given(read, tmp_path):
    text = """
        output_dir: runs/x
        variables: {start: models/a}
        stages:
          - {title: write the results, command: notewriter results $pipeline --output r.md}
        """
    assert read(text).stages[0].argv()[2:-2] == [f"{tmp_path}/pipeline.yaml", "--output_dir", "runs/x"]
    given = read(text, "runs/my run", {"start": "models/b c"}).stages[0].argv()
    assert given[3:-2] == ["--output_dir", "runs/my run", "--set", "start=models/b c"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"stages": []}, "stages is empty; list at least one"),
        ({"stage": []}, "unknown key 'stage'; known are: output_dir, stages, variables, report"),
        ({"stages": [{"title": "a"}]}, "has no 'command'"),
        (
            {"stages": [{"title": "a", "command": "b", "afer": []}]},
            r"stages\[0\]: unknown key 'afer'; known are: title,",
        ),
        (
            {"stages": [{"title": "a", "command": "b $c"}]},
            r"stages\[0\]: command: \$c is not a variable; known are: out",
        ),
        ({"stages": [{"title": "a", "command": "5 $"}]}, r"write \$\$ for a dollar sign"),
        ({"stages": [{"title": "a", "command": "it's"}]}, "No closing quotation; close the quotation"),
        ({"stages": [{"title": "a", "command": "b"}] * 2}, "title 'a' is given twice"),
        ({"stages": [{"title": "a", "command": "b", "after": ["c"]}]}, "'c' is not the title of an earlier stage"),
        ({"stages": [{"title": "a", "command": "b", "shards": 2}]}, r"the same for all 2 shards; use \$shard in it"),
        ({"stages": [{"title": "a", "command": "b $shard", "shards": 5000}]}, "shards: 5000 is too large; .* 1000"),
        (
            {"stages": [{"title": "a", "command": "b", "needs": {"gpu": 2}}]},
            "needs: unknown key 'gpu'; known are: nodes",
        ),
        ({"stages": [{"title": "a", "command": "b", "needs": {"gpus": -1}}]}, "gpus: -1 is too small"),
        ({"stages": [{"title": "a", "command": "b", "serve": "m", "launch": "l"}]}, "has both serve and launch"),
    ],
)
def test_what_is_wrong_with_a_file_is_named_with_its_place(read, change, message):
    with pytest.raises(UserError, match=message) as caught:
        read(yaml.safe_dump({"output_dir": "runs/x", "stages": [{"title": "t", "command": "c"}]} | change))
    assert "pipeline.yaml" in str(caught.value) or "stage" in str(caught.value) or "needs" in str(caught.value)


def test_a_variable_that_there_is_none_of_cannot_be_set(read):
    with pytest.raises(UserError, match=r"--set model: .* has no such variable; it has data"):
        read(SHARDED, None, {"model": "x"})


@pytest.mark.parametrize("path", sorted((PROJECT / "configs" / "pipelines").glob("*.yaml")), ids=lambda path: path.stem)
def test_the_pipelines_of_the_project_can_be_read(path):
    assert read_pipeline(path).stages
