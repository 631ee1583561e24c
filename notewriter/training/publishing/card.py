"""The model card: the training and the scores of a checkpoint, from the records of its runs."""

import json
import logging
import shlex
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from huggingface_hub import EvalResult, ModelCardData

from notewriter.artifacts.metrics import Metrics, read_metrics
from notewriter.artifacts.run_folder import CONFIG, read_config
from notewriter.artifacts.training_record import TRAINING_RECORD, TrainingRecord, read_training_record
from notewriter.datasets import BENCHMARKS
from notewriter.ground import jsonl, recipes
from notewriter.models.adapters import max_lora_rank
from notewriter.models.checkpoint import ADAPTER, Checkpoint, is_hub_id
from notewriter.models.serve_options import command_line_options
from notewriter.pages.cards import render_card
from notewriter.training.publishing.arguments import PublishArguments
from notewriter.training.publishing.data import Data
from notewriter.training.publishing.model_files import adapted_model, best_of, read_json_of

logger = logging.getLogger(__name__)

CARD, CURVES = "README.md", "curves.svg"
"""Files that are written for the model's repository."""

NOT_RECORDED = "not recorded"

TRAINING_METRICS = ("train_loss", "eval_loss", "rewards/accuracies", "eval_rewards/accuracies", "eval_rewards/margins")
"""The last logged metrics that are of use to a reader of the card."""


def card(arguments: PublishArguments, data: Data | None = None, plotted: bool = False) -> str:
    """The model card: YAML metadata with the scores as a model-index, and a body from `model_card.md.jinja`.

    Args:
        arguments: a checkpoint and its repository, and the scores and statistics that the card shows.
        data: the dataset published with it.
        plotted: whether its training curves are.

    Raises:
        UserError: a record does not have the format that notewriter writes; names the file.
    """
    assert arguments.checkpoint and arguments.repo_id
    folder = Path(arguments.checkpoint)
    record = read_training_record(folder)
    if record is None:
        logger.warning("%s: missing; the card will say that the training was not recorded", folder / TRAINING_RECORD)
        record = TrainingRecord()
    base = base_model(record, folder)
    own, baselines = (
        [read_metrics(Path(path)) for path in paths] for paths in (arguments.metrics, arguments.baseline_metrics)
    )
    name = arguments.repo_id.split("/")[1]
    adapter = Checkpoint(folder).is_adapter
    adapted = adapted_model(folder) if adapter else None
    serving = lora_options(folder, name, arguments.repo_id) if adapter else ""
    if adapter and not adapted:
        logger.warning(
            "%s: names no model on the Hub as its base (base_model_name_or_path), so that whoever downloads the "
            "adapter cannot find it; publish the base and name it there",
            folder / ADAPTER,
        )
    # Pairs are counted by their stage, chains by their benchmark, and rows of others by the name of their file.
    counted = {name for names in record.rows.values() for name in names}
    stages = sorted(name for name in counted if "/" in name or name in BENCHMARKS)
    writes_notes = bool(stages) or not counted
    licence = arguments.license or base["license"]
    metadata = ModelCardData(
        base_model=adapted if adapter else base["hub_id"],
        datasets=[arguments.data_repo_id] if arguments.data_repo_id else None,
        library_name="peft" if adapter else "transformers",
        license=licence,
        model_name=name,
        pipeline_tag="text-generation",
        tags=[
            "notewriter",
            *(["retrieval-augmented-generation"] if writes_notes else []),
            *([record.method] if record.method else []),
        ],
        eval_results=model_index(own) or None,
    )
    return render_card(
        Path(__file__).with_name("model_card.md.jinja"),
        metadata,
        not_recorded=NOT_RECORDED,
        name=name,
        repo_id=arguments.repo_id,
        licence=licence,
        adapter=adapter,
        adapted=adapted,
        serving=serving,
        prompting=prompting(arguments.data or record.pairs or record.data),
        base=base,
        record=record,
        logged={key: f"{record.metrics[key]:.4g}" for key in TRAINING_METRICS if key in record.metrics},
        stats=data.statistics if data else None,
        evaluations=own + baselines,
        stages=stages,
        writes_notes=writes_notes,
        data_repo_id=arguments.data_repo_id,
        data_license=data.license if data else None,
        curves=CURVES if plotted else None,
        older=is_for_transformers_4(folder),
        best=best_of(folder, arguments.load_best)[1] if arguments.load_best else None,
    )


