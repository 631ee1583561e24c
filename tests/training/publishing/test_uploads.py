"""Data and models, read back byte for byte through the hub's own client."""

import json
import os
import shutil
from pathlib import Path

import pytest
import torch
from fake_hub import REPO, TOKEN, Hub
from huggingface_hub import DatasetCard, HfApi, ModelCard
from metrics_file import write_metrics
from pair_rows import row
from parquet_files import write_rows
from safetensors.torch import load, save_file

from notewriter.artifacts.best_checkpoint import BEST_CHECKPOINT, NAME, BestCheckpoint, Scored
from notewriter.artifacts.metrics import Interval
from notewriter.artifacts.pairs import COLUMNS
from notewriter.artifacts.run_record import add_start, start_of
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.training.publishing import hub as hub_client
from notewriter.training.publishing import publish

DATA = "someone/notes-pairs"
PAIRS_FILES = {"README.md", "stats.json", "train.parquet", "dev.parquet"}


def data_arguments(folder: Path, **changes: object) -> publish.PublishArguments:
    return publish.PublishArguments(data=str(folder), data_repo_id=DATA, **changes)  # type: ignore[arg-type]


def both(checkpoint: Path, folder: Path, **changes: object) -> publish.PublishArguments:
    return data_arguments(folder, checkpoint=str(checkpoint), repo_id=REPO, **changes)


def read_back(hub: Hub, repo: str, kind: str, to: Path) -> dict[str, bytes]:
    """Path -> content of a repository, downloaded with the hub's client."""
    api = HfApi(endpoint=hub.endpoint, token=TOKEN)
    names = api.list_repo_files(repo, repo_type=kind)
    options = {"repo_type": kind, "local_dir": to}
    return {name: Path(api.hf_hub_download(repo, name, **options)).read_bytes() for name in names}


@pytest.mark.parametrize("by_card", [True, False])
def test_data_whose_card_or_links_lead_outside_its_folder_stay_here(pairs: Path, tmp_path: Path, by_card: bool) -> None:
    shutil.move(pairs / "train.parquet", outside := tmp_path / "private.parquet")
    if by_card:
        card = pairs / "README.md"
        name = os.path.relpath(outside, pairs)
        card.write_text(card.read_text().replace("train.parquet", name))
    else:
        (pairs / "train.parquet").symlink_to(outside)
    with pytest.raises(UserError, match="lies outside the folder, and only its own files are published"):
        publish.publish(data_arguments(pairs, dry_run=True))


def test_pairs_come_back_byte_for_byte_and_load_with_their_splits(hub: Hub, pairs: Path, tmp_path: Path) -> None:
    publish.publish(data_arguments(pairs))
    found = read_back(hub, DATA, "dataset", tmp_path / "back")
    assert found == {name: (pairs / name).read_bytes() for name in PAIRS_FILES}
    from datasets import load_dataset  # takes a second, and only this test needs it

    loaded = load_dataset(str(tmp_path / "back"), cache_dir=str(tmp_path / "cache"))
    assert {split: len(rows) for split, rows in loaded.items()} == {"train": 3, "dev": 1}
    assert loaded["train"][0]["chosen"] == row(0)["chosen"]
    assert hub.repositories["dataset", DATA].private
    assert len(hub.commits) == 1


def test_chains_are_published_the_same_way(hub: Hub, chains: Path, tmp_path: Path) -> None:
    publish.publish(data_arguments(chains))
    assert read_back(hub, DATA, "dataset", tmp_path / "back") == {
        name: (chains / name).read_bytes() for name in PAIRS_FILES
    }


@pytest.mark.parametrize(
    ("column", "content"),
    [
        ("chosen", [{"role": "assistant", "content": f"the key is {TOKEN}"}]),
        ("judge_replies", ["fine", f"Bearer {TOKEN}"]),
        ("question_id", TOKEN),
        ("prompt", [{"role": "user", "content": "read /home/someone/corpus.jsonl"}]),
        ("prompt", [{"role": "user", "content": "password: tr0ub4dor&3x"}]),
    ],
)
def test_a_secret_in_any_column_of_a_row_stops_everything(hub: Hub, pairs: Path, column: str, content: object) -> None:
    rows = [row(0), row(1) | {column: content}, row(2)]  # type: ignore[misc]
    write_rows(pairs / "train.parquet", COLUMNS, rows)
    with pytest.raises(UserError, match=rf"train\.parquet: row 1, {column}") as caught:
        publish.publish(data_arguments(pairs))
    assert TOKEN not in str(caught.value)
    assert hub.requests == []


