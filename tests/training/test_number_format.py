"""The number format of a run is what its options say, whatever the file that accelerate launched it with."""

import os
from pathlib import Path

import pytest

from notewriter.ground.errors import UserError
from notewriter.training import options
from notewriter.training.options import DPOConfiguration, format_of


@pytest.mark.parametrize(
    ("launched", "given", "format_"),
    [
        ("bf16", {"bf16": False}, "no"),
        ("fp16", {"bf16": False}, "no"),
        ("no", {"bf16": True}, "bf16"),
        # A processor or GPU without units for bfloat16, such as those before Ampere, under our profiles for GPUs.
        ("bf16", {}, "no"),
        ("fp16", {}, "fp16"),
        ("no", {}, "no"),
        (None, {}, "no"),
    ],
)
def test_what_is_given_or_chosen_is_passed_on_to_accelerate(
    launched: str | None, given: dict[str, bool], format_: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(options, "LAUNCHED", launched)
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", launched or "no")
    training = DPOConfiguration(str(tmp_path), use_cpu=True, **given)
    assert format_of(training) == os.environ["ACCELERATE_MIXED_PRECISION"] == format_


def test_a_format_that_no_option_names_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "fp8")
    with pytest.raises(UserError, match=r"mixed_precision: fp8 .* write bf16, fp16 or no"):
        DPOConfiguration(str(tmp_path), use_cpu=True)
