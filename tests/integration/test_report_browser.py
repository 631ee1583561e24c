import json
from pathlib import Path

import pytest

from notewriter.artifacts.metrics import METRICS_SCHEMA
from notewriter.artifacts.predictions import COSTS, PREDICTION_SCHEMA
from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.evaluation.statistics import bootstrap_interval
from notewriter.ground import jsonl
from notewriter.ground.records import Completion, Sampling
from notewriter.results.report import write_report

pytestmark = pytest.mark.integration

HOSTILE = '<script>window.hacked = 1</script><img src=x onerror="window.hacked = 2"> </script><!-- "é" & \u2028'
FIRST = "Arlen Voss was born in Tirsk. He studied at the academy."
REJECTED = "Arlen Voss liked boats."
FINAL = "Arlen Voss was born in Tirsk. He studied at the academy. Tirsk is the capital of Orvania."
PLACES = ["Orvania", "Tirsk", "Velmor", "Quenby", "Ostrana", "Harrowmere", "Lunden Vale", "Sarn"]
PEOPLE = [
    "Arlen Voss",
    "Mirela Dahn",
    "Tobin Ekhart",
    "Sanne Orrel",
    "Pavo Lindqvist",
    "Ilse Marrant",
    "Joren Kade",
    "Dessa Wyn",
]


def completion(text: str, finish_reason: str = "stop") -> Completion:
    return Completion(text, finish_reason, 412, len(text.split()), 0, 0.84)


def generation(stage: str, role: str, prompt: str, text: str, finish_reason: str = "stop") -> Generation:
    messages = [{"role": "system", "content": "You keep notes."}, {"role": "user", "content": prompt}]
    return Generation(f"deepnote/{stage}", role, messages, Sampling(), completion(text, finish_reason))


def trace(identifier: str, question: str, prediction: str) -> Trace:
    titles = [{"id": "1", "title": "Arlen Voss"}, {"id": "2", "title": "Tirsk (city)"}, {"id": "3", "title": HOSTILE}]
    return Trace(
        question_id=identifier,
        method="deepnote",
        steps=[
            Retrieval(question, 5, titles, 0.012),
            generation("init_note", "notes", f"Passages ...\nQuestion: {question}", FIRST),
            generation("refine_query", "query", f"Notes: {FIRST}", "What is Tirsk the capital of?"),
            generation("accumulate_knowledge", "notes", f"Notes so far:\n{FIRST}", REJECTED, "length"),
            generation("decide", "judge", f"{FIRST} or {REJECTED}", '{"status": "False"}'),
            generation("accumulate_knowledge", "notes", f"Notes so far:\n{FIRST}", FINAL),
            generation("decide", "judge", f"{FIRST} or {FINAL}", '{"status": "True"}'),
            generation("answer", "answer", f"Question: {question}\nNotes:\n{FINAL}", prediction),
        ],
        note=FINAL,
        answer=prediction,
    )


def write_run(folder: Path, predictions: list[str], errors: dict[int, str]) -> Path:
    """A run of one prediction a question, whose gold answer is its place."""
    folder.mkdir(parents=True)
    records, traces = [], []
    for number, (prediction, gold, person) in enumerate(zip(predictions, PLACES, PEOPLE, strict=True)):
        question = f"Which country's capital is the city where {person} was born?"
        error = errors.get(number, "")
        em = float(prediction == gold)
        records.append(
            {
                "schema": PREDICTION_SCHEMA,
                "question_id": f"q{number}",
                "question": question,
                "answers": [gold],
                "prediction": prediction,
                "note": "" if error else FINAL,
                "error": error,
                "scores": {"em": em, "f1": max(em, 0.25), "note_fact_recall": 0.4 + 0.3 * em, "note_words": 17.0},
                "calls": 7,
                "retrievals": 3,
                "prompt_tokens": 2784 if errors else 2884,
                "completion_tokens": 61 + number,
                "counts": {},
                "words_retrieved": 420,
                "words_answered_from": 105,
                "metadata": {},
            }
        )
        steps = trace(f"q{number}", question, prediction)
        traces.append(Trace(f"q{number}", "deepnote", steps.steps[:2], error=error) if error else steps)
    jsonl.write(folder / "predictions.jsonl", records)
    jsonl.write(folder / "traces.jsonl", (record.to_dict() for record in traces))
    (folder / "config.yaml").write_text("method: deepnote\ntop_k: 5\n")
    intervals = {}
    for metric in records[0]["scores"]:
        interval = bootstrap_interval([record["scores"][metric] for record in records])
        intervals[metric] = {"mean": interval.mean, "low": interval.low, "high": interval.high}
    metrics = {
        "schema": METRICS_SCHEMA,
        "name": folder.name,
        "dataset": "world",
        "method": "deepnote",
        "model": "SmolLM2-135M-Instruct",
        "family": "2wikimultihopqa",
        "questions": len(records),
        "errors": len(errors),
        "metrics": intervals,
        "per_question": {cost: sum(record[cost] for record in records) / len(records) for cost in COSTS},
        "config_hash": "3f9c0b7712ab5521",
        "version": "0.1.0",
    }
    (folder / "metrics.json").write_text(json.dumps(metrics))
    return folder


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("runs")
    before = ["Tirsk", HOSTILE, "Velmor", "", "the sea", "a boat", "a town", "north"]
    after = [*PLACES[:3], "", *PLACES[4:7], "north"]
    return [write_run(folder / "untrained", before, {3: HOSTILE}), write_run(folder / "trained", after, {})]


