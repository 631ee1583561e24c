"""The `notewriter` command: one sub-command a stage, in the order in which they are used."""

import importlib
import os
import sys

from notewriter import __version__
from notewriter.errors import UserError, run

COMMANDS = {
    "quickstart": ("notewriter.quickstart", "the whole pipeline on a generated world, on the CPU, in minutes"),
    "fetch-model": ("notewriter.models.fetch", "get a small model to start with"),
    "world": ("data_construction.world", "generate a world of fictional people and places, with questions"),
    "index": ("notewriter.retrieval.index", "build an index of a corpus, BM25 or dense"),
    "pairs": ("data_construction.pairs", "roll out methods with a teacher and label preference pairs"),
    "chains": ("data_construction.chains", "have a teacher reason and search, and keep its chains for SFT (ReaRAG)"),
    "merge-shards": ("data_construction.merge_shards", "make one dataset of pairs or chains that were built in shards"),
    "inspect": ("data_construction.viewer", "one HTML page to leaf through pairs and chains"),
    "preflight": ("training.preflight", "check what a training run would train on, and what it will need"),
    "merge": ("training.merge", "merge a trained LoRA adapter into its base model, to serve it"),
    "ask": ("notewriter.ask", "answer one question on the terminal, step by step"),
    "evaluate": ("eval.evaluate", "run a method over a benchmark and score it"),
    "judge": ("eval.judged", "have a judge model rate a run's answers, chains of steps and notes"),
    "compare": ("eval.compare", "compare two runs on the same questions"),
    "report": ("eval.report", "one HTML page about one or more runs"),
    "publish": ("training.publishing.publish", "upload a checkpoint and its card to the Hugging Face Hub"),
}


def main() -> None:
    """Run the sub-command that the command line names."""
    # Tokenizers warn at every fork otherwise; serving forks once.
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    run(_dispatch)


def _dispatch() -> None:
    name, *rest = sys.argv[1:] or ["--help"]
    if name in {"-h", "--help"}:
        sys.stdout.write(_help())
    elif name == "--version":
        sys.stdout.write(f"notewriter {__version__}\n")
    elif name in COMMANDS:
        # Imported here, so that one stage does not wait for another's libraries.
        importlib.import_module(COMMANDS[name][0]).main(rest)
    else:
        raise UserError(f"unknown command {name!r}; choose one of: {', '.join(COMMANDS)}")


def _help() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:{width}}  {purpose}" for name, (_, purpose) in COMMANDS.items()]
    return (
        "usage: notewriter COMMAND [--config FILE] [options]\n\n"
        "Train local language models to write notes for retrieval-augmented question answering.\n\n"
        "Commands, in the order in which they are used (COMMAND --help tells more):\n"
        + "\n".join(lines)
        + "\n\nTraining, between pairs and evaluate, runs by itself, on as many processes as you have:\n"
        "  accelerate launch --quiet [--config_file configs/accelerate/FILE] training/train_dpo.py \\\n"
        "    --config configs/dpo/FILE\n"
        "  (or training/train_sft.py --config configs/sft/FILE)\n"
    )


if __name__ == "__main__":
    main()
