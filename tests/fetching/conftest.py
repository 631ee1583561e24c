"""A hub on this machine, which `notewriter fetch` takes for all servers, and an empty folder for what it fetches."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from fake_hub import Hub, serving
from huggingface_hub import constants


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with serving() as server:
        for name, value in server.environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        # The library has read these when it was imported.
        monkeypatch.setattr(constants, "ENDPOINT", server.endpoint)
        template = server.endpoint + "/{repo_id}/resolve/{revision}/{filename}"
        monkeypatch.setattr(constants, "HUGGINGFACE_CO_URL_TEMPLATE", template)
        monkeypatch.setattr(constants, "HF_HUB_DISABLE_XET", True)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        monkeypatch.setattr(constants, "HF_TOKEN_PATH", str(tmp_path / "token"))
        yield server
