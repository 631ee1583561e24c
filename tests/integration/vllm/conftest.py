"""One vLLM server of a small real model for all tests."""

import importlib.util
from collections.abc import Iterator
from pathlib import Path

import pytest

from notewriter.models.served import options_of
from notewriter.models.server import Server, serve

SERVE_OPTIONS = {
    "max_model_len": 2048,
    "enforce_eager": True,
    # A test tokenizes under other templates than the model's own.
    "trust_request_chat_template": True,
}


@pytest.fixture(scope="session")
def vllm_server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A vLLM server of SmolLM2-135M-Instruct that runs until the session ends."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    options = options_of(str(smollm2), SERVE_OPTIONS)
    with serve(str(smollm2), options, log=tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server
