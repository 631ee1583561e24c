"""Fetching benchmarks, corpora and indexes: completely or not at all, and found afterwards by name."""

import json
from pathlib import Path

from fake_hub import Hub

from notewriter.datasets import BENCHMARKS
from notewriter.fetching import fetch

FRAMES = b"Prompt\tAnswer\nWho founded Tolen?\tMira Tolen\n"


def test_a_dataset_lies_in_the_home_folder_with_its_origin(hub: Hub, tmp_path: Path) -> None:
    release = BENCHMARKS["frames"].source
    hub.publish_release(release, {"test.tsv": FRAMES})
    fetch.main(["dataset", "frames", "--check", "false"])
    assert release.folder == tmp_path / "notewriter" / "frames"
    assert (release.folder / "test.tsv").read_bytes() == FRAMES
    record = json.loads((release.folder / "origin.json").read_text())
    assert record["licence"] == "apache-2.0"
    assert record["files"]["test.tsv"]["address"] == release.files[0].address
    assert {path.name for path in tmp_path.joinpath("notewriter").iterdir()} == {"frames"}
