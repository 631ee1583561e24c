"""Upload a checkpoint and its training data to the Hugging Face Hub, with cards that say how they were made."""

import logging
import os
import sys
import tempfile
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from huggingface_hub import HfApi, get_token

from notewriter.artifacts.best_checkpoint import BestCheckpoint, read_best_checkpoint
from notewriter.artifacts.fingerprints import FINGERPRINTS
from notewriter.ground import config, jsonl
from notewriter.ground.errors import UserError
from notewriter.models import checkpoints
from notewriter.training.publishing import leaks
from notewriter.training.publishing.card import base_of, model_card
from notewriter.training.publishing.curves import curves
from notewriter.training.publishing.data import Data, example_request, read_data
from notewriter.training.publishing.hub import Item, Repository, check_repo_id, collect, upload
from notewriter.training.publishing.scores import result_files
from notewriter.training.publishing.settings import REWRITTEN

logger = logging.getLogger(__name__)

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")

FILES = (*WEIGHTS, *checkpoints.TOKENIZER, *checkpoints.SETTINGS, "LICENSE*", "NOTICE*")
"""The files of a model: everything else (optimizer states, checkpoints of a run, logs) stays, without being listed."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Pickles run code on the machine that loads them; none is uploaded."""


@dataclass
class PublishArguments:
    """Upload a checkpoint, its training data or both to the Hugging Face Hub, with cards made from their records.

    Log in first with `hf auth login`, or set HF_TOKEN. Of a checkpoint only the model's own files are uploaded:
    weights (safetensors), configuration, tokenizer, licence. Optimizer states, a run's checkpoints and logs are not.
    When an upload is interrupted, run the same command again: what has arrived is not sent twice.
    """

    checkpoint: str | None = field(
        default=None, metadata={"help": "the folder that a training run saved its model or adapter in"}
    )
    repo_id: str | None = field(
        default=None, metadata={"help": "the model's repository, owner/name; created if it does not exist"}
    )
    data: str | None = field(
        default=None,
        metadata={"help": "the folder of pairs or chains that it was trained on, published as a dataset repository"},
    )
    data_repo_id: str | None = field(
        default=None, metadata={"help": "the dataset's repository, owner/name; without --data the card only links it"}
    )
    collection: str | None = field(
        default=None,
        metadata={"help": "the title of a collection that links model, data and base model; created if necessary"},
    )
    revisions: bool = field(
        default=False,
        metadata={"help": "publish the run's checkpoints too, each as a revision of the model's repository"},
    )
    load_best: str | None = field(
        default=None,
        metadata={
            "help": "the output folder of `notewriter evaluate --checkpoints` over this run: publish the checkpoint "
            "that scored best in place of the last, with its metrics.json unless --metrics is given"
        },
    )
    metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of evaluations of this checkpoint, for the card and its model-index"},
    )
    baseline_metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of the systems that it is compared with, for the card's table only"},
    )
    benchmarks: dict[str, str] = field(
        default_factory=dict,
        metadata={
            "help": "scores for the hub's leaderboards, in .eval_results/: DATASET/METRIC of a metrics.json -> the "
            'benchmark\'s repository and task, such as \'{"hotpotqa/f1": "owner/name:task"}\''
        },
    )
    pairs_stats: str | None = field(
        default=None,
        metadata={"help": "the stats.json beside the training pairs, for the yield of each stage (default: of --data)"},
    )
    license: str | None = field(
        default=None, metadata={"help": "the licence's identifier on the hub, such as apache-2.0; the base model binds"}
    )
    private: bool = field(default=True, metadata={"help": "whether only you can see it; false makes it public"})
    dry_run: bool = field(default=False, metadata={"help": "list the files and print the cards; upload nothing"})


def main(argv: list[str]) -> None:
    """Command `notewriter publish`."""
    (arguments,) = config.parse(PublishArguments, argv, prog="notewriter publish", description=PublishArguments.__doc__)
    publish(arguments)


def publish(arguments: PublishArguments) -> None:
    """Upload the data, the model, its checkpoints and the collection, or with `dry_run` show what would be sent.

    Everything is read and checked before anything is sent.

    Raises:
        UserError: no checkpoint, an invalid id, no token, a file or row that contains a secret, an existing public
            repository where a private one is wanted, or a hub that refuses or is unreachable.
    """
    check_ids(arguments)
    if arguments.load_best and not arguments.metrics:
        name = best_of(arguments)[0].name
        arguments = replace(arguments, metrics=[str(Path(arguments.load_best) / name / "metrics.json")])
    data = read_data(Path(arguments.data)) if arguments.data else None
    # On the disk of the checkpoint, whose size its copies have, if it can be written to.
    parent = Path(arguments.checkpoint or ".").resolve().parent
    beside = parent if os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=beside) as scratch:
        repositories = plan(arguments, data, Path(scratch))
        if arguments.collection:
            leaks.check_text(arguments.collection, "--collection")
        if arguments.dry_run:
            sys.stdout.write("\n".join(_listing(each, arguments) for each in repositories))
            return
        token = get_token()
        if token is None:
            raise UserError("no Hugging Face token; log in with `hf auth login` or set HF_TOKEN")
        api = HfApi(token=token)
        for repository in repositories:
            logger.info("published as %s", upload(api, repository, arguments.private))
    if arguments.collection:
        owner = repositories[0].id.split("/")[0]
        address = collect(api, owner, arguments.collection, items(arguments), arguments.private)
        logger.info("collected in %s", address)


