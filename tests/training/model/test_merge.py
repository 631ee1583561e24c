"""A merged adapter is a whole model that says what base and adapter say together."""

import io
import json
import pickle
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    BitsAndBytesConfig,
    LlamaConfig,
    LlamaForCausalLM,
    Qwen3_5Config,
    Qwen3_5ForConditionalGeneration,
)

from notewriter.artifacts.training_record import TrainingRecord, write_training_record
from notewriter.ground.errors import UserError
from notewriter.models.checkpoint import Checkpoint
from notewriter.training import merge
from notewriter.training.model.adapters import dequantized, with_adapter


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

    Checkpoint(tmp_path / "merged").check()
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


def test_a_base_that_lacks_weights_is_refused(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    base = shutil.copytree(tiny_model, tmp_path / "base")
    weights = load_file(base / "model.safetensors")
    lost = next(name for name in weights if name.endswith("layers.1.mlp.up_proj.weight"))
    save_file(
        {name: each for name, each in weights.items() if name != lost}, base / "model.safetensors", {"format": "pt"}
    )
    settings = adapter / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(base)))
    with pytest.raises(UserError, match=r"base: .*lack 1 weights.*up_proj"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


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


def test_what_is_merged_already_is_left_as_it_is_and_another_adapter_refused(adapter: Path, tmp_path: Path) -> None:
    """As when a pipeline is started again."""
    merge.merge(adapter, tmp_path / "merged")
    before = (tmp_path / "merged/model.safetensors").stat().st_ino
    merge.merge(adapter, tmp_path / "merged")
    assert (tmp_path / "merged/model.safetensors").stat().st_ino == before
    weights = load_file(adapter / "adapter_model.safetensors")
    save_file({name: 2 * each for name, each in weights.items()}, adapter / "adapter_model.safetensors")
    with pytest.raises(UserError, match="is not empty; remove it"):
        merge.merge(adapter, tmp_path / "merged")


def test_what_is_merged_already_is_looked_at_again(adapter: Path, tmp_path: Path) -> None:
    """As older versions merged a tokenizer whose class loses all spaces."""
    merged = tmp_path / "merged"
    merge.merge(adapter, merged)
    settings = json.loads((merged / "tokenizer_config.json").read_text())
    (merged / "tokenizer_config.json").write_text(json.dumps(settings | {"tokenizer_class": "LlamaTokenizerFast"}))
    with pytest.raises(UserError, match=r"makes other tokens than tokenizer\.json has .*or remove .*merged again"):
        merge.merge(adapter, merged)
    (merged / "tokenizer_config.json").write_text(json.dumps(settings))
    (merged / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has no weights .*or remove .*merged again"):
        merge.merge(adapter, merged)


def test_another_base_than_that_of_the_training_is_refused(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    def record(fingerprint: str) -> None:
        write_training_record(adapter, TrainingRecord(method="dpo", base_model_fingerprint=fingerprint))

    record("0" * 64)
    with pytest.raises(UserError, match=r"adapter: was trained on another base model than .* is now .*; restore that"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()
    # A commit on the hub and the hash of a folder cannot be compared.
    for fingerprint in ("owner/name@abc", Checkpoint(tiny_model).fingerprint()):
        record(fingerprint)
        merge.merge(adapter, tmp_path / f"merged {fingerprint[:3]}")


def torch_saved(content: object) -> bytes:
    file = io.BytesIO()
    torch.save(content, file)
    return file.getvalue()


class Harmful:
    """Makes a file when it is unpickled."""

    def __init__(self, file: Path) -> None:
        self.file = file

    def __reduce__(self) -> tuple[Callable[[Path], None], tuple[Path]]:
        return Path.touch, (self.file,)


def damaged_settings(**changes: object) -> Callable[[Path], bytes]:
    """The bytes of a JSON file with other values."""
    return lambda file: json.dumps(json.loads(file.read_text()) | changes).encode()


def cut(file: Path) -> bytes:
    return file.read_bytes()[:-10]


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{}", b'{"peft_type": "LORA", "r": 4}'])
def test_an_adapters_configuration_that_is_none_is_named(content: bytes, adapter: Path, tmp_path: Path) -> None:
    (adapter / "adapter_config.json").write_bytes(content)
    with pytest.raises(UserError, match=r"adapter_config\.json.*; copy or save the adapter again"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("adapter/adapter_config.json", damaged_settings(peft_type="NOPE")),
        ("adapter/adapter_config.json", damaged_settings(base_model_name_or_path=3)),
        ("adapter/adapter_config.json", damaged_settings(r="four")),
        ("adapter/adapter_config.json", damaged_settings(target_modules=5)),
        ("adapter/adapter_config.json", damaged_settings(alora_invocation_tokens=[1])),
        ("adapter/adapter_model.safetensors", cut),
        ("adapter/adapter_model.safetensors", lambda _: b""),
        ("adapter/adapter_model.bin", lambda _: torch_saved([1, 2])),
        ("adapter/adapter_model.bin", lambda _: torch_saved({1: torch.zeros(2)})),
        ("adapter/adapter_model.bin", lambda _: pickle.dumps({"a": 1})),
        ("adapter/adapter_model.bin", lambda _: b""),
        ("adapter/tokenizer_config.json", lambda _: b"[]"),
        ("base/config.json", lambda _: b"null"),
        ("base/config.json", damaged_settings(dtype={"a": 1})),
        ("base/generation_config.json", lambda _: b"[]"),
        ("base/model.safetensors", cut),
        ("base/model.safetensors.index.json", lambda _: b'{"weight_map": {"a": 3}}'),
        ("base/pytorch_model.bin", lambda _: torch_saved(torch.zeros(2))),
    ],
)
def test_what_is_damaged_ends_in_an_error_that_names_its_folder(
    name: str, damage: Callable[[Path], bytes], adapter: Path, tiny_model: Path, tmp_path: Path
) -> None:
    base = Path(shutil.copytree(tiny_model, tmp_path / "base"))
    settings = adapter / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(base)))
    file = tmp_path / name
    file.write_bytes(damage(file))
    if file.suffix == ".bin":
        next(file.parent.glob("*.safetensors")).unlink()
    with pytest.raises(UserError, match=rf"^{re.escape(str(file.parent))}\b.*; \w") as caught:
        merge.merge(adapter, tmp_path / "merged")
    assert "\n" not in str(caught.value) and "weights_only" not in str(caught.value)
    assert not (tmp_path / "merged").exists()


def test_an_adapters_pickle_is_not_run(adapter: Path, tmp_path: Path) -> None:
    (adapter / "adapter_model.safetensors").unlink()
    (adapter / "adapter_model.bin").write_bytes(torch_saved({"a": Harmful(tmp_path / "ran")}))
    with pytest.raises(UserError, match=r"adapter: cannot be loaded .*pickle"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "ran").exists()


@pytest.fixture
def seeing_model(tiny_model: Path, tmp_path: Path) -> Path:
    """A model that reads images too, whose text alone transformers loads as another class with other names."""
    config = Qwen3_5Config(
        text_config={
            **{"vocab_size": 1000, "hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 4, "head_dim": 16},
            **{"num_attention_heads": 2, "num_key_value_heads": 1, "linear_num_key_heads": 2},
            **{"linear_num_value_heads": 2, "linear_key_head_dim": 16, "linear_value_head_dim": 16},
        },
        vision_config={"depth": 1, "hidden_size": 16, "intermediate_size": 16, "num_heads": 2, "out_hidden_size": 32},
    )
    Qwen3_5ForConditionalGeneration(config).save_pretrained(tmp_path / "seeing")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "seeing")
    return tmp_path / "seeing"


def test_an_adapter_is_merged_into_the_class_that_it_was_trained_on(
    seeing_model: Path, tiny_model: Path, tmp_path: Path
) -> None:
    trained = get_peft_model(
        Qwen3_5ForConditionalGeneration.from_pretrained(seeing_model),
        LoraConfig(r=4, target_modules=["q_proj", "v_proj"], init_lora_weights=False),
    )
    trained.save_pretrained(tmp_path / "adapter")
    # The class of this kind of model makes nothing of the base's vocabulary.
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "adapter")

    merge.merge(tmp_path / "adapter", tmp_path / "merged")

    merged = Qwen3_5ForConditionalGeneration.from_pretrained(tmp_path / "merged")
    torch.testing.assert_close(logits(merged), logits(trained), rtol=1e-4, atol=1e-5)
    assert (logits(merged) - logits(Qwen3_5ForConditionalGeneration.from_pretrained(seeing_model))).abs().max() > 1e-2


