"""Memory by component, computed by hand from what DeepSpeed, accelerate, PyTorch and TRL allocate; tokens and hours."""

import json
from pathlib import Path
from typing import Any

import pytest
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM
from trl import ModelConfig, get_quantization_config

from notewriter.ground.errors import UserError
from notewriter.training import preflight
from notewriter.training.cost import cost_model
from notewriter.training.cost.operations import peak_tflops
from notewriter.training.options import DPOConfiguration, SFTConfiguration

# Qwen2.5-7B: parameters, its head (or its input embedding), and one of its 28 layers.
N = 7_615_616_512
HEAD = 152_064 * 3_584
LAYER = (N - 2 * HEAD) // 28
QWEN = cost_model.Shape(
    parameters=N,
    computing=N - HEAD,
    trained=N,
    layers=28,
    hidden=3584,
    intermediate=18_944,
    key_value=512,
    vocabulary=152_064,
)
ADAPTERS = 40_370_176

# One pair of 2,000 + 120 tokens.
TOKENS = 2 * 2120
LOAD = cost_model.Load(rows=6000, forward_tokens=6000 * TOKENS, longest=TOKENS, longest_sequence=2120, trained=240)
INPUTS = 28 * TOKENS * 3584
INSIDE = TOKENS * (10 * 3584 + 2 * 512 + 4 * 18_944)
TILE = 240 * 32_768
BUCKET = 500_000_000


def estimated(
    sharding: str = "zero3",
    gpus: int = 8,
    *,
    dtype: str = "float32",
    half: bool = True,
    lora: bool = False,
    adapters: int = ADAPTERS,
    method: Any = DPOConfiguration,
    load: cost_model.Load = LOAD,
    machine: dict[str, Any] | None = None,
    peak: float | None = None,
    **options: Any,
) -> dict[str, Any]:
    settings = {"output_dir": "run", "per_device_train_batch_size": 1, "gradient_checkpointing": True} | options
    model = ModelConfig(model_name_or_path="qwen", dtype=dtype, use_peft=lora)
    shape = cost_model.Shape(**(vars(QWEN) | {"trained": adapters})) if lora else QWEN
    arguments = cost_model.MachineArguments(gpus=gpus, sharding=sharding, **(machine or {}))
    return cost_model.estimate(shape, load, arguments, method(**settings), model, half, peak)


def test_zero3_holds_half_precision_weights_beside_a_float32_copy_and_a_bucket() -> None:
    found = estimated("zero3")

    share = N // 8
    assert found["held"] == {
        "weights": 2 * share,
        "reference": 2 * share,
        "gradients": 2 * share,
        "optimizer": 12 * share,
        "bucket": 2 * BUCKET,
    }
    gathered = 2 * (BUCKET + LAYER)
    assert found["moments"] == {
        "layer": 2 * INPUTS + 2 * INSIDE + gathered + 2 * BUCKET,
        "head": 2 * INPUTS + gathered + 6 * HEAD + 2 * TILE,
        "forward": 2 * INPUTS,
        "step": 6 * share,
    }
    assert found["total"] == 18 * share + 2 * BUCKET + 6 * share
    assert 22 < found["total"] / 2**30 < 24


