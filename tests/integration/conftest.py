"""One small real model, one vLLM server, one browser and one Slurm for all integration tests of a session."""

import importlib.util
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from slurm_cluster import Cluster, free_port, two_nodes

from notewriter.fetching.model import HUB_ID, fetch_model
from notewriter.ground.errors import UserError
from notewriter.models.server import Server, serve

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

SERVE_OPTIONS = {
    "max_model_len": 2048,
    "enforce_eager": True,
    # A test tokenizes under other templates than the model's own.
    "trust_request_chat_template": True,
}

CHROMIUM_FLAGS = (
    "--headless=new --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,1800"
)


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The folder of SmolLM2-135M-Instruct, fetched into the project's `models/` if it is not there."""
    folder = ROOT / "models" / "SmolLM2-135M-Instruct"
    try:
        fetch_model(HUB_ID, folder)
    except UserError as error:
        pytest.skip(str(error))
    return folder


@pytest.fixture(scope="session", autouse=True)
def compiled_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """DeepSpeed compiles into a folder of this session: the lock of a launch that was killed once stays elsewhere."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TORCH_EXTENSIONS_DIR", str(tmp_path_factory.mktemp("torch_extensions")))
        yield


@pytest.fixture(scope="session")
def vllm_server(smollm2: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    """A vLLM server of SmolLM2-135M-Instruct that runs until the session ends."""
    if importlib.util.find_spec("vllm") is None:
        pytest.skip("vLLM is not installed")
    with serve(str(smollm2), SERVE_OPTIONS, log=tmp_path_factory.mktemp("vllm") / "server.log") as server:
        yield server


@pytest.fixture(scope="session")
def chromium() -> Iterator[Any]:
    """Selenium's driver of a headless Chromium that keeps what pages log."""
    browser, driver = shutil.which("chromium"), shutil.which("chromedriver")
    if not (browser and driver):
        pytest.skip("needs chromium and chromedriver (Debian: chromium-driver)")
    from selenium import webdriver

    options = webdriver.ChromeOptions()
    options.binary_location = browser
    options.set_capability("goog:loggingPrefs", {"browser": "ALL"})
    for flag in CHROMIUM_FLAGS.split():
        options.add_argument(flag)
    running = webdriver.Chrome(options=options, service=webdriver.ChromeService(driver))
    yield running
    running.quit()


@pytest.fixture(scope="session")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One Slurm of two nodes for all tests."""
    with two_nodes(tmp_path_factory.mktemp("slurm")) as cluster:
        yield cluster


@pytest.fixture
def cluster_env(tmp_path: Path) -> Path:
    """The settings of this machine, one process a node."""
    file = tmp_path / "cluster.env"
    file.write_text(
        f"PROCESSES_PER_NODE=1\nVENV={sys.prefix}\nRENDEZVOUS_PORT={free_port()}\nexport HF_HUB_OFFLINE=1\n"
        f"export HF_DATASETS_CACHE={tmp_path}/cache\nexport OMP_NUM_THREADS=1\nLOGS={tmp_path}/ranks\n"
    )
    return file


@pytest.fixture(scope="session")
def vllm_package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder for PYTHONPATH whose package vllm is the stand-in."""
    site = tmp_path_factory.mktemp("site")
    for module in ("openai/api_server", "cli/main"):
        file = site / "vllm/entrypoints" / f"{module}.py"
        file.parent.mkdir(parents=True)
        shutil.copy(HERE / "vllm_stand_in.py", file)
        (file.parent / "__init__.py").touch()
    for folder in ("vllm", "vllm/entrypoints"):
        (site / folder / "__init__.py").touch()
    return site


@pytest.fixture
def vllm(cluster_env: Path, vllm_package: Path, tmp_path: Path) -> Path:
    """Jobs find the stand-in in place of vLLM; gives the file in which it tells of itself."""
    told = tmp_path / "told.txt"
    with open(cluster_env, "a") as settings:
        settings.write(f"export PYTHONPATH={vllm_package}:{ROOT}:{ROOT}/tests\nexport VLLM_TOLD={told}\n")
    return told
