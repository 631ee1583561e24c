"""The names of our training options in other trainers: the one table for errors and docs/other_data.md."""

from collections.abc import Collection

SPLIT = "put the questions or rows held out into a file dev beside train (`notewriter split` divides questions)"

DATA = ("pairs", "data")
"""The options that name the data of training; a command has one of them."""

OTHERS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("torch_dtype", ("dtype",), ""),
    ("base_model model_name model_id", ("model_name_or_path",), ""),
    ("tokenizer_name_or_path", ("model_name_or_path",), "the tokenizer is the model's"),
    ("dataset dataset_name dataset_path train_file", DATA, ""),
    ("datasets", DATA, "others are mixed in with mix"),
    ("dataset_mixer", ("mix",), ""),
    ("dataset_train_split", DATA, "with the split behind its name: owner/name:train"),
    ("val_set_size val_size eval_file eval_dataset", (), SPLIT),
    ("cutoff_len sequence_len max_seq_length max_seq_len model_max_length", ("max_length",), ""),
    ("max_prompt_length", ("max_length",), "prompt and reply together; longer rows are refused, not cut"),
    ("micro_batch_size", ("per_device_train_batch_size",), ""),
    ("train_batch_size", ("total_batch_size",), "over all processes and forwards of a step"),
    ("num_epochs epochs", ("num_train_epochs",), ""),
    ("lr", ("learning_rate",), ""),
    ("lr_scheduler", ("lr_scheduler_type",), ""),
    ("optimizer", ("optim",), ""),
    ("adapter finetuning_type", ("use_peft",), "true for LoRA"),
    ("lora_rank", ("lora_r",), ""),
    ("lora_target", ("lora_target_modules",), ""),
    ("quantization_bit", ("load_in_4bit",), "true for QLoRA"),
    ("use_unsloth", (), "there is no Unsloth here; leave it out"),
    ("sample_packing", ("packing",), ""),
    ("train_on_inputs", (), "the assistant's turns alone are trained; leave it out"),
    ("template", (), "the chat template is the model's own; leave it out"),
    ("random_state", ("seed",), ""),
    ("flash_attention flash_attn", ("attn_implementation",), ""),
    ("pref_beta dpo_beta", ("beta",), ""),
    ("pref_loss", ("loss_type",), ""),
    ("reference_free", ("loss_type",), "[simpo] and [orpo] have no reference"),
    ("kto_chosen_weight", ("desirable_weight",), ""),
    ("kto_rejected_weight", ("undesirable_weight",), ""),
    ("rpo_alpha pref_ftx", ("loss_weights",), "with loss_type: [sigmoid, sft]"),
)
"""Their names -> our options (a command has one of several), with a further remark."""

OTHER_NAMES = {name: (options, more) for names, options, more in OTHERS for name in names.split()}
"""Each of their names -> our options, and a remark."""


def ours(name: str, known: Collection[str]) -> str:
    """The remedy for another trainer's name of an option: ours, if the command has it; empty for other names."""
    options, more = OTHER_NAMES.get(name, ((), ""))
    here = next((each for each in options if each in known), "")
    if not here and (options or not {*DATA} & {*known}):
        return ""
    return ", ".join(filter(None, (f"it is {here!r} here" if here else "", more)))
