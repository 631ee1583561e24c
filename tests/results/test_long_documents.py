"""The pipeline over whole documents, every command of it: from the pages that questions name to the table."""

import importlib.util
import json
import re
import shlex
from urllib.parse import parse_qs, urlsplit

import pytest
from fake_endpoint import FAULTS
from json_service import json_service

from notewriter.corpora import corpus
from notewriter.datasets import BENCHMARKS
from notewriter.experiments import pipeline
from notewriter.experiments.run import read_pipeline
from notewriter.fetching import wikipedia
from notewriter.ground import jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.releases import HOME
from notewriter.results import table
from notewriter.retrieval import index

PIPELINE = "pipelines/long_documents"
RUN = {"corpus": corpus.main, "index": index.main, "table": table.main}
HAS_FANOUTQA = importlib.util.find_spec("fanoutqa") is not None
CONTEXT = 60_000
"""Characters that the scripted model reads at most: about a third of a page."""

AGES = {"Osk (river)": "8,000", "Tolen": "1,200", "Varn": "900", "Fulda": "700"}


def wiki(request):
    """Pages of 20,000 words with an infobox, the answer in the middle; of FanOutQA's the revision that is asked for."""
    asked = {key: value for key, (value,) in parse_qs(urlsplit(request.path).query).items()}
    title = {"11": "Varn", "12": "Fulda"}.get(asked.get("oldid"), asked.get("page"))
    words = [f"<p>{title} has many sights, and this is number {number} of them.</p>" for number in range(2_000)]
    middle = f"<h2>History</h2><p>{title} is {AGES[title]} years old.</p>"
    infobox = f"<table class='infobox'><tr><th>Name</th><td>{title}</td></tr></table>"
    html = "".join([infobox, *words[:1_000], middle, *words[1_000:]])
    return {"parse": {"pageid": sum(map(ord, title)), "title": title, "text": html}}


def fanoutqa():
    parts = [
        {"decomposition": [], "evidence": {"title": title, "revid": revision}}
        for title, revision in (("Varn", 11), ("Fulda", 12))
    ]
    question = {"id": "f1", "question": "How old are Varn and Fulda?", "answer": ["900", "700"], "decomposition": parts}
    return {"fanout-final-dev.json": json.dumps([question])}


def frames():
    columns = ["", "Prompt", "Answer", "wikipedia_link_1", "wikipedia_link_2", "reasoning_types"]
    links = ["https://en.wikipedia.org/wiki/Osk_(river)", "https://en.m.wikipedia.org/wiki/Tolen#Name"]
    rows = [
        ["0", "How old is the Osk?", "8,000", *links, "Multiple constraints | Temporal reasoning"],
        ["1", "How wide is the Osk?", "90", *links, "Tabular reasoning"],
    ]
    return {"test.tsv": "\n".join("\t".join(row) for row in [columns, *rows]) + "\n"}


def multihoprag():
    articles = [
        {"title": name, "body": f"{name} opened today. " * 500, "url": f"https://news.org/{name}"}
        for name in ("Bridge", "Mill")
    ]
    evidence = [{"title": "Bridge", "fact": "Bridge opened today."}]
    asked = {"query": "What opened?", "answer": "Bridge", "question_type": "inference_query", "evidence_list": evidence}
    return {"corpus.json": json.dumps(articles), "MultiHopRAG.json": json.dumps([asked])}


def fetch(arguments):
    """What `notewriter fetch dataset NAME` leaves behind: the files as the benchmarks publish them."""
    if arguments[0] == "pages":
        return wikipedia.main(arguments[1:])
    kind, name = arguments
    assert kind == "dataset"
    folder = BENCHMARKS[name].source.folder
    folder.mkdir(parents=True)
    for file, content in {"fanoutqa": fanoutqa, "frames": frames, "multihoprag": multihoprag}[name]().items():
        (folder / file).write_text(content)


def reply(request):
    """Searches once for what is asked, notes every age, and judges."""
    prompt, *turns = (message["content"] for message in request["messages"])
    if "Decision:" in prompt:
        return "Explanation: It is there.\nDecision: TRUE"
    if "YES#" in prompt:
        ages = re.findall(r"\S+ is [\d,]+ years old\.", prompt)
        return f"YES#{' '.join(ages)}" if ages else "NO#"
    asked = re.findall(r"How old is the (\w+)\?|What (\w+)\?", prompt)
    entity = next((word for words in asked for word in words if word), "Osk")
    return "Action: finish[8,000]" if turns else f"Thought: On.\nAction: search[{entity}; How old?]"


def too_long(request):
    return FAULTS["400"] if sum(len(message["content"]) for message in request["messages"]) > CONTEXT else None


@pytest.mark.integration
@pytest.mark.parametrize("served", [reply], indirect=True)
def test_every_command_of_the_pipeline_leads_to_the_next_and_the_last_to_a_table(served, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv(HOME, str(tmp_path / "fetched"))
    served.endpoint.refuses = too_long
    changes = {"contact": "me@example.org", "model": served.model}
    read = read_pipeline(PIPELINE, str(tmp_path / "out"), changes)
    with json_service(wiki) as service:
        for run in read.runs:
            _, command, *rest = shlex.split(run.command)
            if rest[0] == "pages":
                rest += ["--api", service.url]
            if command == "table" and not HAS_FANOUTQA:
                # Its scorer is a package.
                rest.remove("fanoutqa/*/Llama-3.1-70B-Instruct")
            {"fetch": fetch, **RUN}[command](rest)
    assert {"oldid": ["11"]}.items() <= parse_qs(urlsplit(service.requests[0].path).query).items()
    shown = capsys.readouterr().out
    assert "frames" in shown and "multihoprag" in shown and served.model.rpartition("/")[2] in shown
    assert (tmp_path / "out/noteswriting_table_2.html").is_file()
    cells = {path.name: path for path in (tmp_path / "out/cells").iterdir()}
    (renact,) = (path for name, path in cells.items() if name.startswith("frames-renact"))
    # Of FRAMES the paper takes the questions of multiple constraints.
    ((_, prediction),) = jsonl.read(renact / "predictions.jsonl")
    assert "Osk is 8,000 years old." in prediction["note"] or "(river) is 8,000 years old." in prediction["note"]
    assert prediction["scores"]["supporting_recall"] >= 0.5
    costs = json.loads((renact / "costs.json").read_text())
    assert costs["counts"]["split_pages"] >= 1 and "skipped_page_parts" not in costs["counts"]
    (react,) = (path for name, path in cells.items() if name.startswith("frames-react"))
    ((_, trace),) = jsonl.read(react / "traces.jsonl")
    # ReAct sees the first paragraph of a page, not the infobox above it.
    assert "Osk (river) - Osk (river) has many sights, and this is number 0 of them." in json.dumps(trace)


def test_the_plan_is_printed_and_the_contact_has_to_be_given(tmp_path, capsys):
    pipeline.main([PIPELINE, "--dry_run", "true", "--set", "contact=me@example.org"])
    commands = [line for line in capsys.readouterr().out.splitlines() if not line.startswith("#")]
    assert [shlex.split(line)[1:3] for line in commands] == [
        *[["fetch", "dataset"], ["fetch", "pages"], ["corpus", "--source"], ["index", "--path"]] * 2,
        *[["fetch", "dataset"], ["corpus", "--source"], ["index", "--path"], ["table", "papers/noteswriting/table_2"]],
    ]
    with pytest.raises(UserError, match="contact has no value; add --set contact=VALUE"):
        pipeline.main([PIPELINE, "--dry_run", "true"])
