import pytest
from fake_endpoint import fake_endpoint
from tiny_world import run_config, tiny_world
from written_runs import write_run as write_run

from notewriter.evaluation import evaluate


@pytest.fixture(scope="session")
def noted_runs(tmp_path_factory):
    """A folder with two runs, `before` with notes of a word and `after` with notes of twelve words, and their world."""
    folder = tmp_path_factory.mktemp("runs")
    world = tiny_world(folder / "world")

    def noting(note):
        return lambda request: "nobody" if request["messages"][0]["content"].startswith("Answer") else note

    for name, note in (("before", "nothing"), ("after", "words " * 12)):
        with fake_endpoint(noting(note)) as endpoint:
            settings = {"method_options": {"adaptive_retrieval": False, "top_k": 3}}
            evaluate.main(run_config(folder, name, world, endpoint, settings))
    return folder, world
