"""The language of pipelines, experiments and tables: variables, repetition, and other files."""

import json
import textwrap

import pytest

from notewriter.experiments.files import Given, MissingVariable, changed, changes_of, filled, names_in, words
from notewriter.experiments.run import read_pipeline
from notewriter.ground.errors import UserError


@pytest.fixture
def read(tmp_path):
    def read(text, *arguments, **others):
        for name, content in {"pipeline": text, **others}.items():
            (tmp_path / f"{name}.yaml").write_text(textwrap.dedent(content))
        return read_pipeline(tmp_path / "pipeline.yaml", *arguments)

    return read


def argvs(pipeline):
    return [run.argv() for run in pipeline.runs]


def test_variables_are_filled_in_where_they_are_used_so_that_they_may_use_what_is_known_there_only(read):
    pipeline = read(
        """
        output_dir: runs/x
        variables: {data: "--path {{ output_dir }}/{{ set }}"}
        runs:
          - {title: "a {{ set }}", each: {set: [one, two]}, command: "evaluate {{ data }}"}
        """
    )
    assert argvs(pipeline) == [["evaluate", "--path", "runs/x/one"], ["evaluate", "--path", "runs/x/two"]]


def test_a_value_that_is_given_is_no_template_and_stays_within_its_word_inside_a_quotation_too(read):
    text = """
        output_dir: runs/x
        variables: {dev: dev.json, files: "--eval_files '{\\"{{ dev }}\\": \\"jsonl\\"}'"}
        runs:
          - {title: pairs, command: "notewriter pairs {{ files }} --output_dir {{ output_dir }}"}
        """
    argv = read(text, "it's {{ mine }}", {"dev": "my dev.json"}).runs[0].argv()
    assert argv[2:] == ["--eval_files", '{"my dev.json": "jsonl"}', "--output_dir", "it's {{ mine }}"]


def test_a_given_number_can_be_computed_with_and_an_empty_value_is_no_word():
    variables = {"round": Given("2"), "serve": Given("")}
    assert words("a {{ round | int + 1 }} {{ serve }}{{ ' --serve' if serve }}", variables, "x") == ["a", "3"]


def test_the_command_that_reads_a_pipeline_again_has_its_words_as_they_were_given(read):
    text = """
        output_dir: runs/x
        variables: {dev: dev.json}
        runs:
          - {title: page, command: "notewriter table {{ pipeline }} --output {{ output_dir }}.md"}
        """
    argv = read(text, "it's {{ mine }}", {"dev": "my dev.json"}).runs[0].argv()
    assert argv[3:] == ["--output_dir", "it's {{ mine }}", "--set", "dev=my dev.json", "--output", "it's {{ mine }}.md"]


def test_expressions_are_jinjas():
    variables = {"round": 2, "start": "models/base", "folder": Given("it's a folder")}
    previous = "{{ start if round == 1 else folder ~ '/round-' ~ (round - 1) }}"
    assert filled(previous, variables, "x") == "it's a folder/round-1"
    shares = "--mix '{ {%- for before in range(1, round) %}\"{{ folder }}/{{ before }}\": 0.5{% endfor %}}'"
    assert json.loads(words(shares, variables, "x")[1]) == {"it's a folder/1": 0.5}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ c }}", "here: c in {{ }} is not a variable; known are: a, b, unset"),
        ("{{ a }}", "here: a uses b uses a, in a circle; give one of them a value of its own"),
        ("{{ unset }}", "here: unset has no value; add --set unset=VALUE"),
        ("{{ a", "here: is no template"),
        ("{{ 1 / 0 }}", "here: is no template"),
        ("{{ ''.__class__ }}", "here: is no template"),
        ("it's", "here: No closing quotation; close the quotation"),
    ],
)
def test_what_is_wrong_with_a_text_is_named_with_its_place(text, message):
    with pytest.raises(UserError) as caught:
        words(text, {"a": "{{ b }}", "b": "{{ a }}", "unset": None}, "here")
    assert message in str(caught.value)


def test_a_variable_without_a_value_is_named_to_those_who_can_do_without():
    with pytest.raises(MissingVariable) as caught:
        filled("{{ path }}", {"path": "{{ model }}/x", "model": None}, "here")
    assert caught.value.name == "model"


def test_names_of_variables_are_found_through_others():
    assert names_in("{{ a }} {{ c }}", {"a": "{{ b }}", "b": 3}) == {"a", "b", "c"}


def test_values_are_given_as_name_and_value(tmp_path):
    assert changes_of(["a=b=c", "d="]) == {"a": "b=c", "d": ""}
    with pytest.raises(UserError, match="--set model: is not NAME=VALUE"):
        changes_of(["model"])
    with pytest.raises(UserError, match=r"--set model: .* has no such variable; it has data"):
        changed({"data": "x"}, {"model": "y"}, tmp_path)


def test_runs_are_repeated_for_each_combination_of_values_in_their_order(read):
    pipeline = read("""
        output_dir: runs/x
        runs:
          - each: {seed: [1, 2], cell: {a: {start: models/a}, b: {start: "{{ output_dir }}/{{ seed }}"}}}
            runs:
              - {title: "{{ seed }}{{ cell }}", command: "train {{ start }}"}
              - {title: "{{ seed }}{{ cell }}{{ set }}", each: {set: [x]}, command: "evaluate --seed {{ seed + 1 }}"}
        """)
    assert [run.title for run in pipeline.runs] == ["1a", "1ax", "1b", "1bx", "2a", "2ax", "2b", "2bx"]
    trained = [argv[1] for argv in argvs(pipeline)[::2]]
    assert trained == ["models/a", "runs/x/1", "models/a", "runs/x/2"]
    assert argvs(pipeline)[-1] == ["evaluate", "--seed", "3"]