def check_ids(arguments: PublishArguments) -> None:
    """Raise a `UserError` unless the model, the data or both are given, each with a repository."""
    if not (arguments.checkpoint or arguments.data):
        raise UserError("nothing to publish; give --checkpoint, --data or both")
    for option, repo_id, name in (
        ("--checkpoint", arguments.repo_id, "--repo_id"),
        ("--data", arguments.data_repo_id, "--data_repo_id"),
    ):
        source = arguments.checkpoint if option == "--checkpoint" else arguments.data
        if source and not repo_id:
            raise UserError(f"{option}: has no repository; give {name} owner/name")
        if repo_id:
            check_repo_id(repo_id, name)
    if arguments.load_best and not arguments.checkpoint:
        raise UserError("load_best: chooses a checkpoint of a training run; give it with --checkpoint")


def plan(arguments: PublishArguments, data: Data | None, scratch: Path) -> list[Repository]:
    """What to send, in this order: the data, the model, and its checkpoints' revisions; searched for secrets.

    `scratch` is a folder for copies that exist only until they are sent.

    Raises:
        UserError: the checkpoint is not complete, or a file contains what looks like a secret.
    """
    repositories = []
    if data and arguments.data_repo_id:
        repositories.append(Repository("dataset", arguments.data_repo_id, data.files, stale=("*.parquet",)))
    if not (arguments.checkpoint and arguments.repo_id):
        return repositories
    run, repo_id = Path(arguments.checkpoint), arguments.repo_id
    folder = best_of(arguments)[0] if arguments.load_best else run
    check_checkpoint(folder)
    written = model_texts(arguments, data)
    for name, text in written.items():
        kind = leaks.Kind.ROWS if name == EXAMPLE else leaks.Kind.PROSE
        leaks.check_text(text.decode("utf-8"), "the model card" if name == "README.md" else name, kind)
    checkpoint_folders = revisions(run) if arguments.revisions else []
    if arguments.revisions:
        for path in sorted(set(run.glob("checkpoint-*")) - set(checkpoint_folders)):
            logger.warning("%s: is not complete (no %s or no safetensors); it is left out", path, checkpoints.STATE)
    for revision, saved in (("main", folder), *((path.name, path) for path in checkpoint_folders)):
        each = in_final_type(saved, run, scratch)
        sent: dict[str, Path | bytes] = {path.name: path for path in files(each)}
        sent |= {name: rewritten(each) for name, rewritten in REWRITTEN.items() if name in sent}
        for name, content in sent.items():
            if isinstance(content, Path):
                leaks.check_file(content)
            else:
                leaks.check_text(content.decode("utf-8"), name)
        repositories.append(Repository("model", repo_id, {**sent, **written}, (*checkpoints.WEIGHTS, INDEX), revision))
    return repositories


INDEX = "*.index.json"
EXAMPLE = "example.json"
CURVES = "curves.svg"


def model_texts(arguments: PublishArguments, data: Data | None) -> dict[str, bytes]:
    """The files that are written for the model's repository: card, training curves, scores, an example request."""
    assert arguments.checkpoint and arguments.repo_id
    texts = {"README.md": card(arguments, data).encode("utf-8")}
    if plot := curves(Path(arguments.checkpoint)):
        texts[CURVES] = plot.encode("utf-8")
    if data and data.first_prompt:
        texts[EXAMPLE] = example_request(arguments.repo_id, data.first_prompt)
    return texts | result_files([Path(path) for path in arguments.metrics], arguments.benchmarks)


def card(arguments: PublishArguments, data: Data | None = None) -> str:
    """The checkpoint's model card, with the scores and statistics that the command names."""
    assert arguments.checkpoint and arguments.repo_id
    stats = Path(arguments.pairs_stats) if arguments.pairs_stats else data.pairs_statistics if data else None
    return model_card(
        Path(arguments.checkpoint),
        arguments.repo_id,
        metrics=[Path(path) for path in arguments.metrics],
        baseline_metrics=[Path(path) for path in arguments.baseline_metrics],
        pairs_stats=stats,
        license=arguments.license,
        data_repo_id=arguments.data_repo_id,
        data_license=data.license if data else None,
        example=EXAMPLE if data and data.first_prompt else None,
        curves=CURVES if curves(Path(arguments.checkpoint)) else None,
        revisions=[each.name for each in revisions(Path(arguments.checkpoint))] if arguments.revisions else (),
        best=best_of(arguments)[1] if arguments.load_best else None,
    )


