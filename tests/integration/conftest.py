"""One small real model, one browser and one start of the training's libraries for all tests of a process."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import ranks
from warm import warm

from notewriter.fetching.model import HUB_ID, fetch_model
from notewriter.ground.errors import UserError

HERE = Path(__file__).parent
ROOT = HERE.parents[1]

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


@pytest.fixture(scope="session")
def training_environment() -> dict[str, str]:
    """That of launches on the CPU."""
    return os.environ | {"DS_ACCELERATOR": "cpu", "OMP_NUM_THREADS": "1", "HF_HUB_OFFLINE": "1"}


@pytest.fixture(scope="session")
def imported(training_environment: dict[str, str]) -> Iterator[list[str]]:
    """The beginning of the command line of a process with the training's libraries, which were imported once."""
    with warm(*ranks.MODULES, environment=training_environment) as program:
        yield program


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
