"""Supervised fine-tuning on chains, prompts with completions, or the better side of pairs.

ReaRAG's SFT (arXiv 2503.21729, equation 2): the loss is on what the assistant wrote, thoughts and actions; question,
instructions and observations are masked. The mask is found for any chat template by rendering each conversation up to
each turn, as a server does.

    notewriter train sft --accelerate zero3 --config sft/rearag_glm4-9b --data data/chains

In a clone `accelerate launch training/train_sft.py` does the same, with the files of configs/accelerate.

Every key of the YAML is also an option, which wins: `--learning_rate 1e-6 --max_length 4096`. An interrupted run
resumes from its last checkpoint when the same command is given again; a finished run says so.
"""

import logging
import sys
from functools import partial

from trl import ModelConfig

from notewriter.ground import config
from notewriter.ground.errors import run, writing
from notewriter.training.inputs import conversations, overview, repositories, rows
from notewriter.training.inputs.chat_templates import load_tokenizer, stop_tokens
from notewriter.training.model import adapters, weights
from notewriter.training.options import SFTArguments, SFTConfiguration, check_devices, check_needs, check_packing
from notewriter.training.run import loop, resumption
from notewriter.training.run.trainers import build_sft_trainer

logger = logging.getLogger(__name__)

PROG = "notewriter train sft"


def main(argv: list[str]) -> None:
    """One SFT run, or the rest of it: writes the model, its tokenizer, `config.yaml` and `training.json`.

    Raises:
        UserError: the model, the data or the options cannot be trained with, or `output_dir` contains another run.
    """
    kinds = [SFTArguments, SFTConfiguration, ModelConfig]
    arguments, training, model = config.parse(kinds, argv, prog=PROG, description=__doc__)
    check_devices(training)
    check_packing(training, model)
    check_needs(training, model)
    base = weights.check_base(training, model)
    files = rows.find_splits(arguments.data, "--data", dev=training.eval_strategy != "no")
    mixed = rows.mixed_files(arguments.mix)
    stored = weights.stored(base, model.model_revision)
    inputs = {"data": rows.sha256([*files.values(), *mixed.values()])}
    folder = resumption.run_folder(training, inputs, arguments, model, command=config.command_line(PROG, argv, *kinds))
    if resumption.is_finished(folder):
        logger.info("%s: this run is finished; remove the folder to train again", folder.path)
        return

    base = resumption.on_main_process(partial(adapters.whole_base, base, str(folder.path), training))
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)
    with training.main_process_first(local=False, desc="reading data"), writing(rows.cache()):
        datasets, dropped = conversations.load(files, tokenizer, stops, training, arguments)
    overview.show(files, datasets, dropped, tokenizer, training)

    trainer = build_sft_trainer(base, tokenizer, datasets, arguments, training, model)
    with resumption.open_run(folder):
        metrics = loop.train(trainer, folder, stored)
        loop.record(
            *(trainer, folder, training, model, base),
            method="sft",
            data=repositories.pinned(arguments.data),
            rows={split: rows.count_by_stage(dataset) for split, dataset in datasets.items()},
            dropped_long_rows=dropped,
            metrics=metrics,
            mix={repositories.pinned(path): ratio for path, ratio in arguments.mix.items()},
        )
    trainer.end()  # type: ignore[no-untyped-call]


if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
