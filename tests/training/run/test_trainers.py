"""What the trainers build on beside the public interface of the libraries."""

from notewriter.training.run.trainers import MeteredDPOTrainer, MeteredKTOTrainer, MeteredSFTTrainer


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
        "KTOTrainer._prepare_dataset",
        "Trainer._get_train_sampler",
        "Trainer._run_epoch",
    }
