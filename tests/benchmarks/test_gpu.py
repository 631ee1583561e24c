"""The script that measures on a GPU, tried without one at toy sizes."""

import json
import sys
from pathlib import Path

import pytest
import torch

from notewriter.training.sharing.prefix_sharing import Layout

ROOT = Path(__file__).parents[2]
# As where it is run: beside the scripts that it imports.
sys.path.insert(0, str(ROOT / "benchmarks"))
import gpu  # noqa: E402


@pytest.mark.parametrize("shape", ["Llama-3.1-8B", "Gemma-3-4B"])
def test_shared_scoring_of_a_toy_model_is_right(shape):
    record = gpu.exactness("cpu", True, shape)
    assert record["right"]
    assert record["float32, shared"]["log_prob"] < 1e-5


def test_shared_scoring_that_is_wrong_is_called_wrong(monkeypatch):
    mask = Layout.mask
    monkeypatch.setattr(Layout, "mask", lambda layout, queries, keys, _: mask(layout, queries, keys, 5))
    assert not gpu.exactness("cpu", True, "Llama-3.1-8B")["right"]


@pytest.mark.parametrize(("window", "seen"), [(0, 0), (20, 20), (20, 19), (0, 50)])
def test_the_kernel_is_right_where_it_sees_what_it_should(window, seen, monkeypatch):
    def varlen_attn(query, key, value, query_bounds, key_bounds, longest, longest_key, *, window_size, enable_gqa):
        """The kernel, with a window of its own choice."""
        assert window_size == (window - 1 if window else -1, 0)
        attended = []
        for number in range(2):
            first, last = query_bounds[number], query_bounds[number + 1]
            own = slice(key_bounds[number], key_bounds[number + 1])
            parts = [states.transpose(0, 1).float() for states in (query[first:last], key[own], value[own])]
            queries, keys = parts[0].shape[1], parts[1].shape[1]
            # The last query sees the last key.
            sees = torch.ones(queries, keys, dtype=torch.bool).tril(keys - queries)
            sees = sees.triu(keys - queries + 1 - seen) if seen else sees
            attend = torch.nn.functional.scaled_dot_product_attention
            attended.append(attend(*(part[None] for part in parts), sees, enable_gqa=enable_gqa)[0])
        return torch.cat(attended, dim=1).transpose(0, 1).to(query.dtype)

    monkeypatch.setattr(gpu, "varlen_attn", varlen_attn)
    assert gpu.kernel("cpu", True, 4, 2, 16, window)["right"] == (window == seen)


@pytest.mark.integration
def test_a_step_with_an_adapter_is_taken_too():
    record = gpu.step("cpu", True, "Qwen2.5-7B", "LoRA", 2000, 100, 2)
    assert record["speedup"] > 0 and record["shared"]["tflops"] > 0


def test_a_measurement_is_the_last_line_of_a_process_and_one_that_fails_is_its_reason():
    said = "print('a warning'); print('{\"right\": true}')"
    assert gpu.record_of([sys.executable, "-c", said]) == {"outcome": "measured", "right": True}
    failed = gpu.record_of([sys.executable, "-c", "raise SystemExit('needs a GPU, not a CPU')"])
    assert failed == {"outcome": "failed", "reason": "exit status 1: needs a GPU, not a CPU\n"}


@pytest.mark.integration
def test_each_measurement_is_a_line_and_a_second_run_takes_up_what_failed(tmp_path, monkeypatch, capsys):
    output = tmp_path / "gpu.jsonl"
    # The kernel needs a GPU.
    command = ["benchmarks/gpu.py", "--toy", "--output", str(output)]
    command += ["--only", "kernel 8|exactness Qwen2.5-1|step Qwen2.5-1.5B full 2000 100 1"]

    def taken_here(of_one: list[str]) -> dict:
        """As `record_of` has it of a process."""
        capsys.readouterr()
        with monkeypatch.context() as patch:
            patch.setattr(sys, "argv", of_one[1:])
            try:
                gpu.main()
            except Exception as error:
                return {"outcome": "failed", "reason": str(error)}
        return {"outcome": "measured"} | json.loads(capsys.readouterr().out.splitlines()[-1])

    def lines() -> list[dict]:
        monkeypatch.setattr(sys, "argv", command)
        gpu.main()
        return [json.loads(line) for line in output.read_text().splitlines()]

    monkeypatch.setattr(gpu, "record_of", taken_here)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0")
    machine, kernel, exactness, step = lines()
    assert "torch" in machine["versions"] and "benchmarks/gpu.py" in machine["command"]
    assert kernel["outcome"] == "failed" and "CPU" in kernel["reason"]
    assert exactness["outcome"] == step["outcome"] == "measured"
    assert exactness["right"] and step["speedup"] > 0
    assert step["shared"]["estimate_gib"] < step["TRL"]["estimate_gib"]

    assert [line["name"] for line in lines()[4:]] == ["machine", kernel["name"]]
