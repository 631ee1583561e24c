import base64
import gzip
import json
import random
import re
from html.parser import HTMLParser

import pytest

from notewriter.artifacts.costs import COSTS_SCHEMA
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.results.report import main, write_report
from notewriter.results.traces import CHUNK

HOSTILE = '</script><script>alert(1)</script><!-- <img src="https://example.org/x">'


class Page(HTMLParser):
    """The elements of a page, and the JSON that it embeds by element id."""

    def __init__(self, path):
        super().__init__()
        self.elements, self.data, self._json = [], {}, None
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        self._json = dict(attributes).get("id") if dict(attributes).get("type") == "application/json" else None

    def handle_data(self, data):
        if self._json:
            self.data[self._json] = json.loads(gzip.decompress(base64.b64decode(json.loads(data))))
            self._json = None

    def with_attribute(self, name):
        return [attributes for _, attributes in self.elements if name in attributes]


def rows_of(path, section):
    """The cells of the tables in a section of the page, as text."""
    text = re.search(rf'<section id="{section}".*?</section>', path.read_text(), re.DOTALL)[0]
    return [
        [re.sub("<[^>]*>", " ", cell).split() for cell in re.findall(r"<t[hd][ >].*?</t[hd]>", row, re.DOTALL)]
        for row in re.findall("<tr.*?</tr>", text, re.DOTALL)
    ]


def traces_of(path):
    return [block for identifier, block in Page(path).data.items() if identifier.startswith("traces-")]


@pytest.fixture
def two_runs(write_run, tmp_path):
    before = write_run(tmp_path / "before", dict.fromkeys("abcdefgh", 0.0) | dict.fromkeys("ijkl", 0.5))
    return [before, write_run(tmp_path / "after", dict.fromkeys("abcdefghijkl", 1.0), prediction=HOSTILE)]


LETTERS = """
from notewriter.evaluation.metrics.metric import Family, Metric

METRIC = Metric("letters", "Letters of the answer", "Its length.", better=None, decimals=1, share=False)
FAMILY = Family(lambda prediction, question: {"letters": float(len(prediction))}, (METRIC,))
"""


def test_a_score_of_a_family_that_plugins_names_has_its_label_and_decimals(two_runs, tmp_path, monkeypatch):
    for file in (run / name for run in two_runs for name in ("predictions.jsonl", "metrics.json")):
        file.write_text(file.read_text().replace('"f1"', '"letters"'))
    (tmp_path / "own.py").write_text(LETTERS)
    options = [
        "--runs",
        *map(str, two_runs),
        "--output",
        str(tmp_path / "r.html"),
        "--markdown",
        str(tmp_path / "r.md"),
    ]
    main(options)
    assert "| letters | 0.167 " in (tmp_path / "r.md").read_text()
    main([*options, "--plugins", f"{tmp_path}/own.py:FAMILY"])
    assert "| Letters of the answer | 0.2 " in (tmp_path / "r.md").read_text()


def test_the_tables_carry_the_numbers_of_metrics_json(two_runs, tmp_path):
    write_report(two_runs, tmp_path / "report.html")
    header, *rows = rows_of(tmp_path / "report.html", "scores")
    assert header == [[], ["before"], ["after"]]
    for column, run in enumerate(two_runs, start=1):
        metrics = json.loads((run / "metrics.json").read_text())
        means = [metrics["metrics"]["f1"]["mean"], *metrics["per_question"].values()]
        shown = [next(part for part in row[column] if part not in "▲▼") for row in rows]
        assert [float(text.replace(",", "")) for text in shown] == means
    assert rows[0][2] == ["▲", "0.500", "0.400", "to", "0.600"]
    (difference,) = (row for row in rows_of(tmp_path / "report.html", "differences") if row[0] == ["Token", "F1"])
    assert difference[1:4] == [["0.167"], ["1.000"], ["▲", "+0.833", "[+0.708,", "+0.958]"]]
    assert '<span class="sure gain" title=' in (tmp_path / "report.html").read_text()


