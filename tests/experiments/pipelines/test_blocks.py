"""Blocks of a pipeline file: stages repeated over values, in rounds of training, and those of other files."""

import json
import textwrap

import pytest
from metrics_file import write_metrics

from notewriter.experiments.pipelines.pipeline import read_pipeline
from notewriter.ground.errors import UserError


@pytest.fixture
def read(tmp_path):
    def read(text, **others):
        for name, content in {"pipeline": text, **others}.items():
            (tmp_path / f"{name}.yaml").write_text(textwrap.dedent(content))
        return read_pipeline(tmp_path / "pipeline.yaml")

    return read


def evaluated(folder, f1):
    folder.mkdir(parents=True)
    write_metrics(folder / "metrics.json", metrics={"f1": {"mean": f1, "low": f1, "high": f1}})


ROUNDS = """
    output_dir: {folder}
    variables: {{start: models/base}}
    stages:
      - each: [{{seed: 1}}, {{seed: 2}}]
        stages:
          - rounds: 3
            start: $start
            model: $output_dir/$seed/$round/model
            earlier: {{$output_dir/$seed/$round/pairs: 0.5}}
            while_rising: {{metric: f1, run: $output_dir/$seed/$round/dev}}
            stages:
              - title: seed $seed round $round pairs
                serve: $previous
                command: pairs --seed $seed$round --price $$1
              - title: seed $seed round $round train
                command: train --from $previous --mix $earlier
      - title: all
        command: "true"
        after: [seed 1 round 3 train, seed 2 round 3 train]
    """


def test_stages_are_repeated_for_each_set_of_values_and_in_rounds(read, tmp_path):
    pipeline = read(ROUNDS.format(folder=tmp_path))
    titles = [
        f"seed {seed} round {number} {what}" for seed in (1, 2) for number in (1, 2, 3) for what in ("pairs", "train")
    ]
    assert [stage.title for stage in pipeline.stages] == [*titles, "all"]
    assert [stage.title for stage in pipeline.before(pipeline.stages[-1])] == [titles[5], titles[11]]
    assert pipeline.stages[6].argv() == ["pairs", "--seed", "21", "--price", "$1"]


def test_a_round_starts_from_the_model_of_the_one_before(read, tmp_path):
    stages = read(ROUNDS.format(folder=tmp_path)).stages
    assert [stage.serve for stage in stages[:6:2]] == ["models/base", f"{tmp_path}/1/1/model", f"{tmp_path}/1/2/model"]


def test_a_round_gets_what_all_earlier_ones_left_with_their_shares(read, tmp_path):
    # Quotation marks and spaces in the folder's name stay in one word.
    folder = tmp_path / "it's a folder"
    stages = read(ROUNDS.format(folder=json.dumps(str(folder)))).stages
    mixed = [json.loads(stage.argv()[-1]) for stage in stages[1:6:2]]
    assert mixed == [{}, {f"{folder}/1/1/pairs": 0.5}, {f"{folder}/1/1/pairs": 0.5, f"{folder}/1/2/pairs": 0.5}]


@pytest.mark.parametrize(
    ("scores", "skipped"),
    [
        ([], [False, False, False]),
        ([None, 0.2, 0.3], [False, False, False]),
        ([None, 0.2, 0.2], [False, False, True]),
        # The start counts, if it was evaluated.
        ([0.3, 0.2], [False, True, True]),
        ([0.1, 0.3, 0.2], [False, False, True]),
    ],
)
def test_rounds_end_after_the_first_that_does_not_raise_the_score(read, tmp_path, scores, skipped):
    stages = read(ROUNDS.format(folder=tmp_path)).stages
    for number, score in enumerate(scores):
        if score is not None:
            evaluated(tmp_path / "1" / str(number) / "dev", score)
    assert [bool(stage.skipped()) for stage in stages[:6:2]] == skipped
    assert [stage.missing() == [] for stage in stages[:6:2]] == skipped


def test_the_reason_names_the_round_and_the_scores(read, tmp_path):
    stages = read(ROUNDS.format(folder=tmp_path)).stages
    for number, score in ((1, 0.25), (2, 0.2)):
        evaluated(tmp_path / "1" / str(number) / "dev", score)
    assert stages[4].skipped() == "round 2 did not raise f1 above 0.250 (0.200)"


def test_a_score_that_the_runs_do_not_have_is_an_error(read, tmp_path):
    stages = read(ROUNDS.format(folder=tmp_path).replace("metric: f1", "metric: em")).stages
    evaluated(tmp_path / "1" / "1" / "dev", 0.2)
    with pytest.raises(UserError, match=r"1/1/dev/metrics.json: has no score 'em'; name one of f1"):
        stages[4].skipped()


def test_another_files_stages_come_in_with_its_variables_unless_this_file_has_its_own(read):
    pipeline = read(
        """
        output_dir: runs/x
        variables: {data: mine}
        stages:
          - include: common.yaml
          - {title: use, command: use $data $model}
        """,
        common="""
        output_dir: runs/elsewhere
        variables: {data: theirs, model: $data/model}
        stages:
          - {title: make, command: make $data $output_dir}
        """,
    )
    assert [stage.argv() for stage in pipeline.stages] == [["make", "mine", "runs/x"], ["use", "mine", "mine/model"]]


