"""What the project's estimate says of the memory of a training step, beside which the measured one is put."""

import tempfile

from .machine import Machine
from .results import Record
from .setting import Setting
from .shapes import configuration


def predicted(machine: Machine, setting: Setting, longest: int) -> Record:
    """What training/cost_model.py says of such a step on one GPU, in bytes, part by part; `longest`: of one pair."""
    from trl import ModelConfig

    from training import cost_model
    from training.options import DPOConfiguration

    with tempfile.TemporaryDirectory() as folder:
        configuration(setting.shape, toy=machine.toy).save_pretrained(folder)
        model = ModelConfig(
            model_name_or_path=folder,
            dtype="bfloat16" if setting.lora else "float32",
            use_peft=setting.lora,
            lora_r=32,
            lora_alpha=64,
            lora_target_modules=["all-linear"],
        )
        shape = cost_model.shape_of(model)
    load = cost_model.Load(
        rows=1,
        forward_tokens=longest,
        longest=longest,
        longest_sequence=longest // 2,
        trained=2 * setting.completion,
    )
    training = DPOConfiguration(
        output_dir="unused",
        per_device_train_batch_size=setting.batch,
        gradient_checkpointing=setting.checkpointing,
        use_cpu=machine.device.type == "cpu",
        bf16=True,
    )
    held, moments = cost_model.memory(shape, load, cost_model.MachineArguments(), training, model, True)
    return {
        "held": {part: round(size) for part, size in held.items()},
        "moments": {moment: round(size) for moment, size in moments.items()},
        "total": round(sum(held.values()) + max(moments.values())),
    }
