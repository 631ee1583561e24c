"""Results as tables."""

from typing import Any

from benchmarks.gpu_measurements.tables import tables


def test_tables_have_speed_up_limit_mfu_and_the_error_of_the_estimate():
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
    text = tables([{"device": "a GPU", "versions": {"torch": "2"}, "command": "python gpu.py"}], records)
    row = "| Qwen2.5-7B LoRA 2000+100 batch 1 | sdpa | flash_attention | 0.500 | 0.250 | 2.00 | 1.91 |"
    assert f"{row} 8,400 | 16,800 | 4,400 | 8,800 | 25.0% | 50.0% | 20.0 | 10.0 |" in text
    assert "| Qwen2.5-7B LoRA 2000+100 batch 1 shared | 11.0 | 10.0 | +10% | layer |" in text
    assert "| lost | failed | a / b |" in text
