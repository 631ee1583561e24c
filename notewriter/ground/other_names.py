"""What other trainers call our options of training: the one table from which errors and docs/training.md take them."""

from collections.abc import Collection

SPLIT = "put the questions or rows held out into a file dev beside train (`notewriter split` divides questions)"

OTHER_NAMES: dict[str, tuple[tuple[str, ...], str]] = {
    "torch_dtype": (("dtype",), ""),
    "base_model": (("model_name_or_path",), ""),
    "model_name": (("model_name_or_path",), ""),
    "model_id": (("model_name_or_path",), ""),
    "tokenizer_name_or_path": (("model_name_or_path",), "the tokenizer is the model's"),
    "dataset": (("pairs", "data"), ""),
    "dataset_name": (("pairs", "data"), ""),
    "dataset_path": (("pairs", "data"), ""),
    "datasets": (("pairs", "data"), "others are mixed in with mix"),
    "train_file": (("pairs", "data"), ""),
    "dataset_mixer": (("mix",), ""),
    "dataset_train_split": (("pairs", "data"), "with the split behind its name: owner/name:train"),
    "val_set_size": ((), SPLIT),
    "val_size": ((), SPLIT),
    "eval_file": ((), SPLIT),
    "eval_dataset": ((), SPLIT),
    "cutoff_len": (("max_length",), ""),
    "sequence_len": (("max_length",), ""),
    "max_seq_length": (("max_length",), ""),
    "max_seq_len": (("max_length",), ""),
    "model_max_length": (("max_length",), ""),
    "max_prompt_length": (("max_length",), "prompt and reply together; longer rows are refused, not cut"),
    "micro_batch_size": (("per_device_train_batch_size",), ""),
    "train_batch_size": (("total_batch_size",), "over all processes and forwards of a step"),
    "num_epochs": (("num_train_epochs",), ""),
    "epochs": (("num_train_epochs",), ""),
    "lr": (("learning_rate",), ""),
    "lr_scheduler": (("lr_scheduler_type",), ""),
    "optimizer": (("optim",), ""),
    "adapter": (("use_peft",), "true for LoRA"),
    "finetuning_type": (("use_peft",), "true for LoRA"),
    "lora_rank": (("lora_r",), ""),
    "lora_target": (("lora_target_modules",), ""),
    "quantization_bit": (("load_in_4bit",), "true for QLoRA"),
    "use_unsloth": ((), "there is no Unsloth here; leave it out"),
    "sample_packing": (("packing",), ""),
    "train_on_inputs": ((), "the assistant's turns alone are trained; leave it out"),
    "template": ((), "the chat template is the model's own; leave it out"),
    "random_state": (("seed",), ""),
    "flash_attention": (("attn_implementation",), ""),
    "flash_attn": (("attn_implementation",), ""),
    "pref_beta": (("beta",), ""),
    "dpo_beta": (("beta",), ""),
    "pref_loss": (("loss_type",), ""),
    "reference_free": (("loss_type",), "[simpo] and [orpo] have no reference"),
    "kto_chosen_weight": (("desirable_weight",), ""),
    "kto_rejected_weight": (("undesirable_weight",), ""),
    "rpo_alpha": (("loss_weights",), "with loss_type: [sigmoid, sft]"),
    "pref_ftx": (("loss_weights",), "with loss_type: [sigmoid, sft]"),
}
"""Name -> our options, of which a command has one or another, and what else there is to say."""


def ours(name: str, known: Collection[str]) -> str:
    """The remedy for another trainer's name of an option: ours, if the command has it; empty for other names."""
    options, more = OTHER_NAMES.get(name, ((), ""))
    here = next((each for each in options if each in known), "")
    if not here and (options or not {"pairs", "data"} & {*known}):
        return ""
    return ", ".join(filter(None, (f"it is {here!r} here" if here else "", more)))
