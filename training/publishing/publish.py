"""Upload a checkpoint to the Hugging Face Hub, with a card that says how it was trained and what it scores."""

import logging
import sys
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from notewriter import config
from notewriter.errors import UserError
from notewriter.models import checkpoints
from training.publishing import leaks
from training.publishing.card import is_adapter, model_card, one_line

logger = logging.getLogger(__name__)

WEIGHTS = ("*.safetensors", "*.safetensors.index.json")

FILES = (*WEIGHTS, *checkpoints.TOKENIZER, *checkpoints.SETTINGS, "LICENSE*", "NOTICE*")
"""The files of a model: everything else (optimizer states, checkpoints of a run, logs) stays, without being listed."""

PICKLES = (".bin", ".pt", ".pth", ".pkl", ".pickle", ".ckpt")
"""Pickles run code on the machine that loads them; none is uploaded."""


@dataclass
class PublishArguments:
    """Upload a checkpoint to the Hugging Face Hub, with a card made from the record of its training and its scores.

    Log in first with `hf auth login`, or set HF_TOKEN. Only the model's own files are uploaded: weights (safetensors),
    configuration, tokenizer, licence. Optimizer states, a run's checkpoints and logs are not.
    """

    checkpoint: str = field(metadata={"help": "the folder that a training run saved its model in"})
    repo_id: str = field(metadata={"help": "the repository, owner/name; created if it does not exist"})
    metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of evaluations of this checkpoint, for the card and its model-index"},
    )
    baseline_metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of the systems that it is compared with, for the card's table only"},
    )
    pairs_stats: str | None = field(
        default=None, metadata={"help": "the stats.json beside the training pairs, for the yield of each stage"}
    )
    license: str | None = field(
        default=None, metadata={"help": "the licence's identifier on the hub, such as apache-2.0; the base model binds"}
    )
    private: bool = field(default=True, metadata={"help": "whether only you can see it; false makes it public"})
    dry_run: bool = field(default=False, metadata={"help": "list the files and print the card; upload nothing"})


def main(argv: list[str]) -> None:
    """Command `notewriter publish`."""
    (arguments,) = config.parse(PublishArguments, argv, prog="notewriter publish", description=PublishArguments.__doc__)
    publish(arguments)


def publish(arguments: PublishArguments) -> None:
    """Upload what `files` lists and the card in one commit, or with `dry_run` show both.

    Raises:
        UserError: no checkpoint, an invalid id, no token, a file that contains a secret, an existing public repository
            where a private one is wanted, or a hub that refuses or is unreachable.
    """
    check_repo_id(arguments.repo_id)
    folder = Path(arguments.checkpoint)
    check_checkpoint(folder)
    uploads = files(folder)
    text = card(arguments)
    for path in uploads:
        leaks.check_file(path)
    leaks.check_text(text, "the model card")
    if arguments.dry_run:
        sys.stdout.write(_listing(folder, uploads, text))
        return
    token = get_token()
    if token is None:
        raise UserError("no Hugging Face token; log in with `hf auth login` or set HF_TOKEN")
    address = upload(HfApi(token=token), arguments.repo_id, arguments.private, uploads, text)
    logger.info("published as %s", address)


def card(arguments: PublishArguments) -> str:
    """The checkpoint's model card, with the scores and statistics that the command names."""
    return model_card(
        Path(arguments.checkpoint),
        arguments.repo_id,
        metrics=[Path(path) for path in arguments.metrics],
        baseline_metrics=[Path(path) for path in arguments.baseline_metrics],
        pairs_stats=Path(arguments.pairs_stats) if arguments.pairs_stats else None,
        license=arguments.license,
    )


def check_repo_id(repo_id: str) -> None:
    """Raise a `UserError` unless `repo_id` has the form owner/name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"--repo_id: {one_line(error)}") from error
    if "/" not in repo_id:
        raise UserError(f"--repo_id {repo_id}: has no owner; write owner/name")


def check_checkpoint(folder: Path) -> None:
    """Raise a `UserError` where `folder` is neither a whole model nor a LoRA adapter, with weights in safetensors."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; give the one that a training run saved its model in")
    if not is_adapter(folder):
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


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, by name."""
    found = {path for pattern in FILES for path in folder.glob(pattern) if path.is_file()}
    return sorted(path for path in found if path.suffix not in PICKLES)


def is_weights(name: str) -> bool:
    """Whether a file at the top of a repository contains weights or lists their shards."""
    return "/" not in name and any(fnmatch(name, pattern) for pattern in (*checkpoints.WEIGHTS, "*.index.json"))


def _listing(folder: Path, uploads: list[Path], text: str) -> str:
    sizes = {path.name: path.stat().st_size for path in uploads} | {"README.md": len(text.encode("utf-8"))}
    kept = sorted(
        path.name for path in folder.iterdir() if path not in uploads and path.name not in {"README.md", ".lock"}
    )
    lines = [f"{size:>16,}  {name}" for name, size in sizes.items()]
    lines += [f"{sum(sizes.values()):>16,}  bytes in all", f"stays here: {', '.join(kept) or 'nothing'}", "", text]
    return "\n".join(lines)


def upload(api: HfApi, repo_id: str, private: bool, uploads: list[Path], text: str) -> str:
    """Create the repository if needed, and commit every file and the card at once; returns the commit's address.

    Weights of an earlier upload that this one does not replace are deleted in the same commit.

    Raises:
        UserError: the hub refuses or is unreachable, or the repository is public and `private` is set.
    """
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(path.name, path) for path in uploads
    ]
    operations.append(CommitOperationAdd("README.md", text.encode("utf-8")))
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        remote = api.model_info(repo_id)
        if private and not remote.private:
            raise UserError(f"{repo_id}: exists and is public; give --private false, or another --repo_id")
        # Shards of an earlier upload would be loaded beside the new weights.
        stale = {file.rfilename for file in remote.siblings or [] if is_weights(file.rfilename)}
        operations += [CommitOperationDelete(name) for name in sorted(stale - {path.name for path in uploads})]
        # One commit, so that no reader ever finds new weights under an old card.
        return str(api.create_commit(repo_id, operations, commit_message="Upload the model and its card").commit_url)
    except HfHubHTTPError as error:
        status = error.response.status_code
        remedy = "check that the token may write there" if status in {401, 403, 404} else "try again later"
        raise UserError(f"{api.endpoint}: refused {repo_id} ({status}: {_failure(error, api)}); {remedy}") from error
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{api.endpoint}: {repo_id} could not be uploaded ({_failure(error, api)}); "
            "check the connection and HF_ENDPOINT, and run the same command again"
        ) from error


def _failure(error: BaseException, api: HfApi) -> str:
    return one_line(error).replace(str(api.token), "[token]")


if __name__ == "__main__":
    from notewriter.errors import run

    run(lambda: main(sys.argv[1:]))