def test_a_variable_that_replaces_one_of_an_included_file_may_use_variables_of_both(read):
    pipeline = read(
        """
        output_dir: runs/x
        variables: {root: mine, data: $root/$model}
        stages: [include: common.yaml]
        """,
        common="""
        variables: {data: theirs, model: tiny, index: $data/index}
        stages: [{title: make, command: make $index}]
        """,
    )
    assert pipeline.stages[0].argv() == ["make", "mine/tiny/index"]


def test_variables_that_use_each_other_are_named(read):
    with pytest.raises(UserError, match=r"variables: (a uses b uses a|b uses a uses b); give one a value without"):
        read("output_dir: runs/x\nvariables: {b: $a, a: $b, c: x}\nstages: [{title: make, command: make $c}]\n")


def test_a_file_may_be_included_once_for_each_set_of_values(read):
    pipeline = read(
        """
        output_dir: runs/x
        stages:
          - each: [{seed: 1}, {seed: 2}]
            stages:
              - {title: start $seed, command: start}
              - include: common-$seed.yaml
        """,
        **{
            f"common-{seed}": f"""
            variables: {{model_{seed}: m{seed}}}
            stages:
              - {{title: make {seed}, command: make $model_{seed}}}
            """
            for seed in (1, 2)
        },
    )
    assert [stage.argv() for stage in pipeline.stages if len(stage.argv()) > 1] == [["make", "m1"], ["make", "m2"]]


@pytest.mark.parametrize(
    ("common", "message"),
    [
        ("stages: [{include: pipeline.yaml}]", r"common.yaml: stages\[0\]: .*pipeline.yaml includes itself; remove"),
        ("stages: [{include: common.yaml}]", r"common.yaml: stages\[0\]: .*common.yaml includes itself; remove"),
        ("stages: []\nvariables: [data]", "common.yaml: variables must be a mapping"),
        ("variables: {}", "common.yaml: has no list of stages"),
    ],
)
def test_what_is_wrong_with_an_included_file_is_named(read, common, message):
    with pytest.raises(UserError, match=message):
        read("output_dir: runs/x\nstages: [{include: common.yaml}]\n", common=common)


@pytest.mark.parametrize(("own", "title"), [("", "Common"), ("results: {title: Own}", "Own")])
def test_results_of_an_included_file_are_those_of_a_file_without_its_own(read, own, title):
    common = """
        stages: [{title: a, command: b}]
        results: {title: Common}
        """
    pipeline = read(f"output_dir: runs/x\nstages: [{{include: common.yaml}}]\n{own}\n", common=common)
    assert pipeline.results == {"title": title}


STAGES = "stages: [{title: a, command: b}, {title: c, command: d}]"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        (f"{{rounds: 2000000, start: a, model: b, {STAGES}}}", r"pipeline.yaml: stages\[1\]: .* 4,000,001 stages"),
        (
            f"{{each: [{{x: 1}}, {{x: 2}}], stages: [{{rounds: 501, start: a, model: b, {STAGES}}}]}}",
            r"pipeline.yaml: stages\[1\]: stages\[0\]: .* 1,002 stages",
        ),
        (
            f"{{each: [{{x: 1}}, {{x: 2}}], stages: [{{rounds: 400, start: a, model: b, {STAGES}}}]}}",
            r"pipeline.yaml: stages\[1\]: .* 1,601 stages",
        ),
        ("{rounds: 2000000000, start: a, model: b, stages: [{include: empty.yaml}]}", "2,000,000,001 stages"),
        ("{rounds: 600, start: a, model: b, stages: [{include: two.yaml}]}", "1,201 stages"),
        ("{include: many.yaml}", r"many.yaml: .* 1,001 stages"),
    ],
)
def test_more_stages_than_a_queue_holds_are_refused_with_their_number(read, block, message):
    many = "stages: [" + "{title: a, command: b}," * 1001 + "]"
    files = {"empty": "stages: []", "two": STAGES, "many": many}
    with pytest.raises(UserError, match=message):
        read(f"output_dir: runs/x\nstages:\n  - {{title: first, command: b}}\n  - {block}\n", **files)


def test_an_included_file_may_be_the_projects(read):
    """As in a copy of a pipeline file elsewhere."""
    pipeline = read("output_dir: runs/x\nstages: [{include: $project/configs/pipelines/rounds.yaml}]\n")
    assert pipeline.stages[0].title == "the start on dev"


@pytest.mark.parametrize(
    ("block", "message"),
    [
        ("each: []\n    stages: [{title: a, command: b}]", "each must have at least"),
        ("each: [{a: 1}]", "has no 'stages'"),
        ("rounds: 0\n    start: a\n    model: b\n    stages: [{title: a, command: b}]", "rounds: 0 is too small"),
        ("rounds: 2\n    start: a\n    stages: [{title: a, command: b}]", "has no 'model'"),
        (
            "rounds: 2\n    start: a\n    model: b\n    until: 3\n    stages: [{title: a, command: b}]",
            "unknown key 'until'",
        ),
        ("each: [{a: 1}]\n    stages: [{rounds: 1}]", r"stages\[0\]: stages\[0\] has no"),
        ("include: nothing.yaml", "nothing.yaml: cannot be read"),
    ],
)
def test_what_is_wrong_with_a_block_is_named_with_its_place(read, block, message):
    with pytest.raises(UserError, match=message):
        read(f"output_dir: runs/x\nstages:\n  - {block}\n")
