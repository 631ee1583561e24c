"""The page in a real browser: started as a command, used by keyboard alone, at two widths, in the dark."""

import json
import os
import re
import signal
import subprocess
import sys

import pytest
from by_hand_pairs import HOSTILE, PASSAGES, pair, write
from fake_endpoint import fake_endpoint

from notewriter.ground.records import Passage
from notewriter.retrieval import bm25

pytestmark = pytest.mark.integration

pytest.importorskip("starlette", reason="needs the extra `serve`")

WIDTHS = {"wide": 1280, "phone": 390}
ADDRESS = re.compile(r"open (http://127\.0\.0\.1:(\d+)/\?token=\S+) in")


@pytest.fixture
def page(tmp_path):
    """Starts `notewriter app`; gives its process and address."""
    running = []

    def start(*options):
        command = [sys.executable, "-m", "notewriter.cli", "app", "--page_port", "0", *map(str, options)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path, env=os.environ)
        running.append(process)
        found = ADDRESS.match(process.stdout.readline())
        return process, found[1]

    yield start
    for process in running:
        process.terminate()
        process.wait(10)


@pytest.fixture
def browser(chromium):
    yield chromium
    chromium.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": []})
    chromium.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def wide(browser, width):
    metrics = {"width": width, "height": 844, "deviceScaleFactor": 1, "mobile": False}
    browser.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", metrics)


def screenshot(browser, name):
    """Kept where PAGE_SCREENSHOTS names a folder."""
    if folder := os.environ.get("PAGE_SCREENSHOTS"):
        browser.save_screenshot(f"{folder}/{name}.png")


def press(browser, key):
    browser.switch_to.active_element.send_keys(key)


def wait_for(browser, text):
    from selenium.common.exceptions import NoSuchElementException, StaleElementReferenceException
    from selenium.webdriver.support.wait import WebDriverWait

    # The page may be replaced by the next one at any time.
    between = (NoSuchElementException, StaleElementReferenceException)
    WebDriverWait(browser, 20, poll_frequency=0.05, ignored_exceptions=between).until(
        lambda page: text in page.find_element("tag name", "main").text, f"{text!r} on the page"
    )


def shown_texts(browser):
    return [each.text for each in browser.find_elements("css selector", ".sides .text-block")]


