"""A training run from its options to its record: DPO and KTO on pairs, SFT on conversations."""

import contextlib
import logging
import os
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

from datasets import Dataset
from torch.distributed.elastic.multiprocessing.errors import ErrorHandler
from trl import ModelConfig

from notewriter.ground import config
from notewriter.ground.errors import writing
from notewriter.training.inputs import conversations, overview, pairs, repositories, rows
from notewriter.training.inputs.checks import check_vocabulary
from notewriter.training.inputs.rendering import load_tokenizer, stop_tokens
from notewriter.training.model import adapters, weights
from notewriter.training.options import OPTIONS, check
from notewriter.training.run import loop, resumption
from notewriter.training.run.interruption import StopOnSignal
from notewriter.training.run.trainers import build

logger = logging.getLogger(__name__)


METHODS: dict[str, tuple[str, Callable[..., tuple[dict[str, Dataset], dict[str, int]]]]] = {
    "dpo": ("pairs", pairs.load),
    "kto": ("pairs", pairs.load),
    "sft": ("data", conversations.load),
}
"""The option that names a method's data, and what reads, tokenises and checks the rows."""


@contextlib.contextmanager
def _noted() -> Iterator[None]:
    """Record an error in the error file that torchrun names, if any, before other ranks can notice the failure.

    The time in this file tells which rank failed first (`launcher.show_first_failure`).
    """
    try:
        yield
    except Exception as error:
        if "TORCHELASTIC_ERROR_FILE" in os.environ:
            ErrorHandler().record_exception(error)
        raise


@_noted()
def train(method: str, argv: list[str], description: str | None = None) -> None:
    """A run of a method, or the rest of it: writes the model, its tokenizer, `config.yaml` and `training.json`.

    Raises:
        UserError: the model, the data or the options cannot be trained with, or `output_dir` contains another run.
        SystemExit: a signal stopped the run, which has saved a checkpoint.
    """
    source, load = METHODS[method]
    prog, kinds = f"notewriter train {method}", [*OPTIONS[method], ModelConfig]
    arguments, training, model = config.parse(kinds, argv, prog=prog, description=description)
    data = getattr(arguments, source)

    check(arguments, training, model)
    base = weights.check_base(training, model)
    files = rows.find_splits(data, f"--{source}", dev=training.eval_strategy != "no")
    mixed = rows.mixed_files(arguments.mix)
    # Downloads the configuration of a model on the hub, whose commit then is in the run's fingerprints.
    stored = weights.stored(base, model.model_revision)
    inputs = {source: rows.sha256([*files.values(), *mixed.values()])}
    folder = resumption.run_folder(training, inputs, arguments, model, command=config.command_line(prog, argv, *kinds))
    if resumption.on_main_process(partial(resumption.is_finished, folder)):
        logger.info("%s: this run is finished; remove the folder to train again", folder.path)
        return

    base = resumption.on_main_process(partial(adapters.whole_base, base, str(folder.path), training))
    tokenizer = load_tokenizer(base, model.model_revision, arguments.chat_template_kwargs)
    stops = stop_tokens(base, model.model_revision, tokenizer)
    with training.main_process_first(local=False, desc="reading data"), writing(rows.cache()):
        datasets, dropped = load(files, tokenizer, stops, training, arguments)
        check_vocabulary(datasets, tokenizer, base, model.model_revision)
    overview.show(files, datasets, dropped, tokenizer, training)

    trainer = build(base, tokenizer, datasets, arguments, training, model)
    stop = StopOnSignal(trainer)
    with resumption.open_run(folder), writing(folder.path), stop.listening():
        metrics = loop.train(trainer, folder, stored, stop)
        loop.save(trainer, folder, stored)
        facts: dict[str, Any] = {source: repositories.pinned(data), "dropped_long_rows": dropped}
        facts["rows"] = {split: rows.count_by_stage(dataset) for split, dataset in datasets.items()}
        facts["mix"] = {repositories.pinned(path): ratio for path, ratio in arguments.mix.items()}
        loop.record(trainer, folder, training, model, base, method=method, metrics=metrics, **facts)
    trainer.end()
