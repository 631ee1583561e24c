"""The `notewriter` command: one subcommand per stage, in the order in which they are used."""

import importlib
import os
import sys
from collections.abc import Callable
from functools import partial
from urllib.parse import urlsplit

from notewriter import __version__
from notewriter.ground.errors import UserError, handle_sigterm, meant, run
from notewriter.ground.terminal import escape_controls
from notewriter.training.overrides import start

COMMANDS = {
    "quickstart": (
        "notewriter.experiments.quickstart",
        "the whole pipeline on a generated world, on this machine's CPU or GPU",
    ),
    "doctor": ("notewriter.doctor.doctor", "check this machine, with a remedy for each fault"),
    "pipeline": (
        "notewriter.experiments.pipeline",
        "run a pipeline file, here or on a Slurm cluster",
    ),
    "fetch": (
        "notewriter.fetching.fetch",
        "get a published benchmark, corpus, index, model or page of Wikipedia, or a recipe, by its name",
    ),
    "world": ("notewriter.data.world.world", "generate a world of fictional people and places, with questions"),
    "corpus": ("notewriter.corpora.corpus", "turn documents or a published corpus into passages"),
    "split": ("notewriter.datasets.split", "hold questions of a benchmark out for development"),
    "index": ("notewriter.retrieval.index", "build an index of a corpus, BM25 or dense"),
    "pairs": ("notewriter.data.build_pairs", "roll out methods with a teacher and label preference pairs"),
    "cloze": ("notewriter.data.cloze", "make questions of a corpus's own words, to learn from before real ones"),
    "gold": ("notewriter.data.build_gold", "write conversations for SFT from the gold evidence, as a warm start"),
    "chains": ("notewriter.data.build_chains", "roll out a reasoning teacher and keep its chains for SFT (ReaRAG)"),
    "inspect": ("notewriter.data.viewer", "write an HTML page to browse pairs and chains"),
    "overlap": ("notewriter.data.overlap", "check that finished training data shares no question with evaluations"),
    "preflight": ("notewriter.training.preflight", "check the data of a training run, and estimate its needs"),
    "train": ("notewriter.training.train", "train a model with DPO, KTO or SFT, on any number of GPUs and machines"),
    "merge": ("notewriter.training.merge", "merge a trained LoRA adapter into its base model for serving"),
    "ask": ("notewriter.evaluation.ask", "answer one question in the terminal, step by step"),
    "serve": ("notewriter.models.serve", "serve checkpoints and LoRA adapters, or a retriever, to other programs"),
    "evaluate": ("notewriter.evaluation.evaluate", "run a method, or retrievers alone, over a benchmark and score it"),
    "table": (
        "notewriter.results.table",
        "make and show a paper's table beside its values, or an experiment's page",
    ),
    "judge": ("notewriter.evaluation.judge", "rate a run's answers, reasoning chains and notes with a judge model"),
    "compare": ("notewriter.results.compare_runs", "compare runs, or groups of seeds, over the same questions"),
    "fit-control": (
        "notewriter.evaluation.fit_control",
        "fit a note-writer that is no language model, to compare with",
    ),
    "report": (
        "notewriter.results.report",
        "write an HTML report on runs, and on the worth of their notes",
    ),
    "app": (
        "notewriter.app.app",
        "a page on this machine: ask, compare, judge by hand, watch runs",
    ),
    "lineage": ("notewriter.experiments.lineage", "print the way from the corpus to a run's scores"),
    "publish": ("notewriter.training.publishing.publish", "upload a checkpoint and its card to the Hugging Face Hub"),
}

RENAMED = {"page": "app"}
"""A command's earlier name, which still works -> its name."""

SUCCESSORS = {
    "hand-labels": "notewriter app labels",
    "pages": "notewriter fetch pages",
    "reproduce": "notewriter table FILE --make true",
    "recipes": "notewriter fetch recipe [NAME [FILE]]",
    "results": "notewriter table FILE --output PAGE.md",
    "worth": "notewriter report --worth --runs RUN...",
    "retrieval-eval": "notewriter evaluate --chains '{NAME: [{index: PATH}]}'",
    "retriever-serve": "notewriter serve retriever",
}
"""A command that there is no more -> what does its work."""

