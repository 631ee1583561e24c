"""The command that measures on a GPU, tried without one."""

import importlib
import importlib.util
import io
import json
import subprocess
import sys
import time
import zipfile
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu")


@pytest.fixture
def gpu_measure(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    return importlib.import_module("gpu_measure")


# Does with each measurement what its name says.
FAKE_WORKER = """
import json, os, sys, time
request = json.loads(sys.stdin.readline())
def say(record):
    sys.stdout.write(json.dumps(record) + "\\n")
    sys.stdout.flush()
say({"header": {"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}})
for name, function, options in request["measurements"]:
    say({"begins": name})
    if name == "dies":
        os._exit(9)
    if name == "hangs":
        time.sleep(60)
    if name == "out of memory":
        say({"name": name, "options": options, "outcome": "out of memory", "reason": "CUDA out of memory."})
        continue
    say({"name": name, "options": options, "outcome": "measured", "number": 1.5})
"""


@pytest.fixture
def take(gpu, tmp_path):
    """Measure by name with a worker that computes nothing; returns how many processes it took."""

    def take(names: list[str], seconds: float = 60, limit: int = 30) -> int:
        started = []

        def start(left: list[Any]) -> Any:
            started.append(left)
            request = {"measurements": [(each.name, each.function, each.options) for each in left]}
            with open(tmp_path / "log", "a") as log:
                return gpu.Worker([sys.executable, "-c", FAKE_WORKER], request, {}, log)

        wanted = [gpu.Measurement(name, "", {}, limit) for name in names]
        gpu.supervise(wanted, gpu.Results(tmp_path / "r.jsonl"), start, time.monotonic() + seconds)
        return len(started)

    return take


def test_a_measurement_that_dies_is_recorded_and_the_next_one_begins(gpu, take, tmp_path):
    assert take(["first", "dies", "out of memory", "last"]) == 2
    headers, records = gpu.read(tmp_path / "r.jsonl")
    assert headers == [{"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}]
    assert [record["outcome"] for record in records.values()] == ["measured", "failed", "out of memory", "measured"]
    assert "status 9" in records["dies"]["reason"]


def test_a_measurement_that_hangs_is_ended_at_its_limit(gpu, take, tmp_path):
    take(["hangs", "last"], limit=1)
    _, records = gpu.read(tmp_path / "r.jsonl")
    assert records["hangs"]["reason"] == "no result within 1 s"
    assert records["last"]["outcome"] == "measured"


def test_a_run_ends_when_its_time_is_up_and_the_next_takes_up_what_is_missing(gpu, take, tmp_path):
    take(["first", "hangs"], seconds=3)
    _, records = gpu.read(tmp_path / "r.jsonl")
    assert list(records) == ["first"]
    with open(tmp_path / "r.jsonl", "a") as file:
        file.write('{"name": "cut o')
    assert take(["first", "second"]) == 1
    _, records = gpu.read(tmp_path / "r.jsonl")
    assert list(records) == ["first", "second"]
    assert take(["first", "second"]) == 0


def test_a_failure_is_tried_again_by_the_next_run_and_other_results_are_not(take):
    assert take(["dies", "out of memory"]) == 2
    assert take(["out of memory"]) == 0
    assert take(["dies"]) == 1


def test_results_of_another_machine_are_not_mixed(gpu, take, tmp_path):
    take(["first"])
    with pytest.raises(SystemExit, match="measured with a GPU, not another; name another file"):
        gpu.Results(tmp_path / "r.jsonl").add_header({"device": "another", "versions": {"torch": "2"}})


def test_the_plan_names_each_measurement_once_and_begins_with_the_most_telling(gpu):
    names = [each.name for each in gpu.plan()]
    assert len(names) == len(set(names))
    assert names[0] == "ceiling/bfloat16"
    key = "fast/Qwen2.5-7B/LoRA/2000+100/batch 1/"
    assert names.index(f"{key}TRL") + 1 == names.index(f"{key}shared") < 40
    assert all(f"right/{model}/{batch}/bf16" in names for model in gpu.MODELS for batch in ("ragged", "short", "long"))


def test_every_measurement_can_be_called_with_its_options(gpu, gpu_measure):
    import inspect

    for each in gpu.plan():
        options = dict(each.options)
        function = gpu_measure.MEASUREMENTS[each.function]
        if function in (gpu_measure.fast, gpu_measure.profile):
            inspect.signature(gpu_measure.train).bind(None, None, **options)
        else:
            inspect.signature(function).bind(None, **options)


def test_out_of_memory_is_a_result_and_other_cuda_errors_end_the_process(gpu_measure, monkeypatch):
    import torch

    def fail(machine: Any, error: Exception) -> Any:
        raise error

    monkeypatch.setitem(gpu_measure.MEASUREMENTS, "fail", fail)
    machine = gpu_measure.Machine(torch.device("cpu"), True, None, None, 1)
    memory = torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB.")
    record, usable = gpu_measure.measure(machine, "fail", {"error": memory})
    assert (record["outcome"], usable) == ("out of memory", True)
    record, usable = gpu_measure.measure(machine, "fail", {"error": RuntimeError("CUDA error: illegal access")})
    assert (record["outcome"], usable) == ("failed", False)
    record, usable = gpu_measure.measure(machine, "fail", {"error": ValueError("no such thing")})
    assert (record["outcome"], record["reason"], usable) == ("failed", "ValueError: no such thing", True)


def test_wheels_are_installed_once_into_a_folder_of_their_own_and_not_into_the_environment(gpu, tmp_path):
    wheels, cache = tmp_path / "wheels", tmp_path / "cache"
    wheels.mkdir()
    with pytest.raises(SystemExit, match=r"has no wheels; see docs/gpu\.md"):
        gpu.install(wheels, cache)
    information = "extra_of_a_test-1.0.dist-info"
    with zipfile.ZipFile(wheels / "extra_of_a_test-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("extra_of_a_test.py", "")
        wheel.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: extra-of-a-test\nVersion: 1.0\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    target = gpu.install(wheels, cache)
    assert (target / "extra_of_a_test.py").exists()
    (target / "extra_of_a_test.py").unlink()
    assert gpu.install(wheels, cache) == target
    assert not (target / "extra_of_a_test.py").exists()
    assert importlib.util.find_spec("extra_of_a_test") is None


def test_tables_have_speed_up_limit_mfu_and_the_error_of_the_estimate(gpu):
    def step(way: str, seconds: float, peak: int) -> dict[str, Any]:
        return {
            "name": f"fast/Qwen2.5-7B/LoRA/2000+100/batch 1/{way}",
            "outcome": "measured",
            "attention": "sdpa" if way == "TRL" else "flash_attention",
            "seconds": seconds,
            "tokens": 4200,
            "unique_tokens": 2200,
            "tokens_per_second": 4200 / seconds,
            "unique_tokens_per_second": 2200 / seconds,
            "operations": 1e14,
            "peak_bytes": peak,
            "predicted": {"total": 11 * 2**30, "moments": {"layer": 2, "head": 1}},
        }

    records = {
        "ceiling/bfloat16": {"name": "ceiling/bfloat16", "outcome": "measured", "tflops": 800.0},
        "lost": {"name": "lost", "outcome": "failed", "reason": "a | b\nmore"},
    }
    records |= {each["name"]: each for each in (step("TRL", 0.5, 20 * 2**30), step("shared", 0.25, 10 * 2**30))}
    text = gpu.tables([{"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}], records)
    row = "| Qwen2.5-7B LoRA 2000+100 batch 1 | sdpa | flash_attention | 0.500 | 0.250 | 2.00 | 1.91 |"
    assert f"{row} 8,400 | 16,800 | 4,400 | 8,800 | 25.0% | 50.0% | 20.0 | 10.0 |" in text
    assert "| Qwen2.5-7B LoRA 2000+100 batch 1 shared | 11.0 | 10.0 | +10% | layer |" in text
    assert "| lost | failed | a / b |" in text


def test_exact_attention_is_that_of_pytorch(gpu_measure, monkeypatch):
    import torch

    monkeypatch.setattr(gpu_measure, "ROWS", 5)
    torch.manual_seed(0)
    query, key, value = torch.randn(1, 4, 13, 8), torch.randn(1, 2, 13, 8), torch.randn(1, 2, 13, 8)
    found, _ = gpu_measure.exact_attention(torch.nn.Identity(), query, key, value, None)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=True)
    torch.testing.assert_close(found, expected.transpose(1, 2))

    found, _ = gpu_measure.exact_attention(torch.nn.Identity(), query, key, value, None, sliding_window=3)
    sees = torch.ones(13, 13, dtype=torch.bool).tril().triu(-2)
    expected = torch.nn.functional.scaled_dot_product_attention(query, key, value, sees, enable_gqa=True)
    torch.testing.assert_close(found, expected.transpose(1, 2))


@pytest.mark.parametrize(("window", "seen"), [(None, None), (256, 256), (256, 255), (None, 600)])
def test_the_kernel_is_compared_with_exact_attention(window, seen, gpu_measure, monkeypatch):
    import torch

    def attention(query, key, value, *, cu_seq_q, cu_seq_k, max_q, max_k, window_size, enable_gqa):
        """The kernel, with a window of its own choice."""
        assert window_size == (-1 if window is None else window - 1, 0)
        outputs = []
        for queries, keys in zip(cu_seq_q.unfold(0, 2, 1).tolist(), cu_seq_k.unfold(0, 2, 1).tolist(), strict=True):
            parts = [states[slice(*rows)] for states, rows in ((query, queries), (key, keys), (value, keys))]
            q, k, v = (part.transpose(0, 1)[None].float() for part in parts)
            before = k.shape[2] - q.shape[2]
            sees = torch.ones(q.shape[2], k.shape[2], dtype=torch.bool).tril(before)
            sees = sees if seen is None else sees.triu(before - seen + 1)
            attended = torch.nn.functional.scaled_dot_product_attention(q, k, v, sees, enable_gqa=enable_gqa)
            outputs.append(attended[0].transpose(0, 1).to(query.dtype))
        return torch.cat(outputs)

    monkeypatch.setattr(gpu_measure, "varlen_attn", attention)
    machine = gpu_measure.Machine(torch.device("cpu"), True, None, None, 1)
    record = gpu_measure.kernel(machine, 16, 4, 2, window)
    assert record["right"] == (window == seen)


@pytest.mark.parametrize("model", ["Llama-3.1-8B", "Gemma-3-4B"])
def test_a_toy_model_scores_right_both_ways(model, gpu_measure):
    import torch

    machine = gpu_measure.Machine(torch.device("cpu"), True, None, None, 1)
    record = gpu_measure.exactness(machine, model, "ragged", "fp32")
    assert record["right"]
    assert record["shared"]["log_prob"] < 1e-5


def test_sharing_that_is_wrong_is_called_wrong(gpu_measure, monkeypatch):
    import torch

    from training.prefix_sharing import Layout

    machine = gpu_measure.Machine(torch.device("cpu"), True, None, None, 1)
    mask = Layout.mask
    monkeypatch.setattr(Layout, "mask", lambda layout, queries, keys, _: mask(layout, queries, keys, 5))
    assert not gpu_measure.exactness(machine, "Llama-3.1-8B", "ragged", "bf16")["right"]


@pytest.mark.integration
def test_the_command_runs_on_the_cpu_at_toy_sizes(tmp_path):
    output = tmp_path / "results.jsonl"
    options = ["--device", "cpu", "--toy", "--minutes", "5", "--output", str(output), "--only"]
    options.append(
        "^(ceiling/float32|right/Qwen2.5-7B/ragged/(fp32|LoRA)|(fast|profile)/Qwen2.5-7B/LoRA/2000.100/batch 1/s)"
    )
    command = [sys.executable, "benchmarks/gpu.py", *options]
    printed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    header, *records = (json.loads(line) for line in io.StringIO(output.read_text()))
    assert "benchmarks/gpu.py" in header["header"]["command"]
    assert [record["outcome"] for record in records] == ["measured"] * 5, printed
    assert "## Speed and memory" in printed

    again = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    assert output.read_text().count("\n") == 6
    assert "measured, right" not in again


@pytest.mark.integration
def test_a_real_run_tells_its_losses(gpu_measure, tiny_model, write_pairs):
    import torch

    machine = gpu_measure.Machine(torch.device("cpu"), True, str(tiny_model), str(write_pairs()), 3)
    losses = gpu_measure.real_run(machine, "cpu", "fp32")["losses"]
    assert len(losses) == 3
    assert len(set(losses)) == 3