@pytest.fixture(scope="module")
def browser(chromium, runs, tmp_path_factory):
    report = tmp_path_factory.mktemp("report") / "report.html"
    write_report(runs, report)
    chromium.get(report.as_uri())
    return chromium


@pytest.fixture(autouse=True)
def start_anew(browser):
    browser.refresh()
    waited(browser, "#detail li.generate")


def waited(browser, selector: str):
    """The elements of a selector, as soon as there are any: the page unpacks what it shows."""
    from selenium.webdriver.support.wait import WebDriverWait

    return WebDriverWait(browser, 20, poll_frequency=0.05).until(
        lambda page: page.find_elements("css selector", selector)
    )


def find(browser, selector: str):
    return browser.find_elements("css selector", selector)


def texts(browser, selector: str) -> list[str]:
    return [element.get_property("textContent") for element in find(browser, selector)]


def listed(browser) -> list[str]:
    return [element.get_attribute("data-question") for element in find(browser, "#questions li")]


def search(browser, text: str, count: str) -> None:
    """Search, and wait until this many questions are found: what a search needs is unpacked at the first one."""
    from selenium.webdriver.support.wait import WebDriverWait

    browser.find_element("id", "search").clear()
    browser.find_element("id", "search").send_keys(text)
    WebDriverWait(browser, 20, poll_frequency=0.05).until(
        lambda page: page.find_element("id", "count").text == count, f"{count} for {text}"
    )


def choose(browser, identifier: str, value: str) -> None:
    from selenium.webdriver.support.select import Select

    Select(browser.find_element("id", identifier)).select_by_value(value)


def test_the_headline_table_holds_what_metrics_json_holds(browser, runs):
    header, *rows = (
        [cell.text for cell in row.find_elements("css selector", "th, td")] for row in find(browser, "#scores tr")
    )
    assert header == ["", "untrained", "trained"]
    for column, run in enumerate(runs, start=1):
        metrics = json.loads((run / "metrics.json").read_text())
        means = [each["mean"] for each in metrics["metrics"].values()] + list(metrics["per_question"].values())
        shown = [row[column].splitlines()[0].lstrip("▲▼ ") for row in rows]
        assert [float(text.replace(",", "")) for text in shown] == pytest.approx(means, abs=0.05)
    assert rows[0] == ["Exact match", "0.125\n0.000 to 0.375", "0.750\n0.375 to 1.000"]


def test_differences_that_are_sure_are_marked(browser):
    # Five of eight questions changed, in every score alike: too few. The costs have no p.
    assert find(browser, "#differences .sure.gain") == []
    marked = find(browser, "#differences .sure.count")
    rows = [each.find_element("xpath", "ancestor::tr").find_element("tag name", "th").text for each in marked]
    assert rows == ["Prompt tokens"]


def test_the_plot_shows_the_shares_of_both_runs(browser):
    titles = [title.partition(":")[0] for title in texts(browser, "#scores .plot g title")]
    assert titles == ["untrained", "trained"] * 3
    shown = texts(browser, "#scores .plot text")
    assert [text for text in shown if text in ("Exact match", "Token F1", "Supporting facts in the note")] == [
        *("Exact match", "Token F1", "Supporting facts in the note")
    ]


def test_filters_show_what_is_right_wrong_and_changed(browser):
    assert len(listed(browser)) == 8
    choose(browser, "show", "right")
    assert listed(browser) == ["q0", "q1", "q2", "q4", "q5", "q6"]
    choose(browser, "show", "wrong")
    assert listed(browser) == ["q3", "q7"]
    choose(browser, "show", "changed")
    assert listed(browser) == ["q0", "q1", "q4", "q5", "q6"]
    choose(browser, "show", "lost")
    assert listed(browser) == []
    assert "No question matches" in browser.find_element("id", "questions").text
    choose(browser, "show", "error")
    choose(browser, "run", "0")
    assert listed(browser) == ["q3"]
    assert browser.find_element("id", "count").text == "1 of 8 questions"


def test_the_score_that_says_what_is_right_can_be_chosen(browser):
    choose(browser, "metric", "note_fact_recall")
    choose(browser, "show", "wrong")
    assert listed(browser) == ["q3", "q7"]
    choose(browser, "run", "0")
    assert len(listed(browser)) == 7