PARTS: dict[str, dict[str, str | None]] = {
    "app": {"labels": "notewriter.data.hand_labels"},
    "fetch": {
        **dict.fromkeys(("dataset", "corpus", "index", "model")),
        "pages": "notewriter.fetching.wikipedia",
        "recipe": "notewriter.fetching.recipe",
    },
    "serve": {"retriever": "notewriter.retrieval.server"},
    "train": dict.fromkeys(("dpo", "kto", "sft")),
}
"""The words that may come first in a command -> the module that takes the rest, where it is not the command's own."""

FIRST = f"""\
notewriter {__version__}: train local models to write notes for retrieval-augmented question answering

  notewriter doctor            the state of this machine, with a remedy for each fault
  notewriter quickstart        the whole pipeline on a generated world, in minutes, with a report

On documents of your own:
  notewriter pipeline pipelines/own    asks for them, prints its estimate, trains, and tells whether it helped
  notewriter pairs --help      preference pairs; --dry_run true estimates their cost
  notewriter fetch recipe      configurations for --config
  notewriter --help            all commands, in the order of their use
"""
"""The first steps, for a call without a command."""


def main() -> None:
    """Run the subcommand named on the command line."""
    # Otherwise tokenizers warns at every fork; serving forks once. Training forks in processes of its own.
    if sys.argv[1:2] != ["train"]:
        os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    handle_sigterm()
    run(_dispatch)


def _dispatch() -> None:
    if not sys.argv[1:]:
        sys.stdout.write(FIRST)
        return
    name, *rest = sys.argv[1:]
    if name in RENAMED:
        sys.stderr.write(f"notewriter {name} is called notewriter {RENAMED[name]} now\n")
        name = RENAMED[name]
    if name in {"-h", "--help"}:
        sys.stdout.write(_help())
    elif name == "--version":
        sys.stdout.write(f"notewriter {__version__}\n")
    elif name in COMMANDS:
        _check_environment()
        module = COMMANDS[name][0]
        if part := PARTS.get(name, {}).get((rest or [""])[0]):
            module, rest = part, rest[1:]
        if module.startswith("notewriter.training."):
            start(module, rest)
        else:
            # Imported here so that one stage does not wait for another's libraries.
            importlib.import_module(module).main(rest)
    elif name in SUCCESSORS:
        raise UserError(f"{name} is no command any more; use: {SUCCESSORS[name]}")
    else:
        remedy = f"{meant(name, COMMANDS)} notewriter --help lists all".lstrip()
        raise UserError(f"unknown command {name!r}; {remedy}")


def _check_environment() -> None:
    """Check the variables that huggingface_hub parses while it is imported.

    Raises:
        UserError: it could not be imported.
    """
    for name, parse, wanted in (
        ("HF_ENDPOINT", urlsplit, "an address, such as https://huggingface.co"),
        ("HF_HUB_ETAG_TIMEOUT", int, "a whole number of seconds"),
        ("HF_HUB_DOWNLOAD_TIMEOUT", int, "a whole number of seconds"),
    ):
        value = os.environ.get(name, "")
        try:
            if value:
                parse(value)
        except ValueError as error:
            raise UserError(
                f"{name}: {escape_controls(value)[:200]!r} in the environment is not {wanted}; correct or unset it"
            ) from error


def mains() -> dict[str, Callable[[list[str]], None]]:
    """The function of each command and of each of its parts, such as `train dpo`; importing them takes some seconds."""
    found: dict[str, Callable[[list[str]], None]] = {}
    for name, (module, _) in COMMANDS.items():
        own = found[name] = importlib.import_module(module).main
        for word, part in PARTS.get(name, {}).items():
            found[f"{name} {word}"] = importlib.import_module(part).main if part else partial(_after, own, word)
    return found


def _after(main: Callable[[list[str]], None], word: str, argv: list[str]) -> None:
    main([word, *argv])


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return (
        "usage: notewriter COMMAND [--config FILE] [options]\n\n"
        "Train local language models to write notes for retrieval-augmented question answering.\n\n"
        "Commands, in the order in which they are used (see COMMAND --help):\n"
        + "\n".join(lines)
        + "\n\nIn a clone `accelerate launch` trains too: training/train_dpo.py, train_kto.py and train_sft.py.\n"
    )


if __name__ == "__main__":
    main()
