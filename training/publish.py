"""Upload a checkpoint to the Hugging Face Hub, with a card that says how it was trained and what it scores."""

import json
import logging
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, EvalResult, HfApi, ModelCardData, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from notewriter import config
from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.statistics import PAIRS_STATISTICS_SCHEMA
from notewriter.errors import UserError
from notewriter.models import checkpoints
from notewriter.pages.cards import render_card
from training import leaks

logger = logging.getLogger(__name__)

NOT_RECORDED = "not recorded"
TRAINING_SCHEMA = "notewriter/training/1"

# What a model consists of goes, and nothing else: optimizer states, checkpoints of a run, logs and whatever a user
# keeps beside them stay, without a list of everything that must not leave.
FILES = (*checkpoints.WEIGHTS, *checkpoints.TOKENIZER, *checkpoints.SETTINGS, "*.index.json", "LICENSE*", "NOTICE*")

# Of what the trainer logs last, what a reader of the card can use.
TRAINING_METRICS = ("train_loss", "eval_loss", "rewards/accuracies", "eval_rewards/accuracies", "eval_rewards/margins")


@dataclass
class Arguments:
    """Upload a checkpoint to the Hugging Face Hub, with a card made from the record of its training and its scores.

    Log in first with `hf auth login`, or set HF_TOKEN. Only the model's own files go: weights,
    configuration, tokenizer, licence. Optimizer states, a run's checkpoints and logs stay.
    """

    checkpoint: str = field(metadata={"help": "the folder that a training run saved its model in"})
    repo_id: str = field(metadata={"help": "where it goes, owner/name; made if it is not there"})
    metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of evaluations of this checkpoint, for the card and its model-index"},
    )
    baseline_metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of what it is compared with, for the card's table alone"},
    )
    pairs_stats: str | None = field(
        default=None, metadata={"help": "the stats.json beside the training pairs, for the yield of each stage"}
    )
    license: str | None = field(
        default=None, metadata={"help": "the licence's identifier on the hub, such as apache-2.0; the base model binds"}
    )
    private: bool = field(default=True, metadata={"help": "whether only you can see it; false publishes it to all"})
    dry_run: bool = field(default=False, metadata={"help": "list the files and print the card, and send nothing"})


def main(argv: list[str]) -> None:
    """Command `notewriter publish`."""
    (arguments,) = config.parse(Arguments, argv, prog="notewriter publish", description=Arguments.__doc__)
    publish(arguments)


def publish(arguments: Arguments) -> None:
    """Upload what `files` lists and the card in one commit, or with `dry_run` show both.

    Raises:
        UserError: no checkpoint, no valid id, no token, a file that holds a secret, an existing
            repository that is public where a private one was asked for, or a hub that refuses or is not reached.
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


def check_repo_id(repo_id: str) -> None:
    """Raise a `UserError` where `repo_id` is not of the form owner/name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"--repo_id: {_one_line(error)}") from error
    if "/" not in repo_id:
        raise UserError(f"--repo_id {repo_id}: has no owner; write owner/name")


def check_checkpoint(folder: Path) -> None:
    """Raise a `UserError` where `folder` is neither a whole model nor a LoRA adapter."""
    if not folder.is_dir():
        raise UserError(f"{folder}: is not a folder; give the one that a training run saved its model in")
    if not is_adapter(folder):
        checkpoints.check_model(folder)
    elif not any(folder.glob("adapter_model.*")):
        raise UserError(f"{folder}: has no adapter_model.safetensors; wait until its training has ended")


def is_adapter(folder: Path) -> bool:
    """Whether a folder holds a LoRA adapter and not a whole model."""
    return (folder / "adapter_config.json").is_file() and not (folder / "config.json").is_file()


def files(folder: Path) -> list[Path]:
    """The files of a checkpoint that belong to the model, by name."""
    return sorted({path for pattern in FILES for path in folder.glob(pattern) if path.is_file()})


def is_weights(name: str) -> bool:
    """Whether a file of a repository, not in a folder of it, holds weights or lists their shards."""
    return "/" not in name and any(fnmatch(name, pattern) for pattern in (*checkpoints.WEIGHTS, "*.index.json"))


def card(arguments: Arguments) -> str:
    """The model card: YAML metadata with the scores as a model-index, and a body from `model_card.md.jinja`.

    Raises:
        UserError: a record is not what the stage before writes; names the file.
    """
    folder = Path(arguments.checkpoint)
    record_file = folder / "training.json"
    if not record_file.is_file():
        logger.warning("%s: is not there; the card will say that the training was not recorded", record_file)
    training = read_record(record_file, TRAINING_SCHEMA) if record_file.is_file() else {}
    base = base_model(training, folder)
    own = [read_metrics(Path(path)) for path in arguments.metrics]
    baselines = [read_metrics(Path(path)) for path in arguments.baseline_metrics]
    stats = read_record(Path(arguments.pairs_stats), PAIRS_STATISTICS_SCHEMA) if arguments.pairs_stats else None
    name = arguments.repo_id.split("/")[1]
    data = ModelCardData(
        base_model=base["hub_id"],
        library_name="peft" if is_adapter(folder) else "transformers",
        license=arguments.license or base["license"],
        model_name=name,
        pipeline_tag="text-generation",
        tags=["notewriter", "retrieval-augmented-generation", *([training["method"]] if "method" in training else [])],
        eval_results=model_index(own) or None,
    )
    return render_card(
        Path(__file__).with_name("model_card.md.jinja"),
        data,
        name=name,
        repo_id=arguments.repo_id,
        adapter=is_adapter(folder),
        base=base,
        training=training_facts(training),
        stats=stage_facts(stats) if stats else None,
        evaluations=own + baselines,
    )


