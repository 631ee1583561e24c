"""What the trainers build on beside the public interface of the libraries."""

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from transformers import AutoModelForCausalLM
from trl.kernels import chunked_logprob
from trl.trainer import dpo_trainer, utils
from trl.trainer.utils import add_fused_lm_head

from notewriter.ground.errors import UserError
from notewriter.training import dpo, sft
from notewriter.training.model import trl_functions
from notewriter.training.model.trl_functions import scores_labels_alone
from notewriter.training.run.trainers import (
    MeteredDPOTrainer,
    MeteredKTOTrainer,
    MeteredSFTTrainer,
)


def test_the_private_methods_of_the_libraries_that_are_overridden_are_these() -> None:
    ours = [MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer]
    overridden = set()
    for trainer in ours:
        library = [each for each in trainer.__mro__ if each.__module__.split(".")[0] in ("trl", "transformers")]
        for each in set(trainer.__mro__) - set(library):
            private = {name for name in vars(each) if name.startswith("_") and not name.startswith("__")}
            overridden |= {f"{base.__name__}.{name}" for base in library for name in private if name in vars(base)}
    assert overridden == {
        "DPOTrainer._compute_loss",
        "DPOTrainer._prepare_dataset",
        "DPOTrainer._precompute_ref_logps",
        "DPOTrainer._set_signature_columns_if_needed",
        "KTOTrainer._get_train_sampler",
        "KTOTrainer._prepare_dataset",
        "KTOTrainer._set_signature_columns_if_needed",
        "Trainer._get_grad_norm",
        "Trainer._get_train_sampler",
        "Trainer._run_epoch",
        "Trainer._set_signature_columns_if_needed",
    }


def test_on_a_cpu_the_head_scores_what_is_trained_alone(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ids = torch.arange(20)[None] % 10
    labels = ids.clone()
    labels[:, :15] = -100
    scored: list[int] = []
    head = utils._ChunkedLogProbFunction.apply
    counting = SimpleNamespace(apply=lambda hidden, *rest: scored.append(len(hidden)) or head(hidden, *rest))
    monkeypatch.setattr(utils, "_ChunkedLogProbFunction", counting)

    def loss_and_gradients() -> list[torch.Tensor]:
        model = AutoModelForCausalLM.from_pretrained(tiny_model, dtype=torch.float32)
        add_fused_lm_head(model)
        loss = model(input_ids=ids, labels=labels, fused_lm_head=True).loss
        loss.backward()
        return [loss.detach(), *(each.grad for each in model.parameters())]

    monkeypatch.setattr(utils, "_use_triton", chunked_logprob._use_triton)
    theirs = loss_and_gradients()
    monkeypatch.setattr(utils, "_use_triton", scores_labels_alone)
    ours = loss_and_gradients()

    assert scored == [19, 5]
    torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-7)


def test_training_has_the_head_do_so(
    tiny_pairs: Path, four_steps: Callable[..., list[str]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(utils, "_use_triton", chunked_logprob._use_triton)

    sft.main(four_steps(data=tiny_pairs, max_steps=1))

    assert utils._use_triton is scores_labels_alone


def test_a_library_without_the_function_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(utils, "_use_triton")
    with pytest.raises(UserError, match=r"trl .*: has no trl.trainer.utils._use_triton.*constraints.txt"):
        trl_functions.replace_functions()


@pytest.mark.parametrize("changes", [{"loss_type": "simpo"}, {"precompute_ref_log_probs": True}])
def test_no_weight_is_hashed_for_a_cache_that_nothing_reads(
    changes: dict[str, object],
    four_steps: Callable[..., list[str]],
    write_pairs: Callable[..., Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    hashed: list[torch.nn.Module] = []
    monkeypatch.setattr(dpo_trainer, "hash_module", hashed.append)
    dpo.main(four_steps(pairs=write_pairs(), reference_cache=tmp_path / "cache", max_steps=1, **changes))
    assert not hashed
