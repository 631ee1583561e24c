"""A merged adapter is a whole model that says what base and adapter say together."""

from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from transformers import AutoModelForCausalLM, AutoTokenizer

from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.errors import UserError
from notewriter.models import checkpoints
from notewriter.models.checkpoints import check_model
from training import merge


@pytest.fixture
def adapter(tiny_model: Path, tmp_path: Path) -> Path:
    """An adapter that changes its base, and the tokenizer that it was trained with."""
    model = get_peft_model(
        AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32),
        LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False),
    )
    model.save_pretrained(tmp_path / "adapter")
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    tokenizer.chat_template = "{# changed #}" + tokenizer.chat_template
    tokenizer.save_pretrained(tmp_path / "adapter")
    (tmp_path / "adapter/training.json").write_text('{"schema": "notewriter/training/1"}')
    return tmp_path / "adapter"


def logits(model: torch.nn.Module) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.arange(6, 12)[None]).logits


def test_the_merged_model_answers_as_base_and_adapter_together(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    merge.main(["--checkpoint", str(adapter), "--output_dir", str(tmp_path / "merged")])

    check_model(tmp_path / "merged")
    base = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
    before = logits(base)
    together = logits(PeftModel.from_pretrained(base, adapter))
    merged = logits(AutoModelForCausalLM.from_pretrained(tmp_path / "merged"))
    torch.testing.assert_close(merged, together, rtol=1e-4, atol=1e-5)
    assert (merged - before).abs().max() > 1e-2
    assert AutoTokenizer.from_pretrained(tmp_path / "merged").chat_template.startswith("{# changed #}")
    assert (tmp_path / "merged/training.json").is_file()


def test_the_weights_keep_the_precision_of_the_base(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    base = tmp_path / "base"
    AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.bfloat16).save_pretrained(base)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(base)
    settings = adapter / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(base)))

    merge.merge(adapter, tmp_path / "merged")

    assert AutoModelForCausalLM.from_pretrained(tmp_path / "merged", dtype="auto").dtype == torch.bfloat16


def test_what_is_no_adapter_is_refused(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="contains a whole model, which needs no merging"):
        merge.merge(tiny_model, tmp_path / "merged")
    with pytest.raises(UserError, match="contains no LoRA adapter"):
        merge.merge(tmp_path, tmp_path / "merged")
    with pytest.raises(UserError, match="is not empty; remove it"):
        merge.merge(adapter, tiny_model)
    (adapter / "adapter_model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no adapter_model\.safetensors"):
        merge.merge(adapter, tmp_path / "merged")


def test_another_base_than_that_of_the_training_is_refused(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    def record(fingerprint: str) -> None:
        write_training_record(adapter, TrainingRecord(method="dpo", base_model_fingerprint=fingerprint))

    record("0" * 64)
    with pytest.raises(UserError, match=r"adapter: was trained on another base model than .* is now .*; restore that"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    # A commit on the hub and the hash of a folder cannot be compared.
    for fingerprint in ("owner/name@abc", checkpoints.fingerprint(tiny_model)):
        record(fingerprint)
        merge.merge(adapter, tmp_path / f"merged {fingerprint[:3]}")
