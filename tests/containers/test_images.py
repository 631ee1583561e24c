"""The images agree with each other, with the versions for GPUs, and with what slurm/ and the pages say of them."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.specifiers import SpecifierSet

ROOT = Path(__file__).parents[2]
IMAGES = [ROOT / "containers/Dockerfile", ROOT / "containers/notewriter.def"]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
GLIBC = {"20.04": (2, 31), "22.04": (2, 35), "24.04": (2, 39)}
"""That of each release of Ubuntu."""


def base(image: Path) -> tuple[str, str]:
    """The CUDA and the Ubuntu of the image that this one starts from."""
    (found,) = re.findall(r"^F(?:ROM|rom:) nvidia/cuda:([\d.]+)-devel-ubuntu([\d.]+)$", image.read_text(), re.MULTILINE)
    return found


def part(image: Path, pattern: str) -> set[str]:
    """All that a pattern finds in an image's file, of which there is one."""
    (found,) = set(re.findall(pattern, image.read_text()))
    return set(re.split(r"[ ,]", found))


@pytest.mark.parametrize("image", IMAGES, ids=lambda image: image.name)
def test_an_image_has_the_cuda_the_glibc_and_the_python_that_are_needed(image):
    cuda, ubuntu = base(image)
    pins = (ROOT / "constraints-gpu.txt").read_text()
    assert re.search(r"^cuda-toolkit==([\d.]+)", pins, re.MULTILINE)[1].startswith(cuda)
    glibc = re.search(r"glibc (\d+)\.(\d+) or newer or ARM with (\d+)\.(\d+)", pins.replace("\n# ", " "))
    assert max((int(glibc[1]), int(glibc[2])), (int(glibc[3]), int(glibc[4]))) <= GLIBC[ubuntu]
    (python,) = set(re.findall(r"python(3\.\d+)", image.read_text()))
    assert python in SpecifierSet(PROJECT["requires-python"])
    assert part(image, r"notewriter-\*\.whl\)\[(.*)\]") <= PROJECT["optional-dependencies"].keys()


def test_both_images_are_the_same():
    docker, apptainer = IMAGES
    assert base(docker) == base(apptainer)
    for pattern in (r"notewriter-\*\.whl\)\[(.*)\]", r"no-install-recommends (.*?)(?: \\)?\n", r"PATH=(\S+):\$PATH"):
        assert part(docker, pattern) == part(apptainer, pattern)


def test_slurms_settings_name_the_image_and_its_virtual_environment():
    settings = (ROOT / "slurm/cluster.env.example").read_text()
    assert "containers/notewriter.def" in settings
    (path,) = part(IMAGES[1], r"PATH=(\S+):\$PATH")
    assert f"# VENV={path.removesuffix('/bin')}" in settings
    (built,) = part(IMAGES[1], r"apptainer build (\S+)")
    assert re.search(rf'# CONTAINER="apptainer exec --nv .*{re.escape(built)}"', settings)