def test_search_looks_into_questions_answers_and_notes(browser):
    search(browser, "mirela BORN", "1 of 8 questions")
    assert listed(browser) == ["q1"]
    search(browser, "harrowmere", "1 of 8 questions")
    assert listed(browser) == ["q5"]
    search(browser, "</SCRIPT><!--", "1 of 8 questions")
    assert listed(browser) == ["q1"]
    search(browser, "academy. orvani", "8 of 8 questions")
    search(browser, "academy. nowhere", "0 of 8 questions")


def test_keys_walk_through_the_list_and_reach_the_search(browser):
    assert texts(browser, '[aria-selected="true"] .text') == texts(browser, "#detail h3")
    find(browser, "#questions li")[0].click()
    body = browser.find_element("tag name", "body")
    for key, place in [("j", 1), ("j", 2), ("k", 1), ("k", 0), ("k", 0)]:
        body.send_keys(key)
        assert browser.find_element("css selector", '[aria-selected="true"]').get_attribute("data-index") == str(place)
    body.send_keys("/")
    assert browser.switch_to.active_element.get_attribute("id") == "search"
    search(browser, "jj", "0 of 8 questions")


def test_a_trace_shows_its_steps_and_how_the_note_grew(browser):
    find(browser, '#questions li[data-question="q2"]')[0].click()
    trained = '[data-column="trained"]'
    notes = waited(browser, f"{trained} li.note")
    assert texts(browser, "#golds") == ["Velmor"]
    assert texts(browser, f"{trained} .query") == ["Which country's capital is the city where Tobin Ekhart was born?"]
    assert texts(browser, f"{trained} .titles li")[:2] == ["Arlen Voss", "Tirsk (city)"]
    assert [note.get_attribute("data-stage") for note in notes] == [
        "deepnote/init_note",
        "deepnote/accumulate_knowledge",
        "deepnote/accumulate_knowledge",
    ]
    first, rejected, final = [[mark.text for mark in note.find_elements("tag name", "mark")] for note in notes]
    assert first == []
    assert rejected == ["liked", "boats."]
    # Against the first note, which stands in its prompt, and not against the rejected one.
    assert final == ["is", "capital", "of", "Orvania."]
    assert "cut at max_tokens" in notes[1].text
    assert "the final note" in notes[2].text and "the final note" not in notes[1].text
    assert "412 → 17 tokens" in notes[2].text
    assert texts(browser, f"{trained} .final-note .text-block") == [FINAL]
    assert texts(browser, f"{trained} .answer") == ["Velmor"]


def test_a_prompt_is_folded_away_until_it_is_opened(browser):
    prompt = waited(browser, '[data-column="trained"] .prompt')[0]
    assert prompt.find_elements("tag name", "pre") == []
    prompt.find_element("tag name", "summary").click()
    contents = [block.text for block in waited(prompt, "pre")]
    assert contents[0] == "You keep notes."
    assert contents[1].startswith("Passages ...")


def test_each_call_shows_its_own_prompt(browser):
    find(browser, '#questions li[data-question="q4"]')[0].click()
    calls = waited(browser, '[data-column="trained"] li:is(.note, .generate)')
    assert len(calls) == 7
    for call, start in [(calls[1], f"Notes: {FIRST}"), (calls[5], f"{FIRST} or {FINAL}")]:
        call.find_element("css selector", ".prompt summary").click()
        assert waited(call, "pre")[1].text == start


def test_a_question_that_failed_says_why(browser):
    find(browser, '#questions li[data-question="q3"]')[0].click()
    waited(browser, '[data-column="untrained"] .box.error')
    assert texts(browser, '[data-column="untrained"] .box.error') == [f"Error: {HOSTILE}"]
    assert texts(browser, '#questions li[data-question="q3"] .mark') == ["!", "✗"]


def test_html_in_model_text_is_text_and_nothing_runs(browser):
    find(browser, '#questions li[data-question="q1"]')[0].click()
    waited(browser, '[data-column="untrained"] .answer')
    assert texts(browser, '[data-column="untrained"] .answer') == [HOSTILE]
    waited(browser, "#detail .titles li")
    assert HOSTILE in texts(browser, ".titles li")
    assert find(browser, "#detail script, #detail img") == []
    assert browser.execute_script("return window.hacked ?? null") is None


def test_the_page_asks_the_network_for_nothing_and_logs_no_error(browser):
    find(browser, '#questions li[data-question="q1"]')[0].click()
    waited(browser, "#detail .prompt")[0].find_element("tag name", "summary").click()
    waited(browser, "#detail pre")
    assert browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)") == []
    assert browser.get_log("browser") == []


@pytest.mark.parametrize("width", [420, 1280])
def test_the_page_does_not_scroll_sideways(browser, width):
    metrics = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)
    try:
        assert browser.execute_script("return innerWidth") == width
        assert browser.execute_script("return document.documentElement.scrollWidth") <= width
    finally:
        browser.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