def test_the_score_stands_against_costs_and_steps_on_axes_that_end_at_round_numbers(write_run, tmp_path):
    cheap = write_run(tmp_path / "cheap", {"a": 0.5}, calls=1, retrievals=0, prompt_tokens=100, completion_tokens=20)
    dear = write_run(tmp_path / "dear", {"a": 0.5}, calls=9, retrievals=4, prompt_tokens=4000, completion_tokens=500)
    write_report([cheap, dear], tmp_path / "report.html")
    text = (tmp_path / "report.html").read_text()
    plots = re.search('<section id="expenses">.*?</section>', text, re.DOTALL)[0].split("<g transform")[1:]
    for plot, axis, ends in zip(plots, ["Tokens", "Model calls", "Retrievals"], ["5,000", "10", "4"], strict=True):
        assert re.findall(r"<title>(.*?):", plot) == ["cheap", "dear"]
        assert f">{axis} a question" in plot and f">{ends}</text>" in plot
    assert "<title>dear: 0.500 at 4,500.0</title>" in text


SUMS = ("calls", "prompt_tokens", "cached_tokens", "completion_tokens", "seconds")
COSTS = {
    "schema": COSTS_SCHEMA,
    "stages": {
        "deepnote/init_note (notes)": dict.fromkeys(SUMS, 1000),
        "deepnote/answer (answer)": dict.fromkeys(SUMS, 234),
    },
    "counts": {"invalid_actions": 3},
    "compression": 5.884,
    "money": 0.0125,
    "wall_seconds": 56.4,
}


def test_costs_are_shown_by_stage_with_compression_events_and_money(two_runs, tmp_path):
    (two_runs[1] / "costs.json").write_text(json.dumps(COSTS))
    write_report(two_runs, tmp_path / "report.html")
    first, *rows = rows_of(tmp_path / "report.html", "costs")[1:]
    assert first[0] == ["after"] and first[1:] == [["1,234"]] * 4 + [
        ["56"],
        ["5.88"],
        ["0.0125"],
        ["invalid", "actions:", "3"],
    ]
    assert [row[0] for row in rows] == [["deepnote/init_note", "(notes)"], ["deepnote/answer", "(answer)"]]


def test_what_judging_cost_stands_apart_from_the_run(two_runs, tmp_path):
    (two_runs[1] / "costs.json").write_text(json.dumps(COSTS))
    (two_runs[1] / "judged").mkdir(exist_ok=True)
    judging = {"stages": {"judge/answer (judge)": dict.fromkeys(SUMS, 777)}, "money": 0.5, "wall_seconds": None}
    nothing = {"counts": {}, "compression": None}
    (two_runs[1] / "judged/costs.json").write_text(json.dumps(COSTS | judging | nothing))
    write_report(two_runs, tmp_path / "report.html")
    rows = rows_of(tmp_path / "report.html", "costs")[1:]
    judging = rows.index(next(row for row in rows if row[0] == ["after:", "judging"]))
    assert rows[0][1] == ["1,234"]
    assert rows[judging][1] == ["777"] and ["0.5000"] in rows[judging]
    assert [row[0] for row in rows[judging + 1 :]] == [["judge/answer", "(judge)"]]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{", ": is not JSON"),
        ("[]", ": has the schema None"),
        ('{"schema": "notewriter/costs/0"}', ": has the schema 'notewriter/costs/0'"),
        (json.dumps({"schema": COSTS_SCHEMA}), " has no 'stages'"),
        (json.dumps(COSTS | {"stages": {"a": {"calls": 1}}}), ": stages: a has no 'prompt_tokens'"),
    ],
)
def test_malformed_costs_are_refused(two_runs, tmp_path, content, message):
    (two_runs[0] / "costs.json").write_text(content)
    with pytest.raises(UserError, match=re.escape(f"costs.json{message}") + ".*; run the evaluation, or the judge"):
        write_report(two_runs, tmp_path / "report.html")


def test_prompts_are_left_out_where_the_page_would_be_too_large(write_run, tmp_path, caplog):
    run = write_run(tmp_path / "run", {str(number): 0.0 for number in range(3 * CHUNK)})
    noise = random.Random(0)
    traces = [record for _, record in jsonl.read(run / "traces.jsonl")]
    for trace in traces:
        trace["steps"][1]["messages"][0]["content"] = " ".join(str(noise.randrange(1000)) for _ in range(5_000))
    jsonl.write(run / "traces.jsonl", traces)
    write_report([run], tmp_path / "report.html", max_megabytes=1)
    assert (tmp_path / "report.html").stat().st_size < 1_000_000
    held = [any("prompts" in outcome for outcome in block) for block in traces_of(tmp_path / "report.html")]
    assert held == [True, False, False]
    assert f"the prompts of about {CHUNK} of {3 * CHUNK} traces" in caplog.text


