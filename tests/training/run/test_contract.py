"""A TRL whose private parts differ from those that training builds on is refused before anything is read."""

from typing import Any

import pytest
from trl import DPOTrainer
from trl.trainer import utils

from notewriter.ground.errors import UserError
from notewriter.training.options import DPOConfiguration
from notewriter.training.run import contract
from notewriter.training.run.trainers import MeteredDPOTrainer, MeteredSFTTrainer


def without_batch_size(self: Any, dataset: Any, name: str) -> None: ...


def another_order(self: Any, dataset: Any, args: Any, processing_class: Any, dataset_name: str) -> None: ...


def head_without_shifted_labels(model: Any) -> None:
    model.forward = lambda *args, fused_lm_head=False, labels=None, **kwargs: None


def test_the_installed_trl_is_the_one_that_was_read() -> None:
    contract.check_trl()


def test_no_other_private_method_of_the_libraries_is_overridden() -> None:
    ours = [MeteredDPOTrainer, MeteredSFTTrainer]
    overridden = set()
    for trainer in ours:
        library = [each for each in trainer.__mro__ if each.__module__.split(".")[0] in ("trl", "transformers")]
        for each in set(trainer.__mro__) - set(library):
            private = {name for name in vars(each) if name.startswith("_") and not name.startswith("__")}
            overridden |= {f"{base.__name__}.{name}" for base in library for name in private if name in vars(base)}
    assert overridden == {name for name in contract.CONTRACT if "._" in name}


@pytest.mark.parametrize(
    ("owner", "name", "stand_in", "message"),
    [
        (
            DPOTrainer,
            "_precompute_ref_logps",
            without_batch_size,
            "DPOTrainer._precompute_ref_logps is (self, dataset, name), not (self, dataset, name, batch_size)",
        ),
        (DPOTrainer, "_prepare_dataset", another_order, "DPOTrainer._prepare_dataset is (self, dataset, args, "),
        (
            utils,
            "add_fused_lm_head",
            head_without_shifted_labels,
            "is (args, fused_lm_head, labels, kwargs), not (args, ",
        ),
        (utils, "FusedCausalLMOutput", None, "FusedCausalLMOutput is missing, not (loss, log_probs, "),
    ],
)
def test_another_signature_is_refused_and_named(
    owner: Any, name: str, stand_in: Any, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if stand_in is None:
        monkeypatch.delattr(owner, name)
    else:
        monkeypatch.setattr(owner, name, stand_in)

    with pytest.raises(UserError) as error:
        DPOConfiguration(output_dir="run")

    assert message in str(error.value)
    assert str(error.value).endswith("; install trl==1.16.0")
    assert "\n" not in str(error.value)