def best_of(arguments: PublishArguments) -> tuple[Path, BestCheckpoint]:
    """The checkpoint of the run that its evaluation named the best, and the record that does.

    Raises:
        UserError: there is no such record, or the run no longer has that checkpoint or has another of its name.
    """
    assert arguments.checkpoint and arguments.load_best
    best = read_best_checkpoint(Path(arguments.load_best))
    folder = Path(arguments.checkpoint) / Path(best.checkpoint).name
    if not folder.is_dir():
        raise UserError(f"{folder}: scored best but is not there; give its run, or evaluate the checkpoints that are")
    record = Path(arguments.load_best) / folder.name / FINGERPRINTS
    scored = jsonl.read_object(record, dict[str, str], "evaluate again") if record.is_file() else {}
    if scored.get("served") not in (None, checkpoints.fingerprint(folder)):
        raise UserError(
            f"{folder}: is not the checkpoint that {arguments.load_best} has scores of; give that one's run"
        )
    return folder, best


def items(arguments: PublishArguments) -> list[Item]:
    """The repositories of the collection: the model, its data and its base, as far as they have a repository."""
    found = []
    if arguments.checkpoint and arguments.repo_id:
        found.append(Item(arguments.repo_id, "model", "the trained model"))
    if arguments.data_repo_id:
        found.append(Item(arguments.data_repo_id, "dataset", "the data it was trained on"))
    if arguments.checkpoint and (base := base_of(Path(arguments.checkpoint))["hub_id"]):
        found.append(Item(base, "model", "the base model"))
    return found


def in_final_type(checkpoint: Path, run: Path, scratch: Path) -> Path:
    """The checkpoint, or a copy of it whose weights have the type of the run's final model.

    A checkpoint of full-parameter training has float32 weights, to resume from (`weights.cast_weights`).
    """
    saved, final = _dtype_in(checkpoint), _dtype_in(run)
    if not (saved and final) or saved == final:
        return checkpoint
    copy = scratch / checkpoint.name
    if copy.exists():
        # The best checkpoint is one of the revisions too.
        return copy
    copy.mkdir()
    for path in files(checkpoint):
        # What is cast replaces its link.
        (copy / path.name).symlink_to(path.resolve())
    import torch  # takes seconds, which all other uploads do without

    from notewriter.training.run.weights import cast_weights

    dtype = getattr(torch, final, None)
    if not isinstance(dtype, torch.dtype):
        raise UserError(f"{run / 'config.json'}: dtype {final!r} is not one of PyTorch's; correct it")
    cast_weights(copy, dtype)
    return copy


def _dtype_in(folder: Path) -> str | None:
    """The type of the weights according to a model's configuration; None where it does not say."""
    file = folder / "config.json"
    if not file.is_file():
        return None
    dtype = jsonl.read_object(file, dict[str, Any], "restore the file").get("dtype")
    return dtype if isinstance(dtype, str) else None


def check_checkpoint(folder: Path) -> None:
    """Raise a `UserError` where `folder` is neither a whole model nor a LoRA adapter, with weights in safetensors."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; give the one that a training run saved its model in")
    if not checkpoints.is_adapter(folder):
        checkpoints.check_model(folder)
    elif not any(folder.glob("adapter_model.*")):
        raise UserError(f"{folder}: has no adapter_model.safetensors; wait until its training has ended")
    if any(folder.glob("*.safetensors")):
        return
    for path in sorted([*folder.glob("pytorch_model*"), *folder.glob("adapter_model*")]):
        if path.suffix in PICKLES:
            raise UserError(
                f"{path}: the weights are pickled, and a pickle runs code on the machine that loads it; save them as "
                "safetensors (load the model and call save_pretrained) and publish that folder"
            )
    raise UserError(f"{folder}: has no weights in safetensors; save the model again with save_pretrained")


def revisions(folder: Path) -> list[Path]:
    """The complete checkpoints of a run with weights in safetensors, in the order of their steps."""
    return [path for path in checkpoints.checkpoints_of(folder).values() if any(path.glob("*.safetensors"))]


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, by name."""
    found = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.suffix not in PICKLES)


def _listing(repository: Repository, arguments: PublishArguments) -> str:
    sizes = {
        name: len(content) if isinstance(content, bytes) else content.stat().st_size
        for name, content in repository.files.items()
    }
    lines = [f"{repository.kind} {repository.id}, revision {repository.revision}"]
    lines += [f"{size:>16,}  {name}" for name, size in sizes.items()]
    lines += [f"{sum(sizes.values()):>16,}  bytes in all"]
    if repository.revision == "main":
        folder = Path((arguments.checkpoint if repository.kind == "model" else arguments.data) or "")
        kept = sorted({path.name for path in folder.iterdir()} - {*sizes, ".lock"})
        card = repository.files["README.md"]
        text = card.decode("utf-8") if isinstance(card, bytes) else card.read_text(encoding="utf-8")
        lines += [f"stays here: {', '.join(kept) or 'nothing'}", "", text]
    return "\n".join(lines) + "\n"