COMMON = """
    output_dir: runs/elsewhere
    variables: {data: theirs, model: "{{ data }}/model"}
    runs:
      - {title: make, command: "make {{ data }} {{ output_dir }}"}
    results: {title: Theirs, text: Of one run., sets: {a: A}, cells: {one: 'runs/{{ set }}'}, metrics: [f1]}
    """


def test_another_files_runs_come_first_and_its_keys_and_variables_count_unless_this_file_has_them(read):
    own = """
        include: common.yaml
        output_dir: runs/x
        variables: {data: mine}
        runs:
          - {title: use, command: "use {{ data }} {{ model }}"}
        """
    pipeline = read(own, common=COMMON)
    assert argvs(pipeline) == [["make", "mine", "runs/x"], ["use", "mine", "mine/model"]]
    assert pipeline.results.title == "Theirs"
    # Of a mapping in both, the entries that are this file's count.
    assert read(textwrap.dedent(own) + "results: {title: Own}\n", common=COMMON).results.title == "Own"


def test_several_files_are_included_in_their_order_and_through_each_other(read):
    files = {name: f"runs: [{{title: {name}, command: make}}]" for name in ("first", "third")}
    files["second"] = "include: first.yaml\nruns: [{title: second, command: make}]"
    pipeline = read("include: [second.yaml, third.yaml]\noutput_dir: x\n", **files)
    assert [run.title for run in pipeline.runs] == ["first", "second", "third"]


def test_a_file_that_several_include_counts_once_so_that_what_one_of_them_changes_stays_changed(read):
    files = {
        "base": "variables: {model: theirs}\nruns: [{title: base, command: 'make {{ model }} {{ data }}'}]",
        "first": "include: base.yaml\nvariables: {model: mine}",
        "second": "include: base.yaml\nvariables: {data: mine too}",
    }
    pipeline = read("include: [first.yaml, second.yaml]\noutput_dir: x\n", **files)
    assert argvs(pipeline) == [["make", "mine", "mine", "too"]]


def test_a_variable_that_would_change_nothing_in_an_included_file_is_told(read, caplog):
    own = "include: common.yaml\noutput_dir: runs/x\nvariables: {dat: mine}\n"
    read(own, common=COMMON)
    assert "pipeline.yaml:3: variables: nothing uses 'dat'; did you mean 'data'?" in caplog.text
    caplog.clear()
    # One that its own texts use is none of these.
    own = own.replace("output_dir: runs/x", "output_dir: 'runs/{{ dat }}'")
    assert read(own, common=COMMON).output_dir == "runs/mine" and not caplog.text


def test_an_included_file_may_be_a_recipe(read):
    """As in a copy of a pipeline file elsewhere."""
    assert read("include: pipelines/rounds\noutput_dir: runs/x\n").runs[0].title == "the start on dev"


@pytest.mark.parametrize(
    ("common", "message"),
    [
        ("include: pipeline.yaml", "common.yaml:1: .*pipeline.yaml includes itself; remove"),
        ("include: common.yaml", "common.yaml:1: .*common.yaml includes itself; remove"),
        ("include: nothing.yaml", r"nothing.yaml: cannot be read .*; correct include in .*common.yaml:1"),
        ("\nvariables: [data]", "common.yaml:2: variables"),
        ("runs: {a: b}", "common.yaml:1: runs"),
    ],
)
def test_what_is_wrong_with_an_included_file_is_named_with_its_line(read, common, message):
    with pytest.raises(UserError, match=message):
        read("output_dir: runs/x\ninclude: common.yaml\n", common=common)


MANY = list(range(40))
TITLE = "{{ a }}.{{ b }}.{{ c }}"


@pytest.mark.parametrize(
    ("entry", "message"),
    [
        (f"each: {{a: {MANY}, b: {MANY}, c: {MANY}}}\n    title: '{TITLE}'\n    command: b", "more than 1,000 runs"),
        ("each: [{a: 1}]\n    title: a", r"runs\[0\]: each must be"),
        ("each: {a: {b: 1}}\n    title: a", r"runs\[0\]: each"),
        ("each: {a: [1]}\n    runs: b", r"runs\[0\]: runs must be"),
        # The file's own folder would be used in its place.
        (
            "title: '{{ a }}'\n    command: b {{ data }}\n    each: {a: {x: {data: c}, y: {date: d}}}",
            r"runs\[0\]: each: nothing uses 'date'; did you mean 'data'\?",
        ),
        (
            "each: {a: [1]}\n    title: b\n    runs: [{title: a, command: b}]",
            r"unknown key 'title' beside each and runs",
        ),
        ("each: {a: [1]}\n    runs: [{title: a}]", r"runs\[0\]: runs\[0\] has no 'command'"),
    ],
)
def test_what_is_wrong_with_a_repetition_is_named_with_its_place(read, entry, message):
    with pytest.raises(UserError, match=message):
        read(f"output_dir: runs/x\nvariables: {{data: e}}\nruns:\n  - {entry}\n")
