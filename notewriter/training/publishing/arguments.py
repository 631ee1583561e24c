"""The options of `notewriter publish`."""

from dataclasses import dataclass, field

from notewriter.ground.options import option


@dataclass
class PublishArguments:
    """Upload a checkpoint, its training data or both to the Hugging Face Hub, with cards made from their records.

    Log in first with `hf auth login`, or set HF_TOKEN. Of a checkpoint only the model's own files are uploaded:
    weights (safetensors), configuration, tokenizer, licence. Optimizer states, a run's checkpoints and logs are not.
    When an upload is interrupted, run the same command again: what has arrived is not sent twice.
    """

    checkpoint: str | None = option(None, "the folder that a training run saved its model or adapter in")
    repo_id: str | None = option(None, "the model's repository, owner/name; created if it does not exist")
    data: str | None = option(
        None, "the folder of pairs or chains that it was trained on, published as a dataset repository"
    )
    data_repo_id: str | None = option(
        None, "the dataset's repository, owner/name; without --data the card only links it"
    )
    load_best: str | None = option(
        None,
        "the output folder of `notewriter evaluate --checkpoints` over this run: publish the checkpoint "
        "that scored best in place of the last, with its metrics.json unless --metrics is given",
    )
    metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of evaluations of this checkpoint, for the card and its model-index"},
    )
    baseline_metrics: list[str] = field(
        default_factory=list,
        metadata={"help": "metrics.json files of the systems that it is compared with, for the card's table only"},
    )
    license: str | None = option(
        None, "the licence's identifier on the hub, such as apache-2.0; the base model's licence may prescribe it"
    )
    private: bool = option(True, "whether the repositories are private; false makes them public")
    dry_run: bool = option(False, "list the files and print the cards; upload nothing")