def read_record(path: Path, schema: str) -> dict[str, Any]:
    """One of our JSON files.

    Raises:
        UserError: it cannot be read, or is not JSON of this schema.
    """
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise UserError(f"{path}: cannot be read as JSON ({_one_line(error)}); check the path") from error
    found = record.get("schema") if isinstance(record, dict) else None
    if found != schema:
        raise UserError(f"{path}: has the schema {found!r}, not {schema!r}; give the file that notewriter wrote")
    assert isinstance(record, dict)
    return record


def model_index(runs: Iterable[Metrics]) -> list[EvalResult]:
    """Every score of every run as the hub's metadata has it; values as in metrics.json, to four digits."""
    return [
        EvalResult(
            task_type="question-answering",
            dataset_type=run.dataset,
            dataset_name=run.dataset,
            metric_type=metric,
            metric_name=f"{metric} ({run.family}), {run.method}",
            metric_value=round(interval.mean, 4),
        )
        for run in runs
        for metric, interval in run.metrics.items()
    ]


def base_model(training: Mapping[str, Any], folder: Path) -> dict[str, str | None]:
    """What the checkpoint was made from: its name to print, its hub id and licence where they are known.

    A base that is itself a folder of this machine is followed to the model that it was fetched as
    or trained from; a path is never printed.
    """
    name = training.get("base_model") or _read_json(folder / "adapter_config.json").get("base_model_name_or_path")
    base: dict[str, str | None] = {"label": NOT_RECORDED, "hub_id": None, "license": None, "origin": None}
    if not name:
        return base
    path = Path(name)
    if checkpoints.is_hub_id(name):
        return base | {"label": name, "hub_id": name}
    if (path / "origin.json").is_file():
        origin = _read_json(path / "origin.json")
        licence = str(origin.get("licence", "")).lower() or None
        hub_id = origin.get("model")
        return {"label": hub_id or path.name, "hub_id": hub_id, "license": licence, "origin": origin.get("note")}
    earlier = _read_json(path / "training.json").get("base_model")
    if earlier and path.resolve() != folder.resolve():
        further = base_model({"base_model": earlier}, path)
        return further | {"label": f"{path.name} (trained from {further['label']})"}
    return base | {"label": path.name}


def _read_json(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (TypeError, ValueError) as error:
        raise UserError(f"{path}: is not a JSON object ({_one_line(error)}); restore the file or remove it") from error


def training_facts(training: Mapping[str, Any]) -> dict[str, Any]:
    """What the card says about the training; what its record lacks is said to be not recorded."""
    facts = {key: training.get(key, NOT_RECORDED) for key in ("method", "parameters", "steps")}
    facts["data_sha256"] = training.get("pairs_sha256") or training.get("data_sha256") or NOT_RECORDED
    logged = training.get("metrics", {})
    return facts | {
        "hyperparameters": training.get("hyperparameters") or {"hyper-parameters": NOT_RECORDED},
        "metrics": {key: f"{logged[key]:.4g}" for key in TRAINING_METRICS if key in logged},
        "versions": training.get("versions") or {"versions": NOT_RECORDED},
        "rows": training.get("rows", {}),
    }


def stage_facts(stats: Mapping[str, Any]) -> dict[str, Any]:
    """The yield of each stage from the pairs' stats.json."""
    judges = stats.get("judges", {})
    return {
        "questions": stats.get("questions", NOT_RECORDED),
        "stages": [
            {
                "name": stage,
                "judge": judges.get(stage, NOT_RECORDED),
                "pairs": counts.get("pairs", NOT_RECORDED),
                "dropped": ", ".join(f"{count} {reason}" for reason, count in counts.get("dropped", {}).items())
                or "none",
            }
            for stage, counts in stats.get("stages", {}).items()
        ],
    }


def _listing(folder: Path, uploads: list[Path], text: str) -> str:
    sizes = {path.name: path.stat().st_size for path in uploads} | {"README.md": len(text.encode("utf-8"))}
    kept = sorted(
        path.name for path in folder.iterdir() if path not in uploads and path.name not in {"README.md", ".lock"}
    )
    lines = [f"{size:>16,}  {name}" for name, size in sizes.items()]
    lines += [f"{sum(sizes.values()):>16,}  bytes in all", f"stays here: {', '.join(kept) or 'nothing'}", "", text]
    return "\n".join(lines)


def upload(api: HfApi, repo_id: str, private: bool, uploads: list[Path], text: str) -> str:
    """Make the repository if it is not there, commit every file and the card at once; returns the commit's address.

    Weights of an earlier upload that this one does not replace are removed in the same commit.

    Raises:
        UserError: the hub refuses or is not reached, or the repository is public where `private` was asked for.
    """
    operations: list[CommitOperationAdd | CommitOperationDelete] = [
        CommitOperationAdd(path.name, path) for path in uploads
    ]
    operations.append(CommitOperationAdd("README.md", text.encode("utf-8")))
    try:
        api.create_repo(repo_id, private=private, exist_ok=True)
        there = api.model_info(repo_id)
        if private and not there.private:
            raise UserError(f"{repo_id}: exists and is public; give --private false, or another --repo_id")
        # Shards of an earlier upload would be loaded beside the new weights.
        stale = {file.rfilename for file in there.siblings or [] if is_weights(file.rfilename)}
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
    return _one_line(error).replace(str(api.token), "[token]")


def _one_line(error: object) -> str:
    return " ".join(str(error).split())[:300]


if __name__ == "__main__":
    from notewriter.errors import run

    run(lambda: main(sys.argv[1:]))
