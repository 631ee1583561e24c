"""The wheel, made of the source archive and alone in an environment, does what a checkout does."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
import tarfile
from pathlib import Path

import pytest

pytestmark = pytest.mark.integration
ROOT = Path(__file__).parents[2]
SOURCES = (
    *("notewriter", "configs", "slurm", "pyproject.toml", "MANIFEST.in"),
    *("README.md", "LICENSE", "CHANGELOG.md", "CITATION.cff", "tests/test_cli.py"),
)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The source archive of a checkout."""
    folder = tmp_path_factory.mktemp("archive")
    for name in SOURCES:
        source, copy = ROOT / name, folder / "source" / name
        if source.is_dir():
            shutil.copytree(source, copy, symlinks=True, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            copy.parent.mkdir(exist_ok=True)
            shutil.copy(source, copy)
    script = "from setuptools.build_meta import build_sdist; build_sdist('..')"
    subprocess.run([sys.executable, "-c", script], cwd=folder / "source", check=True, capture_output=True, timeout=300)
    shutil.rmtree(folder / "source")
    return next(folder.glob("*.tar.gz"))


@pytest.fixture(scope="module")
def environment(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the archive's wheel; dependencies, but not the checkout, come from the running one."""
    folder = tmp_path_factory.mktemp("wheel")
    # With it, pip would take the checkout for an installed package.
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}

    def python(*arguments: str | Path) -> None:
        subprocess.run([sys.executable, "-m", *arguments], env=alone, cwd=folder, check=True, timeout=300)

    pip = ("pip", "--quiet", "--disable-pip-version-check")
    offline = ("--no-deps", "--no-index")
    python(*pip, "wheel", *offline, "--no-build-isolation", "--wheel-dir", folder, archive)
    python("venv", "--without-pip", folder / "venv")
    python(*pip, "--python", folder / "venv/bin/python", "install", *offline, *folder.glob("*.whl"))
    # As a line of a .pth file the folder is searched, but its own .pth files, with the checkout, are not read.
    packages = folder / "venv" / Path(sysconfig.get_path("purelib")).relative_to(sys.prefix)
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "venv"


@pytest.fixture
def run(environment: Path, tmp_path: Path):
    """Runs `notewriter` in a folder whose modules have the names of the checkout's folders."""
    for name in ("eval", "training", "data_construction", "configs"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the user has this module')\n")
    own = {"PYTHONPATH": str(tmp_path), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "PYTHONNOUSERSITE": "1"}
    path = f"{environment / 'bin'}:{os.environ['PATH']}"

    def run(*arguments: object) -> str:
        command = [environment / "bin/notewriter", *map(str, arguments)]
        done = subprocess.run(
            command, cwd=tmp_path, env=os.environ | own | {"PATH": path}, capture_output=True, text=True, timeout=400
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout + done.stderr

    return run


def test_the_source_archive_has_the_package_with_its_recipes_and_no_tests(archive: Path) -> None:
    with tarfile.open(archive) as opened:
        names = {name.partition("/")[2] for name in opened.getnames()}
    assert {"CHANGELOG.md", "CITATION.cff", "notewriter/recipes/dpo/deepnote_qwen2.5-7b.yaml"} <= names
    assert not [name for name in names if name.startswith("tests")]


def test_the_package_is_the_wheels_and_puts_no_other_name_on_the_path(environment: Path) -> None:
    script = "import notewriter, importlib.util as u; print(notewriter.__file__, u.find_spec('data_construction'))"
    python = [environment / "bin/python", "-c", script]
    alone = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    out = subprocess.run(python, cwd=environment, env=alone, capture_output=True, text=True, check=True).stdout
    assert out.startswith(str(environment)) and out.rstrip().endswith("None")


def test_recipes_are_listed_and_copied(run, tmp_path: Path) -> None:
    assert "dpo/deepnote_qwen2.5-7b " in run("fetch", "recipe")
    run("fetch", "recipe", "slurm/train.sbatch")
    assert (tmp_path / "train.sbatch").read_text() == (ROOT / "slurm/train.sbatch").read_text()


def test_the_quickstart_is_rehearsed(run, tmp_path: Path) -> None:
    out = run("quickstart", "--dry_run", "true", "--output_dir", "runs/quickstart")
    assert "notewriter pairs" in out and "notewriter train dpo" in out
    assert not (tmp_path / "runs").exists()


def test_a_papers_table_is_estimated(run, tmp_path: Path) -> None:
    question = {"id": "q1", "question": "Who?", "golden_answers": ["Mira"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(question) + "\n")
    out = run(
        *("table", "papers/deepnote/table_1", "--cells", "hotpotqa/direct/*", "--dry_run", "true"),
        *("--questions", json.dumps({"hotpotqa": "questions.jsonl"})),
    )
    assert "hotpotqa/direct/GPT-4o-mini" in out and "all cells" in out


def test_a_pipeline_is_shown_as_jobs_of_a_cluster(run, environment: Path) -> None:
    run("fetch", "recipe", "slurm/cluster.env.example", "slurm/cluster.env")
    out = run("pipeline", "pipelines/quickstart", "--on", "slurm", "--dry_run", "true")
    assert "sbatch" in out and f"{environment}" in out and "slurm/run.sbatch" in out


def test_two_steps_of_dpo(run, tiny_model: Path, tiny_pairs: Path, tmp_path: Path) -> None:
    run(
        *("train", "dpo", "--accelerate", "cpu", "--config", "dpo/quickstart_smollm2", "--max_steps", "2"),
        *("--model_name_or_path", tiny_model, "--pairs", tiny_pairs, "--output_dir", tmp_path / "dpo"),
    )
    record = json.loads((tmp_path / "dpo/training.json").read_text())
    assert record["steps"] == 2