def lora_options(folder: Path, name: str, repo_id: str) -> str:
    """vLLM's options for an adapter in a repository, after its base model: its rank, and its own tokenizer.

    Raises:
        UserError: its rank is too large for vLLM.
    """
    settings = jsonl.read_object(folder / ADAPTER, dict[str, Any], "restore the file")
    options: dict[str, Any] = {"enable_lora": True, "max_lora_rank": max_lora_rank(settings, str(folder))}
    if settings.get("revision") not in (None, "main"):
        options["revision"] = settings["revision"]
    if Checkpoint(folder).tokenizer == str(folder):
        options["tokenizer"] = repo_id
    return shlex.join(command_line_options(options | {"lora_modules": f"{name}={repo_id}"}))


def is_for_transformers_4(folder: Path) -> bool:
    """Whether a model's files have the older form of what transformers 5 writes anew (`training.model.exchange`).

    An adapter has no such files: its base's are meant there.
    """
    settings: list[dict[str, Any]] = [
        jsonl.read_object(folder / name, dict[str, Any], "restore the file")
        for name in ("config.json", "tokenizer_config.json")
        if (folder / name).is_file()
    ]
    if len(settings) < 2:
        return False
    model, tokenizer = settings
    parts = [part for part in (model, model.get("text_config")) if part and "rope_parameters" in part]
    return tokenizer.get("tokenizer_class") != "TokenizersBackend" and all("rope_theta" in part for part in parts)


def prompting(data: str | None) -> str:
    """The options that the prompts of training data were made with, as a command line has them, without defaults.

    Empty where the folder of the data is not on this machine. Of a folder of prompts that is not ours only the name is
    said.

    Raises:
        UserError: the configuration in the folder is not valid.
    """
    if not data or not (Path(data) / CONFIG).is_file():
        return ""
    config = read_config(Path(data))
    prompts, words = config.get("prompts_dir") or "", config.get("words")
    given = {
        "prompts_dir": [prompts if recipes.folder(prompts) != Path(prompts) else Path(prompts).name],
        "words": [json.dumps(words)] if words else [],
        "extractive_stages": config.get("extractive_stages") or [],
    }
    return shlex.join(part for name, values in given.items() if any(values) for part in (f"--{name}", *values))


def model_index(runs: Iterable[Metrics]) -> list[EvalResult]:
    """Every score of every run in the format of the hub's metadata, rounded to four digits."""
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


def base_model(record: TrainingRecord, folder: Path) -> Mapping[str, str | None]:
    """The model that a checkpoint was trained from: its name to print, and its hub id and licence if known.

    A base that is itself a local folder is followed to the model that it was fetched as or trained from; a path is
    never printed.
    """
    name = record.base_model or read_json_of(folder / ADAPTER).get("base_model_name_or_path")
    base: dict[str, str | None] = {"label": NOT_RECORDED, "hub_id": None, "license": None, "origin": None}
    if not name:
        return base
    path = Path(name)
    if is_hub_id(name):
        return base | {"label": name, "hub_id": name}
    if origin := read_json_of(path / "origin.json"):
        licence = (origin.get("licence") or "").lower() or None
        hub_id = origin.get("model")
        note = origin.get("note")
        label = note if note and origin.get("source") == "wheel" else hub_id or path.name
        return {"label": label, "hub_id": hub_id, "license": licence, "origin": note}
    earlier = read_training_record(path)
    if earlier is not None and earlier.base_model and path.resolve() != folder.resolve():
        further = base_model(TrainingRecord(base_model=earlier.base_model), path)
        return {**further, "label": f"{path.name} (trained from {further['label']})"}
    return base | {"label": path.name}