def test_an_adapter_of_other_layers_is_refused(seeing_model: Path, tiny_model: Path, tmp_path: Path) -> None:
    """PEFT would leave all layers as they are, and warn."""
    of_text = AutoModelForCausalLM.from_pretrained(seeing_model)
    get_peft_model(of_text, LoraConfig(target_modules=["q_proj", "v_proj"])).save_pretrained(tmp_path / "adapter")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "adapter")
    with pytest.raises(UserError, match="adapter: has no weights for some layers of Qwen3_5ForConditionalGeneration"):
        merge.merge(tmp_path / "adapter", tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_a_tokenizer_whose_class_makes_other_tokens_is_not_saved_with_a_merged_model(
    adapter: Path, tmp_path: Path
) -> None:
    settings = adapter / "tokenizer_config.json"
    content = json.loads(settings.read_text()) | {"tokenizer_class": "LlamaTokenizerFast"}
    content.pop("backend", None)
    settings.write_text(json.dumps(content))
    with pytest.raises(UserError, match="the class LlamaTokenizer makes other tokens than tokenizer"):
        merge.merge(adapter, tmp_path / "merged")
    assert not (tmp_path / "merged").exists()


def test_an_adapter_of_a_deeper_model_is_refused(tmp_path: Path) -> None:
    """PEFT would leave the weights of the layers that are not there out, without a word."""
    for name, layers in (("deep", 4), ("base", 2)):
        config = LlamaConfig(
            **{"vocab_size": 32, "hidden_size": 16, "intermediate_size": 16},
            **{"num_attention_heads": 2, "num_hidden_layers": layers},
        )
        LlamaForCausalLM(config).save_pretrained(tmp_path / name)
    deep = LlamaForCausalLM.from_pretrained(tmp_path / "deep")
    get_peft_model(deep, LoraConfig(target_modules=["q_proj"])).save_pretrained(tmp_path / "adapter")
    told = r"adapter: 4 of its weights, such as model.layers.2.self_attn.q_proj\S+, have no place in LlamaForCausalLM"
    with pytest.raises(UserError, match=told):
        with_adapter(LlamaForCausalLM.from_pretrained(tmp_path / "base"), tmp_path / "adapter")


def test_what_the_base_says_of_images_goes_along(adapter: Path, tiny_model: Path, tmp_path: Path) -> None:
    """vLLM reads it for architectures that take images, where texts alone come too."""
    base = shutil.copytree(tiny_model, tmp_path / "base")
    for name in ("processor_config.json", "preprocessor_config.json", "video_preprocessor_config.json"):
        (base / name).write_text(json.dumps({"name": name}))
    settings = adapter / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(base)))
    merge.merge(adapter, tmp_path / "merged")
    copied = {file.name: json.loads(file.read_text()) for file in (tmp_path / "merged").glob("*processor_config.json")}
    assert len(copied) == 3 and all(content == {"name": name} for name, content in copied.items())