def test_model_text_is_never_markup_and_nothing_is_fetched(write_run, tmp_path):
    run = write_run(tmp_path / "run", {"a": 0.0}, name=HOSTILE, question=HOSTILE, prediction=HOSTILE, error=HOSTILE)
    write_report([run], tmp_path / "report.html")
    page = Page(tmp_path / "report.html")
    scripts = [attributes for tag, attributes in page.elements if tag == "script"]
    assert [script.get("id") for script in scripts] == ["index", None, "words", "traces-0"]
    assert not [tag for tag, _ in page.elements if tag in ("img", "iframe", "object")]
    assert not page.with_attribute("src")
    assert all(re.match("#|data:,$", attributes["href"]) for attributes in page.with_attribute("href"))
    (policy,) = (attributes["content"] for attributes in page.with_attribute("http-equiv"))
    assert policy.startswith("default-src 'none'")
    assert f"'nonce-{scripts[1]['nonce']}'" in policy


def test_the_same_runs_give_the_same_page(two_runs, tmp_path):
    write_report(two_runs, tmp_path / "one.html")
    write_report(two_runs, tmp_path / "two.html")
    assert (tmp_path / "one.html").read_bytes() == (tmp_path / "two.html").read_bytes()


def test_a_run_on_other_questions_is_shown_and_the_missing_comparison_explained(write_run, tmp_path):
    runs = [write_run(tmp_path / "one", {"a": 0.0}), write_run(tmp_path / "other", {"a": 1.0}, question="Where?")]
    write_report(runs, tmp_path / "report.html")
    assert "No comparison: " in (tmp_path / "report.html").read_text()


def test_runs_of_one_name_go_by_their_folders(write_run, tmp_path):
    runs = [write_run(tmp_path / folder, {"a": 0.0}, name="run") for folder in ("one", "two")]
    write_report(runs, tmp_path / "report.html")
    labels = [run["label"] for run in Page(tmp_path / "report.html").data["index"]["runs"]]
    assert labels == [str(run) for run in runs]
    with pytest.raises(UserError, match="one: given twice in --runs"):
        write_report([runs[0], runs[0]], tmp_path / "report.html")


def test_runs_that_measured_different_things_leave_cells_empty(write_run, tmp_path):
    runs = [write_run(tmp_path / folder, {"a": 0.0}) for folder in ("one", "two")]
    metrics = json.loads((runs[1] / "metrics.json").read_text())
    metrics["metrics"]["acc"] = {"mean": 0.25, "low": 0.0, "high": 0.5}
    (runs[1] / "metrics.json").write_text(json.dumps(metrics))
    write_report(runs, tmp_path / "report.html")
    assert (tmp_path / "report.html").read_text().count("not measured") == 1


@pytest.mark.parametrize("name", ["metrics.json", "predictions.jsonl", "traces.jsonl", "config.yaml"])
def test_a_missing_file_is_named_with_what_to_do(write_run, tmp_path, name):
    run = write_run(tmp_path / "run", {"a": 0.0})
    (run / name).unlink()
    with pytest.raises(UserError, match=re.escape(name) + ": no such file; run `notewriter evaluate` again"):
        write_report([run], tmp_path / "report.html")
    assert not (tmp_path / "report.html").exists()


def test_the_command_takes_any_number_of_runs(two_runs, tmp_path):
    main(["--runs", *map(str, two_runs), "--output", str(tmp_path / "pages/report.html")])
    assert Page(tmp_path / "pages/report.html").data["index"]["runs"][1]["label"] == "after"


def test_the_tables_are_written_as_markdown_and_latex(two_runs, tmp_path):
    files = {kind: tmp_path / f"tables.{kind}" for kind in ("markdown", "latex")}
    options = [option for kind, path in files.items() for option in (f"--{kind}", str(path))]
    main(["--runs", *map(str, two_runs), "--output", str(tmp_path / "report.html"), *options])
    text = files["markdown"].read_text()
    assert "|  | before | after |" in text
    assert r"| Token F1 | 0.500 \[0.400 to 0.600\] | 0.500 \[0.400 to 0.600\] |" in text
    assert r"| Token F1 | 0.167 | 1.000 | +0.833 \[+0.708, +0.958\] \* | " in text
    assert r"Model calls & 3.0 & 3.0 \\" in files["latex"].read_text()
    assert r"after minus before" in files["latex"].read_text()


def test_an_output_that_cannot_be_written_is_refused(two_runs, tmp_path):
    with pytest.raises(UserError, match="cannot be written"):
        write_report(two_runs, tmp_path)
    with pytest.raises(UserError, match="--runs is empty"):
        write_report([], tmp_path / "report.html")