def test_a_secret_in_the_metadata_of_a_parquet_file_is_found(hub: Hub, pairs: Path) -> None:
    rows = [row(number) for number in range(3)]
    write_rows(pairs / "train.parquet", COLUMNS.with_metadata({"written": "by /home/someone/run.py"}), rows)
    with pytest.raises(UserError, match=r"train\.parquet: metadata"):
        publish.publish(data_arguments(pairs))
    assert hub.requests == []


def test_addresses_in_passages_are_no_folders(hub: Hub, pairs: Path) -> None:
    text = "See https://example.org/home/news/today and http://www.example.edu/~someone/page.html, or ~5/km."
    rows = [row(number) | {"prompt": [{"role": "user", "content": text}]} for number in range(3)]
    write_rows(pairs / "train.parquet", COLUMNS, rows)
    publish.publish(data_arguments(pairs))
    assert len(hub.commits) == 1


@pytest.mark.parametrize("name", ["README.md", "stats.json", "dev.parquet"])
def test_a_dataset_that_is_not_complete_is_refused(hub: Hub, pairs: Path, name: str) -> None:
    (pairs / name).unlink()
    with pytest.raises(UserError, match=name.replace(".", r"\.")):
        publish.publish(data_arguments(pairs))
    assert hub.requests == []


def test_a_dataset_whose_statistics_are_cut_is_refused(hub: Hub, pairs: Path) -> None:
    stats = json.loads((pairs / "stats.json").read_text())
    del stats["stages"]
    (pairs / "stats.json").write_text(json.dumps(stats))
    with pytest.raises(UserError, match=r"stats\.json has no 'stages'; give the folder that"):
        publish.publish(data_arguments(pairs))
    assert hub.requests == []


def test_a_card_without_valid_metadata_is_refused(hub: Hub, pairs: Path) -> None:
    (pairs / "README.md").write_text("---\nlicense: [\n---\n")
    with pytest.raises(UserError, match=r"README\.md: its metadata cannot be read"):
        publish.publish(data_arguments(pairs))


def test_an_upload_that_failed_goes_on_where_it_ended(hub: Hub, checkpoint: Path) -> None:
    hub.faults = [(f"POST /api/models/{REPO}/commit", 409)]
    with pytest.raises(UserError, match=r"409: .*what has arrived is not sent again"):
        publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO))
    hub.requests.clear()
    publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO))
    assert not [request for request in hub.requests if request.startswith("PUT")]
    assert len(hub.commits) == 1


def test_publishing_the_same_again_changes_nothing(hub: Hub, checkpoint: Path, pairs: Path) -> None:
    for _ in range(2):
        publish.publish(both(checkpoint, pairs))
    assert len(hub.commits) == 2


@pytest.fixture
def scores(checkpoint: Path, tmp_path: Path) -> Path:
    """What the evaluation of three checkpoints left, the second of which is the best."""
    folder = tmp_path / "scores"
    (folder / "checkpoint-10").mkdir(parents=True)
    write_metrics(folder / "checkpoint-10" / "metrics.json")
    found = [
        Scored(f"elsewhere/checkpoint-{step}", step, Interval(f1, 0, 1))
        for step, f1 in ((5, 0.2), (10, 0.6), (15, 0.4))
    ]
    BEST_CHECKPOINT.write(folder / NAME, BestCheckpoint("f1", "elsewhere/checkpoint-10", 10, found[1].score, found))
    (checkpoint / "checkpoint-10" / "config.json").write_text("{}")
    (checkpoint / "checkpoint-10" / "tokenizer.json").write_text("{}")
    (checkpoint / "checkpoint-10" / "model.safetensors").write_bytes(b"the best")
    (checkpoint / "checkpoint-10" / "trainer_state.json").write_text("{}")
    return folder


def test_the_checkpoint_that_scored_best_is_published_with_its_scores(hub: Hub, checkpoint: Path, scores: Path) -> None:
    publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, load_best=str(scores)))
    assert hub.arrived()["model.safetensors"] == b"the best"
    text = hub.arrived()["README.md"].decode()
    assert "| published | the checkpoint of step 10, the best of 3 by f1 |" in text
    assert "| base model | Qwen/Qwen2.5-7B-Instruct |" in text
    results = ModelCard(text).data.eval_results
    assert results and results[0].metric_value == 0.5123


def test_a_checkpoint_is_sent_in_the_type_of_the_final_model(
    hub: Hub, checkpoint: Path, scores: Path, tmp_path: Path
) -> None:
    folder = checkpoint / "checkpoint-10"
    for place, dtype in ((checkpoint, torch.bfloat16), (folder, torch.float32)):
        save_file({"weight": torch.ones(4, dtype=dtype)}, place / "model.safetensors")
        (place / "config.json").write_text(json.dumps({"dtype": str(dtype).removeprefix("torch.")}))
    publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, load_best=str(scores)))
    found = read_back(hub, REPO, "model", tmp_path / "back")
    assert load(found["model.safetensors"])["weight"].dtype == torch.bfloat16
    assert json.loads(found["config.json"]) == {"dtype": "bfloat16"}
    # The checkpoint itself is as it was, to resume from.
    assert load((folder / "model.safetensors").read_bytes())["weight"].dtype == torch.float32
    assert not list(checkpoint.parent.glob(".publish-*"))