@pytest.mark.parametrize("width", WIDTHS)
def test_three_pairs_are_judged_by_keyboard_alone(browser, page, tmp_path, width):
    pairs = write(tmp_path / "pairs", [pair(0), pair(1, rejected=HOSTILE), pair(2)])
    wide(browser, WIDTHS[width])
    process, address = page("--pairs", pairs, "--judge_name", "ana")
    browser.get(address)
    assert "token" not in browser.current_url
    press(browser, "\ue004")  # Tab: to the name of the page, then to its only section
    press(browser, "\ue004")
    press(browser, "\ue007")
    wait_for(browser, "0 of 3 judged, 3 left")
    screenshot(browser, f"judge-{width}")
    seen = [shown_texts(browser)]
    press(browser, "d")
    assert browser.find_elements("css selector", "body.differences .sides mark")
    screenshot(browser, f"differences-{width}")
    press(browser, "1")
    wait_for(browser, "1 of 3 judged, 2 left")
    seen.append(shown_texts(browser))
    press(browser, "2")
    wait_for(browser, "2 of 3 judged, 1 left")
    press(browser, "\ue003")  # Backspace
    wait_for(browser, "this is number 2, which you have judged")
    assert shown_texts(browser) == seen[1]
    press(browser, "0")
    wait_for(browser, "2 of 3 judged, 1 left")
    seen.append(shown_texts(browser))
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    assert browser.execute_script("return getComputedStyle(document.body).backgroundColor") == "rgb(20, 24, 27)"
    screenshot(browser, f"dark-{width}")
    # Killed here, it goes on here.
    process.send_signal(signal.SIGKILL)
    process.wait()
    process, address = page("--pairs", pairs, "--judge_name", "ana")
    browser.get(address)
    press(browser, "\ue004")
    press(browser, "\ue004")
    press(browser, "\ue007")
    wait_for(browser, "2 of 3 judged, 1 left")
    assert shown_texts(browser) == seen[2]
    press(browser, "2")
    wait_for(browser, "All judged")
    screenshot(browser, f"judged-{width}")
    labels = [json.loads(line) for line in (tmp_path / "runs/labels/ana.jsonl").read_text().splitlines()]
    assert [label["preferred"] for label in labels] == ["left", "right", "neither", "right"]
    assert [[label["left"], label["right"]] for label in labels] == [seen[0], seen[1], seen[1], seen[2]]
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.execute_script("return window.hacked ?? null") is None
    resources = browser.execute_script("return performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert all(each.startswith(address.partition("/?")[0]) for each in resources)
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


NOTES = [
    "Arlen Voss was a bridge keeper. He was born in Velmor.",
    f"Arlen Voss was a bridge keeper. He was born in Tirsk, the capital of Orvania. {HOSTILE}",
]


def answers(request):
    """A model whose note grows from the first to the second."""
    prompt = request["messages"][-1]["content"]
    if "status" in json.dumps(request.get("response_format", "")) + prompt:
        return '{"status": "True"}'
    if prompt.startswith("Answer"):
        return "Orvania"
    if NOTES[0] in prompt:
        return NOTES[1]
    return NOTES[0]


@pytest.mark.parametrize("width", WIDTHS)
def test_a_question_is_asked_by_keyboard_alone_and_two_answers_part(browser, page, tmp_path, width):
    from selenium.webdriver.support.wait import WebDriverWait

    passages = [line.partition("] ")[2].partition(": ") for line in PASSAGES.splitlines()]
    bm25.build([Passage(title, title, text) for title, _, text in passages], tmp_path / "index")
    wide(browser, WIDTHS[width])
    with fake_endpoint(answers, delay=0.2) as endpoint:
        _, address = page(
            *("--index", tmp_path / "index", "--base_url", endpoint.base_url, "--model", endpoint.model),
            *("--method", "deepnote", "--method_options", '{"max_step": 1, "max_failure": 1, "top_k": 2}'),
            *("--beside", '{"method": "vanilla", "method_options": {"top_k": 3}}'),
        )
        browser.get(address)
        browser.get(address.partition("?")[0] + "ask")
        press(browser, "Where was Arlen Voss born?\ue007")
        # The first step is there long before the last one.
        wait_for(browser, "init note")
        assert "Orvania" not in browser.find_elements("css selector", ".outcome")[0].text
        WebDriverWait(browser, 20, poll_frequency=0.05).until(
            lambda page: len(page.find_elements("css selector", ".final")) == 2
        )
    screenshot(browser, f"ask-{width}")
    browser.execute_script("scrollTo(0, document.body.scrollHeight)")
    screenshot(browser, f"ask-end-{width}")
    assert [each.text for each in browser.find_elements("css selector", ".final")] == ["Orvania", "Orvania"]
    assert [each.text.strip() for each in browser.find_elements("css selector", ".note del")] == ["Velmor."]
    assert HOSTILE.split()[0] in [each.text.strip() for each in browser.find_elements("css selector", ".note ins")]
    parting = browser.find_elements("css selector", ".parting")
    assert len(parting) == 2 and all("here they part" in each.text for each in parting)
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert browser.find_elements("css selector", "main script, main img") == []
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []


@pytest.mark.parametrize("width", WIDTHS)
def test_runs_are_watched_with_their_curves_in_the_dark_too(browser, page, tmp_path, width):
    run = tmp_path / "runs" / "dpo"
    run.mkdir(parents=True)
    (run / "run.json").write_text("{}")
    log = [{"step": step, "loss": 0.7 - step / 100, "rewards/margins": step / 20} for step in range(1, 30)]
    (run / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    (run.parent / "evaluate").mkdir()
    (run.parent / "evaluate" / "run.json").write_text("{}")
    (run.parent / "evaluate" / "traces.jsonl").write_text("{}\n" * 3)
    wide(browser, WIDTHS[width])
    _, address = page("--watch", tmp_path / "runs")
    browser.get(address)
    browser.get(address.partition("?")[0] + "watch")
    wait_for(browser, "3 questions")
    wait_for(browser, "step 29, loss 0.410")
    loaded = "const image = document.querySelector('.run img'); return image.complete && image.naturalWidth > 100"
    assert browser.execute_script(loaded)
    screenshot(browser, f"watch-{width}")
    browser.execute_cdp_cmd(
        "Emulation.setEmulatedMedia", {"features": [{"name": "prefers-color-scheme", "value": "dark"}]}
    )
    screenshot(browser, f"watch-dark-{width}")
    with open(run.parent / "evaluate" / "traces.jsonl", "a") as file:
        file.write("{}\n")
    wait_for(browser, "4 questions")
    assert browser.execute_script("return document.documentElement.scrollWidth <= innerWidth")
    assert [entry for entry in browser.get_log("browser") if entry["level"] == "SEVERE"] == []
