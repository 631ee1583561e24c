"""The report of many traces: the time to open it, its size, and the memory that writing it takes.

    python benchmarks/report.py --traces 10000 --output_dir runs/report

Writes a run of DeepNote traces whose texts are drawn like words of a language (Zipf's law), with as many passages,
notes and calls as three steps have, makes its report and opens that in a headless Chromium. The last line is a JSON
object: `seconds_to_open` until the first question's steps are on the page, `seconds_to_show` for a question far down
the list, `megabytes` of the page, and of writing it `seconds_to_write` and `peak_memory_megabytes`.
"""

import argparse
import json
import random
import resource
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from notewriter.artifacts.metrics import Metrics, write_metrics
from notewriter.artifacts.predictions import write_predictions
from notewriter.artifacts.traces import Found, Generation, Retrieval, Step, Trace, read_traces
from notewriter.evaluation.scoring import prediction_of, summarise
from notewriter.ground import jsonl
from notewriter.ground.records import Completion, Message, Question, Sampling

WORDS, PASSAGES, PASSAGE_WORDS, TOP_K, STEPS = 30_000, 20_000, 90, 5, 3
SYLLABLES = [consonant + vowel for consonant in "bdfghklmnprstvw" for vowel in ("a", "e", "i", "o", "u", "en", "ar")]
INSTRUCTIONS = {
    "init_note": "Write a note about the question from the passages below, and nothing but what they say.",
    "refine_query": "Ask two new questions whose answers are missing from the note and would help with the question.",
    "accumulate_knowledge": "Add to the note what the new passages say about the question and the note lacks.",
    "decide": "Say whether the second note is better: key information, completeness, detail, practicality.",
    "answer": "Answer the question from the note with only the answer.",
}