def test_a_best_checkpoint_that_is_gone_is_named(hub: Hub, checkpoint: Path, scores: Path) -> None:
    shutil.rmtree(checkpoint / "checkpoint-10")
    with pytest.raises(UserError, match=r"checkpoint-10: was the best checkpoint in the evaluation but does not exist"):
        publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, load_best=str(scores)))
    assert hub.requests == []


def test_scores_of_another_run_are_refused(hub: Hub, checkpoint: Path, scores: Path) -> None:
    arguments = publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, load_best=str(scores))
    served = Checkpoint(checkpoint / "checkpoint-10").fingerprint()
    add_start(scores / "checkpoint-10", start_of({}, {"served": served}))
    publish.publish(arguments)
    hub.requests.clear()

    (checkpoint / "checkpoint-10" / "model.safetensors").write_bytes(b"of another training")
    with pytest.raises(UserError, match=r"checkpoint-10: is not the checkpoint that .*scores scored"):
        publish.publish(arguments)
    assert hub.requests == []


def test_scores_without_a_best_checkpoint_are_refused(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"best_checkpoint\.json"):
        publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, load_best=str(tmp_path)))


def test_the_cards_metadata_are_valid_and_link_data_and_base(hub: Hub, checkpoint: Path, pairs: Path) -> None:
    publish.publish(both(checkpoint, pairs, license="apache-2.0"))
    card = ModelCard(hub.arrived()["README.md"].decode())
    assert (card.data.base_model, card.data.datasets) == ("Qwen/Qwen2.5-7B-Instruct", [DATA])
    for line in (
        "| base model | Qwen/Qwen2.5-7B-Instruct | not recorded |",
        f"| training data | {DATA} | cc-by-sa-4.0 |",
        "| this model | notes-135m | apache-2.0 |",
        "vllm serve someone/notes-135m",
        "| deepnote/init_note | not recorded | 4 | none |",
    ):
        assert f"{line}\n" in card.text
    assert DatasetCard(hub.arrived(DATA, "dataset")["README.md"].decode()).data.license == "cc-by-sa-4.0"


def test_training_curves_are_in_the_card(hub: Hub, checkpoint: Path) -> None:
    log = [{"step": step, "loss": 1 / step, "rewards/margins": step / 10} for step in (1, 2, 3)]
    log += [{"step": 2, "eval_loss": 0.6}, {"step": 3, "eval_loss": float("nan")}]
    (checkpoint / "trainer_state.json").unlink()
    (checkpoint / "checkpoint-10" / "trainer_state.json").write_text(json.dumps({"log_history": log}))
    publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO))
    plot = hub.arrived()["curves.svg"].decode()
    assert plot.count("<polyline") == 3
    assert "loss" in plot and "reward margin" in plot and "token accuracy" not in plot
    assert "nan" not in plot
    assert "![Training curves](curves.svg)" in hub.arrived()["README.md"].decode()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({}, "nothing to publish"),
        ({"checkpoint": "x"}, "--repo_id"),
        ({"data": "x"}, "--data_repo_id"),
        ({"data": "x", "data_repo_id": "nobody"}, "--data_repo_id nobody: has no owner"),
    ],
)
def test_what_has_no_repository_is_refused(changes: dict[str, str], message: str) -> None:
    with pytest.raises(UserError, match=message):
        publish.publish(publish.PublishArguments(**changes))  # type: ignore[arg-type]


def test_a_dry_run_lists_data_and_model_and_sends_nothing(
    hub: Hub, checkpoint: Path, pairs: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    publish.publish(both(checkpoint, pairs, dry_run=True))
    shown = capsys.readouterr().out
    assert hub.requests == []
    assert f"dataset {DATA}\n" in shown and f"model {REPO}\n" in shown
    assert "stays here: cache.sqlite, config.yaml, journal.jsonl, notes.parquet" in shown


@pytest.mark.parametrize("before", [0, 285, 299])
def test_no_part_of_the_token_is_in_an_error_however_long(before: int) -> None:
    def fail() -> None:
        raise OSError("x" * before + TOKEN)

    api = HfApi(endpoint="http://127.0.0.1:1", token=TOKEN)
    with pytest.raises(UserError) as caught, hub_client._errors(api, REPO):
        fail()
    assert TOKEN[:3] not in str(caught.value)
