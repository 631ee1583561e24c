"""One small real model and one vLLM server for all integration tests of a session."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from notewriter.errors import UserError
from notewriter.models import fetch_model
from notewriter.serving import Server, serve

SERVE_OPTIONS = {"dtype": "bfloat16", "max_model_len": 2048, "enforce_eager": True}


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, fetched into the project's `models/` if it is not there."""
    folder = Path(__file__).parents[2] / "models" / "SmolLM2-135M-Instruct"
    try:
        fetch_model(folder)
    except UserError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="session")
def vllm_server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A vLLM server of SmolLM2-135M-Instruct that runs until the session ends."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    with serve(str(smollm2), SERVE_OPTIONS, log=tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server