def main() -> None:
    """Write the run, then the page, then open it; what is written of the run is used again."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--traces", type=int, default=10_000)
    parser.add_argument("--output_dir", type=Path, default=Path("runs/report"))
    arguments = parser.parse_args()
    run = arguments.output_dir / f"deepnote-{arguments.traces}"
    if not (run / "metrics.json").exists():
        write_run(run, arguments.traces)
    page = (arguments.output_dir / "report.html").resolve()
    start = time.perf_counter()
    command = "import sys; from notewriter.evaluation.report.report import main; main(sys.argv[1:])"
    subprocess.run([sys.executable, "-c", command, "--runs", str(run), "--output", str(page)], check=True)
    written = time.perf_counter() - start
    memory = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss / 1000
    results = {
        **open_page(page),
        "megabytes": round(page.stat().st_size / 1e6, 1),
        "seconds_to_write": round(written, 1),
        "peak_memory_megabytes": round(memory),
        "traces": arguments.traces,
        "traces_megabytes": round((run / "traces.jsonl").stat().st_size / 1e6, 1),
    }
    sys.stdout.write(json.dumps(results) + "\n")


def write_run(folder: Path, count: int) -> None:
    """A run folder as `notewriter evaluate` leaves it."""
    generator = random.Random(0)
    vocabulary = ["".join(generator.choices(SYLLABLES, k=generator.randint(1, 4))) for _ in range(WORDS)]
    weights = [1 / (rank + 2.7) for rank in range(WORDS)]
    words = generator.choices(vocabulary, weights, k=PASSAGES * PASSAGE_WORDS)
    starts = range(0, len(words), PASSAGE_WORDS)
    corpus = [(" ".join(words[start : start + 2]), " ".join(words[start : start + PASSAGE_WORDS])) for start in starts]
    questions = [
        Question(f"question-{number}", " ".join(generator.choices(words, k=18)) + "?", (generator.choice(words),))
        for number in range(count)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    jsonl.write(folder / "traces.jsonl", (trace_of(question, corpus, generator) for question in questions))
    traces = read_traces(folder / "traces.jsonl")
    predictions = [
        prediction_of(question, trace, "hotpotqa") for question, trace in zip(questions, traces, strict=True)
    ]
    write_predictions(folder / "predictions.jsonl", predictions)
    (folder / "config.yaml").write_text("method: deepnote\n")
    metrics = Metrics(
        name=folder.name,
        dataset="benchmark",
        method="deepnote",
        model="none",
        family="hotpotqa",
        config_hash="0",
        version="0",
        **summarise(predictions),
    )
    write_metrics(folder / "metrics.json", metrics)


def trace_of(question: Question, corpus: list[tuple[str, str]], generator: random.Random) -> dict[str, Any]:
    """Three steps of DeepNote: a note copies parts of its passages, and a later one adds to an earlier one."""
    steps: list[Step] = []

    def retrieve(query: str) -> list[tuple[str, str]]:
        found = generator.sample(corpus, TOP_K)
        passages = [Found(id=str(number), title=title) for number, (title, _) in enumerate(found)]
        steps.append(Retrieval(query, TOP_K, passages, 0.012, TOP_K * PASSAGE_WORDS))
        return found

    def generate(stage: str, role: str, text: str, *parts: str) -> str:
        prompt = "\n\n".join([INSTRUCTIONS[stage], f"Question: {question.question}", *parts])
        completion = Completion(text, "stop", len(prompt) // 5, len(text) // 5, 0, round(generator.uniform(0.5, 9), 3))
        messages: list[Message] = [{"role": "user", "content": prompt}]
        steps.append(Generation(f"deepnote/{stage}", role, messages, Sampling(), completion))
        return text

    def parts(passages: list[tuple[str, str]], share: int) -> str:
        return " ".join(" ".join(text.split()[:share]) + "." for _, text in passages)

    def shown(passages: list[tuple[str, str]]) -> str:
        return "\n".join(f"[{number}] {title}\n{text}" for number, (title, text) in enumerate(passages, start=1))

    passages = retrieve(question.question)
    note = generate("init_note", "notes", parts(passages, 12), shown(passages))
    for _ in range(STEPS):
        query = generate("refine_query", "query", " ".join(generator.choice(corpus)[1].split()[:24]) + "?", note)
        passages = retrieve(query)
        longer = generate(
            "accumulate_knowledge", "notes", f"{note} {parts(passages[:3], 10)}", f"Note: {note}", shown(passages)
        )
        status = generate("decide", "judge", '{"status": "True"}', f"First: {note}", f"Second: {longer}")
        note = longer if "True" in status else note
    answer = generate("answer", "answer", " ".join(note.split()[:3]), f"Note: {note}")
    return Trace(question.id, "deepnote", steps, note=note, answer=answer).to_dict()


def open_page(page: Path) -> dict[str, float]:
    """Seconds until the first question's steps stand on the page, and until those of one that the search found do."""
    from selenium import webdriver
    from selenium.webdriver.support.wait import WebDriverWait

    options = webdriver.ChromeOptions()
    options.binary_location = shutil.which("chromium") or ""
    for flag in ("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=webdriver.ChromeService(shutil.which("chromedriver")))
    try:
        wait = WebDriverWait(driver, 120, poll_frequency=0.02)
        start = time.perf_counter()
        driver.get(page.as_uri())
        wait.until(lambda browser: browser.find_elements("css selector", "#detail li.generate"))
        opened = time.perf_counter() - start
        last = driver.execute_script("return questions.at(-1).id")
        start = time.perf_counter()
        driver.find_element("id", "search").send_keys(last)
        wait.until(lambda browser: _shows(browser, last))
        return {"seconds_to_open": round(opened, 2), "seconds_to_show": round(time.perf_counter() - start, 2)}
    finally:
        driver.quit()


def _shows(browser: Any, identifier: str) -> bool:
    names = [element.text for element in browser.find_elements("css selector", "#detail > .name")]
    return names == [identifier] and bool(browser.find_elements("css selector", "#detail li.generate"))


if __name__ == "__main__":
    main()
