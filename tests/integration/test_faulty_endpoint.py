"""Pairs from an endpoint that fails one time in five, in every way in which endpoints and proxies fail."""

import random
from collections import Counter

import pytest
from fake_endpoint import fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_pairs

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
        # The address is no part of the results; the model's name is.
        policy = {"base_url": endpoint.base_url, "model": endpoint.model, "timeout": 1.0}
        settings = {"base_url": None, "model": None, "models": {"policy": policy}, "concurrency": 10}
        build_pairs.main(run_config(tmp_path, name, world, endpoint, DEEPNOTE_PAIRS | settings))

    with fake_endpoint() as endpoint:
        build("faultless", endpoint)
    with fake_endpoint(faults=faults(), models_faults=["500", "cut"]) as endpoint:
        build("faulty", endpoint)

    assert all(sent[fault] for fault in FAULTS)
    assert sent.total() - sent[None] > 0.15 * sent.total()
    for name in ("train.parquet", "dev.parquet", "stats.json"):
        assert (tmp_path / "faulty" / name).read_bytes() == (tmp_path / "faultless" / name).read_bytes()
