"""Wheels installed beside the machine's own packages."""

import importlib.util
import zipfile

import pytest

from benchmarks.gpu_measurements.wheels import install


def test_wheels_are_installed_once_into_a_folder_of_their_own_and_not_into_the_environment(tmp_path):
    wheels, cache = tmp_path / "wheels", tmp_path / "cache"
    wheels.mkdir()
    with pytest.raises(SystemExit, match=r"has no wheels; see docs/gpu\.md"):
        install(wheels, cache)
    information = "extra_of_a_test-1.0.dist-info"
    with zipfile.ZipFile(wheels / "extra_of_a_test-1.0-py3-none-any.whl", "w") as wheel:
        wheel.writestr("extra_of_a_test.py", "")
        wheel.writestr(f"{information}/METADATA", "Metadata-Version: 2.1\nName: extra-of-a-test\nVersion: 1.0\n")
        wheel.writestr(f"{information}/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n")
        wheel.writestr(f"{information}/RECORD", "")
    target = install(wheels, cache)
    assert (target / "extra_of_a_test.py").exists()
    (target / "extra_of_a_test.py").unlink()
    assert install(wheels, cache) == target
    assert not (target / "extra_of_a_test.py").exists()
    assert importlib.util.find_spec("extra_of_a_test") is None
