"""One Slurm of two nodes for all tests."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from slurm_cluster import Cluster, free_port, two_nodes

ROOT = Path(__file__).parents[3]


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


@pytest.fixture
def vllm(cluster_env: Path, vllm_package: Path, tmp_path: Path) -> Path:
    """Jobs find the stand-in in place of vLLM; gives the file in which it tells of itself."""
    told = tmp_path / "told.txt"
    with open(cluster_env, "a") as settings:
        settings.write(f"export PYTHONPATH={vllm_package}:{ROOT}:{ROOT}/tests\nexport VLLM_TOLD={told}\n")
    return told
