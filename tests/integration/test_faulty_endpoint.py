"""Pairs from an endpoint that fails one time in five, in every way in which endpoints and proxies fail."""

import random
from collections import Counter

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import tiny_world, write_config

from data_construction import pairs

pytestmark = pytest.mark.integration

FAULTS = ["429", "500", "503", "reset", "stall", "cut", "short", "empty", "no choice"]
SHARE = 0.2


def test_the_dataset_equals_that_of_a_faultless_run_row_for_row(tmp_path):
    world = tiny_world(tmp_path / "world", 10)
    sent = Counter()

    def faults():
        chance = random.Random(0)
        while True:
            fault = chance.choice(FAULTS) if chance.random() < SHARE else None
            sent[fault] += 1
            yield fault

    def build(name, endpoint):
        options = {
            **world,
            "output_dir": str(tmp_path / name),
            "cache": str(tmp_path / f"{name}.sqlite"),
            "stages": {
                "deepnote/init_note": "reference",
                "deepnote/refine_query": "retrieval",
                "deepnote/accumulate_knowledge": "decision",
                "deepnote/answer": "metric",
            },
            "gold_stages": ["deepnote/init_note", "deepnote/answer"],
            "method_options": {"deepnote": {"max_step": 2, "max_failure": 2}},
            "temperatures": [0.1, 0.9],
            "top_ps": [0.5, 0.9],
            "dev_share": 0.3,
            # The address is no part of the results; the model's name is.
            "models": {"policy": {"base_url": endpoint.base_url, "model": endpoint.model, "timeout": 1.0}},
            "concurrency": 10,
        }
        pairs.main(write_config(tmp_path / f"{name}.yaml", options))

    with fake_endpoint() as endpoint:
        build("faultless", endpoint)
    with fake_endpoint(faults=faults(), models_faults=["500", "cut"]) as endpoint:
        build("faulty", endpoint)

    assert all(sent[fault] for fault in FAULTS)
    assert sent.total() - sent[None] > 0.15 * sent.total()
    for name in ("train.parquet", "dev.parquet", "stats.json"):
        assert (tmp_path / "faulty" / name).read_bytes() == (tmp_path / "faultless" / name).read_bytes()
