"""A run on pairs, from its options to its record: DPO and KTO differ in their options and their trainers."""

import logging
from collections.abc import Callable
from functools import partial
from typing import Any

from notewriter.ground import config
from notewriter.ground.errors import writing
from notewriter.training.inputs import overview, pairs, repositories, rows
from notewriter.training.inputs.chat_templates import load_tokenizer, stop_tokens
from notewriter.training.launch_file import check_reference_loading
from notewriter.training.model import adapters, weights
from notewriter.training.options import check_devices, check_needs
from notewriter.training.run import loop, resumption

logger = logging.getLogger(__name__)


def train(argv: list[str], method: str, kinds: list[Any], build: Callable[..., Any], description: str | None) -> None:
    """A run on pairs, or the rest of it: writes the model, its tokenizer, `config.yaml` and `training.json`.

    Args:
        argv: the options of the command.
        method: its name after `notewriter train`.
        kinds: the dataclasses of its options: ours, TRL's configuration and the model's.
        build: makes its trainer, of the base, the tokenizer, the pairs and the options.
        description: for `--help`.

    Raises:
        UserError: the model, the pairs or the options cannot be trained with, or `output_dir` contains another run.
    """
    prog = f"notewriter train {method}"
    arguments, training, model = config.parse(kinds, argv, prog=prog, description=description)
    check_devices(training)
    check_reference_loading(model)
    check_needs(training, model)
    base = weights.check_base(training, model)
    files = rows.find_splits(arguments.pairs, "--pairs", dev=training.eval_strategy != "no")
    mixed = rows.mixed_files(arguments.mix)
    inputs = {"pairs": rows.sha256([*files.values(), *mixed.values()])}
    # Downloads the configuration of a model on the hub, whose commit then is in the run's fingerprints.
    stored = weights.stored(base, model.model_revision)
    folder = resumption.run_folder(training, inputs, arguments, model, command=config.command_line(prog, argv, *kinds))
    if resumption.is_finished(folder):
        logger.info("%s: this run is finished; remove the folder to train again", folder.path)
        return

    base = resumption.on_main_process(partial(adapters.whole_base, base, str(folder.path), training))
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)
    with training.main_process_first(local=False, desc="reading pairs"), writing(rows.cache()):
        datasets, dropped = pairs.load(files, tokenizer, stops, training, arguments)
    overview.show(files, datasets, dropped, tokenizer, training)

    trainer = build(base, tokenizer, datasets, arguments, training, model)
    with resumption.open_run(folder):
        metrics = loop.train(trainer, folder, stored)
        loop.record(
            *(trainer, folder, training, model, base),
            method=method,
            pairs=repositories.pinned(arguments.pairs),
            rows={split: rows.count_by_stage(dataset) for split, dataset in datasets.items()},
            dropped_long_rows=dropped,
            metrics=metrics,
            mix={repositories.pinned(path): ratio for path, ratio in arguments.mix.items()},
        )
    trainer.end()
