"""A model that is served by a stand-in, and tiny questions and indexes of every benchmark."""

import contextlib
import json
from types import SimpleNamespace

import pytest
from benchmark_files import TWO_QUESTIONS, write_lines, write_two_questions
from fake_endpoint import fake_endpoint, pleasing
from written_runs import noted_runs as noted_runs
from written_runs import write_run as write_run

from notewriter.models import roles, servers
from notewriter.results import table
from notewriter.retrieval import index

PASSAGES = [
    {"id": "p1", "title": "Low Tide", "text": "Low Tide is a film. It was directed by Ana Kesk."},
    {"id": "p2", "title": "Ana Kesk", "text": "Ana Kesk was born in Brel. She won."},
]


@pytest.fixture(scope="session")
def slices(tmp_path_factory):
    """The options that lead to two questions and an index of every benchmark."""
    folder = tmp_path_factory.mktemp("slices")
    write_lines(folder / "corpus.jsonl", *PASSAGES)
    index.main(["--path", str(folder / "corpus.jsonl"), "--index", str(folder / "indexes/one")])
    for dataset in TWO_QUESTIONS:
        (folder / "indexes" / dataset).symlink_to("one")
    questions = {dataset: str(write_two_questions(folder, dataset)) for dataset in TWO_QUESTIONS}
    return ["--indexes", str(folder / "indexes"), "--questions", json.dumps(questions)]


@pytest.fixture
def served(monkeypatch, request):
    """Serves by the scripted endpoint; lists what was served. `model` is the hub id, a parameter what replies."""
    calls = []
    with fake_endpoint(getattr(request, "param", pleasing)) as endpoint:

        @contextlib.contextmanager
        def serve(path, options, **_):
            calls.append(str(path))
            endpoint.model = options.get("served_model_name", str(path))
            yield SimpleNamespace(base_url=endpoint.base_url, ensure_alive=lambda: None)

        monkeypatch.setattr(servers, "serve", serve)
        # It would look for the tokenizer on the hub.
        monkeypatch.setattr(roles, "check_template", lambda *_: None)
        monkeypatch.setattr(servers, "options_of", lambda model, options: dict(options))
        yield SimpleNamespace(model="scripted/Small-1B", calls=calls, endpoint=endpoint)


@pytest.fixture
def run_table(slices, served, tmp_path, capsys):
    """Runs the command on a table file with the substitutes; returns what it prints."""

    def run(path, *options):
        capsys.readouterr()
        table.main([str(path), "--output_dir", str(tmp_path / "out"), *slices, "--model", served.model, *options])
        return capsys.readouterr().out

    return run