@pytest.mark.parametrize(
    ("prompt", "batch", "stacked", "shared"),
    [(2000, 1, 17.518, 16.418), (2000, 4, 24.447, 20.062), (8000, 1, 24.118, 19.732)],
)
def test_a_lora_step_peaks_where_a_gpu_was_seen_to(prompt: int, batch: int, stacked: float, shared: float) -> None:
    """DPO of Qwen2.5-7B with rank 32 and completions of 100 tokens, GiB on an H200 (docs/results/gpu.md)."""
    for peak, longest in ((stacked, 2 * (prompt + 100)), (shared, prompt + 200)):
        load = cost_model.Load(1, longest, longest, longest_sequence=longest // 2, trained=200)
        found = estimated(
            "none", 1, dtype="bfloat16", lora=True, adapters=2 * ADAPTERS, load=load, per_device_train_batch_size=batch
        )
        assert 0.97 < found["total"] / 2**30 / peak < 1


def test_zero2_divides_gradients_and_optimizer_alone_and_has_its_bucket_in_the_backward() -> None:
    found = estimated("zero2")

    share = N // 8
    assert found["held"] == {
        "weights": 2 * N,
        "reference": 2 * N,
        "gradients": 2 * share,
        "optimizer": 12 * share,
        "bucket": 0,
    }
    assert found["moments"] == {
        "layer": 2 * INPUTS + 2 * INSIDE + 4 * BUCKET,
        "head": 2 * INPUTS + 2 * BUCKET + 6 * HEAD + 2 * TILE,
        "forward": 2 * INPUTS,
        "step": 6 * share,
    }


def test_offload_leaves_the_bucket_and_what_is_gathered_on_the_gpu() -> None:
    found, sharded = estimated("zero3_offload"), estimated("zero3")

    assert found["held"] == {"bucket": 2 * BUCKET}
    assert found["moments"] == sharded["moments"] | {"step": 0}
    # 18 bytes as on the GPU, and the optimizer's float32 gradients.
    assert found["machine"] == 22 * N // 8
    assert sharded["machine"] == 0
    assert "GiB of the machine's for each" in cost_model.table(found)


def test_fsdp2_holds_float32_weights_and_gathers_the_whole_reference() -> None:
    found = estimated("fsdp2")

    share = N // 8
    assert found["held"] == {
        "weights": 4 * share,
        "reference": 4 * share,
        "gradients": 4 * share,
        "optimizer": 8 * share,
        "bucket": 0,
    }
    assert found["moments"] == {
        "layer": 2 * INPUTS + 2 * INSIDE + 4 * LAYER + 4 * LAYER,
        "head": 2 * INPUTS + 4 * LAYER + 8 * HEAD + 2 * TILE,
        "forward": 2 * INPUTS + 4 * N + 2 * HEAD,
        "step": 0,
    }
    assert estimated("fsdp2", precompute_ref_log_probs=True)["moments"]["forward"] == 2 * INPUTS


def test_one_gpu_under_autocast_keeps_float32_and_copies_of_the_weights() -> None:
    found = estimated("none", 1)

    assert found["held"] == {
        "weights": 4 * N,
        "reference": 4 * N,
        "gradients": 4 * N,
        "optimizer": 8 * N,
        "bucket": 0,
    }
    assert found["moments"] == {
        # The residual stream is float32.
        "layer": 4 * INPUTS + 2 * INSIDE + 6 * TOKENS * 3584,
        "head": 4 * INPUTS + 4 * HEAD + 2 * TILE,
        "forward": 4 * INPUTS + 2 * 28 * LAYER,
        "step": 0,
    }
    # DDP reduces gradients in buckets of their own.
    assert estimated("none", 8)["held"]["gradients"] == 8 * N
    # Half-precision weights are trained as they are, moments included.
    stored = estimated("none", 1, dtype="bfloat16")["held"]
    assert (stored["weights"], stored["gradients"], stored["optimizer"]) == (2 * N, 2 * N, 4 * N)


@pytest.mark.parametrize(
    ("sharding", "weights", "gradients", "optimizer", "head"),
    [
        ("none", 2 * N, 2 * 4 * ADAPTERS, 8 * ADAPTERS, 0),
        ("zero2", 2 * N, 2 * ADAPTERS // 8, 12 * ADAPTERS // 8, 2 * BUCKET),
        ("zero3", 2 * N // 8, 2 * ADAPTERS // 8, 12 * ADAPTERS // 8, 2 * (BUCKET + LAYER) + 2 * HEAD),
        ("fsdp2", 2 * N // 8, 4 * ADAPTERS // 8, 8 * ADAPTERS // 8, 4 * LAYER + 2 * HEAD),
    ],
)
def test_lora_trains_little_and_needs_neither_a_reference_nor_the_heads_gradient(
    sharding: str, weights: int, gradients: int, optimizer: int, head: int
) -> None:
    found = estimated(sharding, 8, dtype="bfloat16", lora=True)

    held = found["held"]
    assert (held["weights"], held["reference"]) == (weights, 0)
    assert (held["gradients"], held["optimizer"]) == (gradients, optimizer)
    assert found["moments"]["head"] == 2 * INPUTS + head + 2 * TILE


def test_without_half_precision_everything_is_float32_once() -> None:
    held = estimated("zero3", half=False)["held"]

    assert held == {"weights": N // 2, "reference": N // 2, "gradients": N // 2, "optimizer": N, "bucket": 4 * BUCKET}


def test_a_reference_is_there_in_dpo_that_does_not_precompute() -> None:
    assert estimated(precompute_ref_log_probs=True)["held"]["reference"] == 0
    assert estimated(method=SFTConfiguration)["held"]["reference"] == 0


def test_without_checkpointing_the_inside_of_every_layer_is_kept() -> None:
    found = estimated("zero3", gradient_checkpointing=False)["moments"]

    assert found["layer"] == 28 * 2 * INSIDE + 2 * (BUCKET + LAYER) + 2 * BUCKET


@pytest.mark.parametrize(
    ("options", "half"),
    [
        ([], True),
        (["--bf16", "true"], True),
        (["--bf16", "false"], False),
        (["--bf16", "false", "--fp16", "true"], True),
    ],
)
def test_a_run_on_gpus_is_in_half_precision_unless_it_says_otherwise(options: list[str], half: bool) -> None:
    assert cost_model.in_half_precision(options) is half


def test_parameters_are_counted_from_the_configuration(tiny_model: Path) -> None:
    from transformers import AutoModelForCausalLM

    shape = cost_model.shape_of(ModelConfig(model_name_or_path=str(tiny_model)))

    network = AutoModelForCausalLM.from_pretrained(tiny_model)
    assert shape.parameters == shape.trained == network.num_parameters()
    assert shape.computing == network.num_parameters() - network.get_input_embeddings().weight.numel()
    assert (shape.layers, shape.hidden, shape.intermediate, shape.key_value) == (2, 32, 64, 16)


def test_hours_follow_the_peak_and_the_number_of_gpus() -> None:
    one = estimated(gpus=1, machine={"utilization": 0.5}, peak=1)
    assert one["hours"] == pytest.approx(one["operations"] / 0.5e12 / 3600)
    four = estimated(gpus=4, machine={"utilization": 0.5}, peak=1)
    assert four["hours"] == pytest.approx(one["hours"] / 4)
    assert "hours" not in estimated()


def test_without_a_utilization_hours_take_the_usual_one() -> None:
    for gpu, peak in (("H200", 989), ("A100", 312)):
        found = estimated(machine={"gpu": gpu})
        assert found["hours"] == pytest.approx(found["operations"] / (8 * peak * 1e12 * 0.35) / 3600)


SMALLER = cost_model.Shape(**(vars(QWEN) | {"parameters": 1_543_714_304, "computing": 1_543_714_304, "hidden": 1536}))
MEASURED = Path(__file__).parents[3] / "docs/results/gpu.jsonl"


@pytest.mark.parametrize("lengths", [(2000, 100, 4), (8000, 100, 1)])
@pytest.mark.parametrize(("name", "lora"), [("Qwen2.5-7B LoRA", True), ("Qwen2.5-1.5B full", False)])
def test_hours_are_those_that_were_measured_on_an_h200(
    name: str, lora: bool, lengths: tuple[int, int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    prompt, completion, batch = lengths
    records = {record["name"]: record for record in map(json.loads, MEASURED.read_text().splitlines())}
    measured = records[f"step {name} {prompt} {completion} {batch}"]["shared"]["seconds"]

    load = cost_model.load_of([(prompt, completion, completion)] * batch, shared=True)
    if not lora:
        monkeypatch.setattr(f"{__name__}.QWEN", SMALLER)
    options = {"per_device_train_batch_size": batch, "num_train_epochs": 1}
    found = estimated("none", 1, lora=lora, load=load, machine={"gpu": "H200"}, **options)

    assert found["steps"] == 1
    assert 0.9 < found["hours"] * 3600 / measured < 1.15


def test_a_shared_prompt_is_estimated_once(tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sizes = ["--rows", "10", "--prompt_tokens", "30", "--completion_tokens", "5"]
    argv = ["--model_name_or_path", str(tiny_model), "--pairs", "pairs", *sizes, "--num_train_epochs", "1"]
    for shared, tokens in (("true", 30 + 2 * 5), ("false", 2 * (30 + 5))):
        preflight.main([*argv, "--prefix_sharing", shared])
        assert f"{10 * tokens} tokens" in capsys.readouterr().out


def test_what_is_not_known_is_refused() -> None:
    with pytest.raises(UserError, match="unknown gpu 'A1000'"):
        estimated(machine={"gpu": "A1000"})
    with pytest.raises(
        UserError, match="unknown sharding 'zero4'; choose one of: fsdp2, none, zero2, zero3, zero3_off"
    ):
        estimated("zero4")


def test_gpus_are_known_by_their_drivers_names() -> None:
    assert peak_tflops("NVIDIA A100-SXM4-80GB") == 312
    assert peak_tflops("NVIDIA H100 80GB HBM3") == 989
    assert peak_tflops("NVIDIA GeForce RTX 4090") == 165
    assert peak_tflops("NVIDIA L40S") == 362
    assert peak_tflops("NVIDIA L40") == 181
    assert peak_tflops("NVIDIA RTX 6000 Ada Generation") == 364
    assert peak_tflops("Some CPU") is None


def test_cards_with_less_throughput_than_their_namesakes_have_their_own_peak() -> None:
    assert peak_tflops("NVIDIA H100 PCIe") == 756
    assert peak_tflops("NVIDIA H100 NVL") == peak_tflops("NVIDIA H200 NVL") == 835
    assert (peak_tflops("NVIDIA A10"), peak_tflops("NVIDIA A10G")) == (125, 70)
    assert peak_tflops("NVIDIA GH200 480GB") == 989
    assert peak_tflops("NVIDIA RTX A4000") is None


# The linear layers of Qwen2.5-7B without its head; what is left are embeddings, head, norms and biases.
LINEAR = 28 * (2 * 3584 * 3584 + 2 * 3584 * 512 + 3 * 3584 * 18_944)


@pytest.mark.parametrize(("nested", "bits"), [(True, 4.127), (False, 4.5)])
def test_qlora_holds_linear_layers_in_four_bits_and_their_scales(nested: bool, bits: float) -> None:
    """QLoRA, section 3: 0.5 bits a parameter for the scales, and 0.127 where these are quantized too."""
    model = ModelConfig("qwen", dtype="bfloat16", use_peft=True, load_in_4bit=True, use_bnb_nested_quant=nested)
    shape = cost_model.Shape(**(vars(QWEN) | {"trained": ADAPTERS, "linear": LINEAR}))
    training = DPOConfiguration("run", per_device_train_batch_size=1, gradient_checkpointing=True)
    found = cost_model.estimate(shape, LOAD, cost_model.MachineArguments(), training, model, half=True)

    held = found["held"]
    assert held["weights"] == pytest.approx(LINEAR * bits / 8 + (N - LINEAR) * 2, rel=1e-3)
    # TRL trains the adapter in bfloat16.
    assert (held["gradients"], held["optimizer"], held["reference"]) == (2 * ADAPTERS, 4 * ADAPTERS, 0)
    with pytest.raises(UserError, match="no estimate of quantized weights with zero3"):
        cost_model.estimate(shape, LOAD, cost_model.MachineArguments(8, "zero3"), training, model, half=True)


def test_8_bit_adam_holds_two_moments_of_a_byte() -> None:
    found = estimated("none", 1, optim="adamw_bnb_8bit")

    assert found["held"]["optimizer"] == pytest.approx(2 * N * (1 + 4 / 256), rel=1e-6)
    assert estimated("none", 1)["held"]["optimizer"] == 2 * 4 * N


def test_the_weights_of_a_quantized_model_take_what_is_estimated(tmp_path: Path) -> None:
    pytest.importorskip("bitsandbytes", reason="needs the extra qlora")
    configuration = LlamaConfig(hidden_size=256, intermediate_size=512, num_hidden_layers=2, num_attention_heads=4)
    LlamaForCausalLM(configuration).save_pretrained(tmp_path)
    model = ModelConfig(str(tmp_path), dtype="bfloat16", use_peft=True, load_in_4bit=True, use_bnb_nested_quant=True)
    shape = cost_model.shape_of(model)

    quantization = get_quantization_config(model)
    loaded = LlamaForCausalLM.from_pretrained(tmp_path, quantization_config=quantization, dtype="bfloat16")

    scales = shape.linear * (1 / 64 + 4 / (64 * 256))
    compressed = cost_model.compressed_width(model)
    assert compressed is not None
    estimate = (shape.parameters - shape.linear) * 2 + compressed * shape.linear
    # Of quantized weights, transformers counts the bytes without the scales.
    assert loaded.get_memory_footprint(return_buffers=False) == pytest.approx(estimate - scales, rel=1e-3)


def test_each_layer_that_is_not_recomputed_keeps_its_inside_in_place_of_its_input() -> None:
    def total(recomputed: int | None) -> float:
        training = DPOConfiguration("run", per_device_train_batch_size=1, gradient_checkpointing="auto")
        model = ModelConfig(model_name_or_path="qwen", dtype="bfloat16", use_peft=True)
        machine = cost_model.MachineArguments()
        shape = cost_model.Shape(**(vars(QWEN) | {"trained": ADAPTERS}))
        return cost_model.memory(shape, LOAD, machine, training, model, True, recomputed).total

    # By default all, as the estimate for hours.
    assert total(None) == total(28)
    # The first layers are recomputed, when the insides of the others are free: there is none beside.
    assert total(26) - total(27) == total(0) - total(1) == 2 * INSIDE - 2 * TOKENS * 3584
    assert total(27) == total(28) + (total(0) - total(1)) - 2 * INSIDE


def test_by_need_the_estimate_says_what_lies_between() -> None:
    options = {"dtype": "bfloat16", "lora": True}
    by_need, none = (estimated("none", 1, gradient_checkpointing=each, **options) for each in ("auto", False))
    assert by_need["without_recomputation"] == none["total"]
    assert "; without recomputation" in cost_model.table(by_need)
    assert "; without recomputation" not in cost_model.table(none)


def test_what_pairs_of_a_batch_repeat_is_computed_once() -> None:
    prompts = [[1, 2, 3], [1, 2, 3], [1, 2, 3], [4, 5]]
    chosen = [[7], [7], [8, 9], [7]]
    dataset = Dataset.from_dict({"prompt_ids": prompts, "chosen_ids": chosen})
    # The second pair repeats prompt and chosen side, the third one its prompt.
    assert cost_model.repeated_tokens(dataset, batch=4) == 4 + 3
    # The third one begins a batch.
    assert cost_model.repeated_tokens(dataset, batch=2) == 4
    assert cost_model.repeated_tokens(dataset, batch=1) == 0
