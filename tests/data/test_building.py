"""Pairs from Python are those of the command."""

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_pairs as command
from notewriter.data.building import build_pairs
from notewriter.ground.errors import UserError


@pytest.fixture(scope="module")
def world(tmp_path_factory):
    return tiny_world(tmp_path_factory.mktemp("world"), 4)


def test_a_call_from_python_makes_the_pairs_of_the_command(world, tmp_path):
    with fake_endpoint() as endpoint:
        made = build_pairs(
            **world,
            **DEEPNOTE_PAIRS,
            output_dir=tmp_path / "python",
            base_url=endpoint.base_url,
            model=endpoint.model,
            cache=str(tmp_path / "python.sqlite"),
        )
        command.main(run_config(tmp_path, "command", world, endpoint, DEEPNOTE_PAIRS))
    assert made == tmp_path / "python"
    for name in ("train.parquet", "stats.json"):
        assert (made / name).read_bytes() == (tmp_path / "command" / name).read_bytes()


@pytest.mark.parametrize(
    ("options", "problem"),
    [({"judge": "llm"}, "unknown option 'judge'"), ({"dev_share": "much"}, "dev_share"), ({"limit": 0}, "limit")],
)
def test_an_option_that_does_not_fit_is_named(tmp_path, options, problem):
    with pytest.raises(UserError, match=problem):
        build_pairs(path="questions.jsonl", output_dir=tmp_path, stages={"vanilla/answer": "metric"}, **options)
