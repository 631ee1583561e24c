"""`notewriter publish`: upload a checkpoint and its training data to the Hugging Face Hub, with their cards."""

import logging
import os
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from huggingface_hub import HfApi, get_token

from notewriter.ground import config
from notewriter.ground.errors import UserError
from notewriter.training.publishing import leaks, model_files
from notewriter.training.publishing.arguments import PublishArguments
from notewriter.training.publishing.card import CARD, CURVES, card
from notewriter.training.publishing.curves import curves
from notewriter.training.publishing.data import Data, read_data
from notewriter.training.publishing.hub import Upload, check_repo_id, upload

logger = logging.getLogger(__name__)


def main(argv: list[str]) -> None:
    """Command `notewriter publish`."""
    (arguments,) = config.parse(PublishArguments, argv, prog="notewriter publish", description=PublishArguments.__doc__)
    publish(arguments)


def publish(arguments: PublishArguments) -> None:
    """Upload the data and the model, or with `dry_run` show what would be sent.

    Everything is read and checked before anything is sent.

    Raises:
        UserError: no checkpoint, an invalid id, no token, a file or row that contains a secret, an existing public
            repository where a private one is wanted, or a hub that refuses or is unreachable.
    """
    check_ids(arguments)
    if arguments.load_best and not arguments.metrics:
        name = model_files.best_of(arguments.checkpoint, arguments.load_best)[0].name
        arguments = replace(arguments, metrics=[str(Path(arguments.load_best) / name / "metrics.json")])
    data = read_data(Path(arguments.data)) if arguments.data else None
    # On the disk of the checkpoint, whose size its copies have, if it can be written to.
    parent = Path(arguments.checkpoint or ".").resolve().parent
    beside = parent if os.access(parent, os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix=".publish-", dir=beside) as scratch:
        repositories = plan(arguments, data, Path(scratch))
        if arguments.dry_run:
            sys.stdout.write("\n".join(_listing(each, arguments) for each in repositories))
            return
        token = get_token()
        if token is None:
            raise UserError("no Hugging Face token; log in with `hf auth login` or set HF_TOKEN")
        api = HfApi(token=token)
        for repository in repositories:
            logger.info("published as %s", upload(api, repository, arguments.private))


def check_ids(arguments: PublishArguments) -> None:
    """Raise a `UserError` unless the model, the data or both are given, each with a repository."""
    if not (arguments.checkpoint or arguments.data):
        raise UserError("nothing to publish; give --checkpoint, --data or both")
    for option, source, repo_option, repo_id in (
        ("--checkpoint", arguments.checkpoint, "--repo_id", arguments.repo_id),
        ("--data", arguments.data, "--data_repo_id", arguments.data_repo_id),
    ):
        if source and not repo_id:
            raise UserError(f"{option}: has no repository; give {repo_option} owner/name")
        if repo_id:
            check_repo_id(repo_id, repo_option)
    if arguments.load_best and not arguments.checkpoint:
        raise UserError("load_best: chooses a checkpoint of a training run; give it with --checkpoint")


def plan(arguments: PublishArguments, data: Data | None, scratch: Path) -> list[Upload]:
    """The uploads in their order: the data and the model, both searched for secrets.

    `scratch` is a folder for copies that exist only until they are sent.

    Raises:
        UserError: the checkpoint is not complete, or a file contains what looks like a secret.
    """
    repositories = []
    if data and arguments.data_repo_id:
        repositories.append(Upload("dataset", arguments.data_repo_id, data.files, stale=("*.parquet",)))
    if arguments.checkpoint and arguments.repo_id:
        run = Path(arguments.checkpoint)
        folder = model_files.best_of(run, arguments.load_best)[0] if arguments.load_best else run
        model_files.check_checkpoint(folder)
        contents = model_files.published(folder, run, scratch) | model_texts(arguments, data)
        for name, content in contents.items():
            if isinstance(content, Path):
                leaks.check_file(content)
            else:
                leaks.check_text(content.decode("utf-8"), "the model card" if name == CARD else name)
        repositories.append(Upload("model", arguments.repo_id, contents, model_files.STALE))
    return repositories


def model_texts(arguments: PublishArguments, data: Data | None) -> dict[str, Path | bytes]:
    """The files that are written for the model's repository: the card, and the training curves if there are any."""
    assert arguments.checkpoint and arguments.repo_id
    try:
        plot = curves(Path(arguments.checkpoint))
    except UserError as error:
        logger.warning("%s; the card has no curves", error)
        plot = ""
    texts: dict[str, Path | bytes] = {CARD: card(arguments, data, bool(plot)).encode("utf-8")}
    if plot:
        texts[CURVES] = plot.encode("utf-8")
    return texts


def _listing(repository: Upload, arguments: PublishArguments) -> str:
    sizes = {
        name: len(content) if isinstance(content, bytes) else content.stat().st_size
        for name, content in repository.files.items()
    }
    lines = [f"{repository.kind} {repository.id}", *(f"{size:>16,}  {name}" for name, size in sizes.items())]
    folder = Path((arguments.checkpoint if repository.kind == "model" else arguments.data) or "")
    kept = sorted({path.name for path in folder.iterdir()} - {*sizes, ".lock"})
    card = repository.files[CARD]
    text = card.decode("utf-8") if isinstance(card, bytes) else card.read_text(encoding="utf-8")
    lines += [f"{sum(sizes.values()):>16,}  bytes in all", f"stays here: {', '.join(kept) or 'nothing'}", "", text]
    return "\n".join(lines) + "\n"