def test_a_base_that_is_stored_in_4_bits_is_expanded_before_merging(
    adapter: Path, tiny_model: Path, tmp_path: Path
) -> None:
    pytest.importorskip("bitsandbytes")
    base = tmp_path / "base"
    quantized = AutoModelForCausalLM.from_pretrained(
        tiny_model, dtype=torch.bfloat16, quantization_config=BitsAndBytesConfig(load_in_4bit=True)
    )
    quantized.save_pretrained(base)
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(base)
    settings = adapter / "adapter_config.json"
    settings.write_text(settings.read_text().replace(str(tiny_model), str(base)))
    merge.merge(adapter, tmp_path / "merged")

    merged = AutoModelForCausalLM.from_pretrained(tmp_path / "merged")
    assert merged.dtype == torch.bfloat16 and not hasattr(merged.config, "quantization_config")
    expanded = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32).dequantize().float()
    together = logits(PeftModel.from_pretrained(expanded, adapter))
    torch.testing.assert_close(logits(merged).float(), together, rtol=0.05, atol=0.05)


def test_a_base_whose_quantization_cannot_be_undone_is_named(monkeypatch: pytest.MonkeyPatch, tiny_model: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert dequantized(model, "base") is model
    model.hf_quantizer = object()
    with pytest.raises(UserError, match=r"base: cannot be loaded as a model with expanded weights \(.*dequantize"):
        dequantized(model, "base")
