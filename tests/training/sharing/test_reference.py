"""The trainer's numbers are TRL's, with shared prompts and with a reference that an earlier run has computed."""

import contextlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from datasets import Dataset
from peft import LoraConfig
from transformers import AutoModelForCausalLM, AutoTokenizer
from trl import DPOConfig, DPOTrainer

from notewriter.ground.errors import UserError
from notewriter.training.inputs import pairs
from notewriter.training.run.dpo_trainer import MeteredDPOTrainer
from notewriter.training.sharing import prefix_sharing, reference, self_check

LOSSES = ["sigmoid", "hinge", "ipo", "exo_pair", "nca_pair", "robust", "bco_pair", "sppo_hard", "aot", "aot_unpaired"]
LOSSES += ["apo_zero", "apo_down", "discopop", "sft", "sigmoid_norm"]

Make = Callable[..., DPOTrainer]


@pytest.fixture(scope="module")
def rows(make_pair: Callable[..., dict[str, Any]]) -> list[dict[str, Any]]:
    """Eight pairs of four lengths."""
    pairs = [make_pair(number, words=8 + 3 * (number % 4)) for number in range(8)]
    return [{column: pair[column] for column in ("prompt", "chosen", "rejected")} for pair in pairs]


@pytest.fixture(scope="module")
def make(tiny_model: Path, rows: list[dict[str, Any]], tmp_path_factory: pytest.TempPathFactory) -> Make:
    """A trainer of four pairs a batch: TRL's own, or where `shared` is given the one under test."""

    def build(
        shared: bool | None = None,
        *,
        model: Path = tiny_model,
        lora: bool = False,
        cache: Path | None = None,
        pairs: list[dict[str, Any]] = rows,
        **options: Any,
    ) -> DPOTrainer:
        folder = tmp_path_factory.mktemp("trainer")
        settings = {
            "output_dir": str(folder),
            "max_length": 64,
            "per_device_train_batch_size": 4,
            "use_cpu": True,
            "bf16": False,
        }
        settings |= {"gradient_checkpointing": False, "report_to": "none", "disable_tqdm": True, "max_steps": 1}
        arguments: dict[str, Any] = {
            "args": DPOConfig(**(settings | options)),
            "train_dataset": Dataset.from_list(pairs),
            "processing_class": AutoTokenizer.from_pretrained(model),
            "peft_config": LoraConfig(r=4, target_modules="all-linear", init_lora_weights=False) if lora else None,
        }
        if shared is None:
            return DPOTrainer(model=str(model), **arguments)
        cache = cache or folder / "cache"
        return MeteredDPOTrainer(str(model), prefix_sharing=shared, reference_cache=cache, **arguments)

    return build


def losses(trainer: DPOTrainer, steps: int) -> list[float]:
    """The losses of a few steps of gradient descent; the weights are then put back."""
    weights = {name: value.clone() for name, value in trainer.model.state_dict().items()}
    optimizer = torch.optim.SGD((p for p in trainer.model.parameters() if p.requires_grad), lr=0.01)
    batches = list(trainer.get_train_dataloader())
    trainer.model.train()
    values = []
    for step in range(steps):
        optimizer.zero_grad()
        loss = trainer.compute_loss(trainer.model, batches[step % len(batches)])
        loss.backward()
        optimizer.step()
        values.append(loss.item())
    trainer.model.load_state_dict(weights)
    return values


@pytest.fixture(scope="module", params=["full", "LoRA", "checkpointing"])
def trainers(make: Make, request: pytest.FixtureRequest) -> list[DPOTrainer]:
    """TRL's trainer and ours with shared prompts; both start from the same weights."""
    options = {"gradient_checkpointing": request.param == "checkpointing", "beta": 0.5, "label_smoothing": 0.1}
    both = [make(shared, lora=request.param == "LoRA", use_weighting=False, **options) for shared in (None, True)]
    both[1].model.load_state_dict(both[0].model.state_dict())
    return both


@contextlib.contextmanager
def changed(trainers: list[DPOTrainer], **attributes: Any) -> Iterator[None]:
    earlier = {name: getattr(trainers[0], name) for name in attributes}
    try:
        for trainer in trainers:
            vars(trainer).update(attributes)
        yield
    finally:
        for trainer in trainers:
            vars(trainer).update(earlier)


@pytest.mark.parametrize("loss", LOSSES)
def test_every_loss_is_trls_step_by_step(trainers: list[DPOTrainer], loss: str) -> None:
    with changed(trainers, loss_types=[loss]):
        expected, found = (losses(trainer, 3) for trainer in trainers)
    assert found == pytest.approx(expected, rel=1e-4)
    assert len(set(expected)) == 3


def test_losses_are_added_up_and_tails_weighted_as_in_trl(trainers: list[DPOTrainer]) -> None:
    with changed(trainers, loss_types=["sigmoid", "sft"], loss_weights=[1.0, 0.2], ld_alpha=0.5):
        expected, found = (losses(trainer, 3) for trainer in trainers)
    assert found == pytest.approx(expected, rel=1e-4)


def test_weights_of_pairs_are_trls(make: Make) -> None:
    expected, found = (losses(make(shared, use_weighting=True), 3) for shared in (None, True))
    assert found == pytest.approx(expected, rel=1e-4)


def test_token_ids_of_checked_pairs_are_trls_and_stay_as_they_are(
    make: Make, rows: list[dict[str, Any]], tiny_model: Path
) -> None:
    tokenizer = AutoTokenizer.from_pretrained(tiny_model)
    stops = frozenset([tokenizer.eos_token_id])
    measured = pairs.tokenize(
        Dataset.from_list([row | {"row": "row 0"} for row in rows]), tokenizer, stops, Path("train.parquet")
    )

    trl, ours = make(pairs=rows).train_dataset, make(False, pairs=list(measured)).train_dataset

    for column in ("prompt_ids", "chosen_ids", "rejected_ids"):
        assert list(ours[column]) == list(measured[column]) == list(trl[column])


@pytest.mark.parametrize("precomputed", [False, True], ids=["reference model", "precomputed"])
def test_every_model_that_scores_is_checked_before_its_first_use(
    make: Make, monkeypatch: pytest.MonkeyPatch, precomputed: bool
) -> None:
    seen: list[Any] = []
    monkeypatch.setattr(
        self_check, "check", lambda wrapped, bare, batches, accelerator: seen.append((wrapped, len(batches)))
    )
    step = MeteredDPOTrainer.compute_loss

    def compute_loss(*arguments: Any, **options: Any) -> Any:
        seen.append("step")
        return step(*arguments, **options)

    monkeypatch.setattr(MeteredDPOTrainer, "compute_loss", compute_loss)
    trainer = make(True, precompute_ref_log_probs=precomputed, per_device_train_batch_size=2, max_steps=1)
    batches = self_check.PAIRS // 2
    assert seen == ([(trainer.model, batches)] if precomputed else [])
    seen.clear()

    trainer.train()

    models = [trainer.model] if precomputed else [trainer.model, trainer.ref_model]
    assert seen == [*((model, batches) for model in models), "step"]


def test_a_run_whose_prompts_are_shared_wrongly_takes_no_step(make: Make, monkeypatch: pytest.MonkeyPatch) -> None:
    # Everything sees all that stands before it in the row.
    attention = prefix_sharing.AttentionInterface()[prefix_sharing.ATTENTION]

    def careless(*arguments: Any, layout: Any = None, **options: Any) -> Any:
        return attention(*arguments[:4], None, **options)

    monkeypatch.setitem(prefix_sharing.AttentionInterface._global_mapping, prefix_sharing.ATTENTION, careless)
    refusal = r"^llama: with shared prompts .* where float32 explains \S+; set prefix_sharing: false$"
    with pytest.raises(UserError, match=refusal):
        make(True).train()
    with pytest.raises(UserError, match=refusal):
        make(True, precompute_ref_log_probs=True)


@pytest.mark.integration
@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_compiled_models_share_prompts_and_learn_the_same(
    make: Make, backend: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    shared: list[bool] = []
    score = prefix_sharing._score_pairs
    monkeypatch.setattr(prefix_sharing, "_score_pairs", lambda *a, **k: (shared.append(True), score(*a, **k))[1])

    def train(**options: Any) -> list[float]:
        trainer = make(True, max_steps=2, logging_steps=1, learning_rate=0.1, save_strategy="no", **options)
        trainer.train()
        return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]

    expected = train()
    uncompiled = len(shared)
    assert train(torch_compile=True, torch_compile_backend=backend) == pytest.approx(expected, rel=1e-5)
    # Two steps of two models, and what they are checked with.
    assert len(shared) == 2 * uncompiled
    assert len(set(expected)) == 2


@pytest.fixture
def computed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of pairs of each computation of the reference."""
    counts: list[int] = []
    original = MeteredDPOTrainer.score_reference

    def count(self: MeteredDPOTrainer, pairs: Dataset, *arguments: Any) -> list[tuple[float, float]]:
        counts.append(len(pairs))
        return original(self, pairs, *arguments)

    monkeypatch.setattr(MeteredDPOTrainer, "score_reference", count)
    return counts


@pytest.mark.parametrize("lora", [False, True], ids=["full", "LoRA"])
def test_reference_from_the_cache_gives_the_losses_of_a_reference_model(make: Make, tmp_path: Path, lora: bool) -> None:
    plain = make(lora=lora)
    for _ in range(2):
        cached = make(True, lora=lora, cache=tmp_path, precompute_ref_log_probs=True)
        assert cached.ref_model is None
        cached.model.load_state_dict(plain.model.state_dict())
        assert losses(cached, 3) == pytest.approx(losses(plain, 3), rel=1e-4)


def test_sweep_computes_the_reference_once(make: Make, tmp_path: Path, computed: list[int]) -> None:
    options = {"cache": tmp_path, "precompute_ref_log_probs": True}
    make(True, **options)
    make(True, **options, beta=0.5, learning_rate=1e-3, loss_type="ipo", per_device_train_batch_size=2)
    make(False, **options, lora=True)
    assert computed == [8]


def test_pairs_that_were_added_are_the_only_ones_computed(
    make: Make, rows: list[dict[str, Any]], tmp_path: Path, computed: list[int]
) -> None:
    options = {"cache": tmp_path, "precompute_ref_log_probs": True}
    make(True, **options, pairs=rows[2:5])
    trainer = make(True, **options)
    assert computed == [3, 5]
    whole = make(True, precompute_ref_log_probs=True).train_dataset
    for column in reference.COLUMNS:
        assert list(trainer.train_dataset[column]) == pytest.approx(list(whole[column]), rel=1e-5)


def test_killed_computation_goes_on_after_its_last_chunk(
    make: Make, tmp_path: Path, computed: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    options = {"cache": tmp_path, "precompute_ref_log_probs": True}
    monkeypatch.setattr(reference, "CHUNK", 3)
    write = reference.write

    def killed(folder: Path, pairs: dict[str, Any]) -> None:
        if len(computed) == 2:
            raise KeyboardInterrupt
        write(folder, pairs)

    monkeypatch.setattr(reference, "write", killed)
    with pytest.raises(KeyboardInterrupt):
        make(True, **options)
    monkeypatch.setattr(reference, "write", write)
    make(True, **options)
    assert computed == [3, 3, 3, 2]


def test_other_weights_and_other_precision_are_other_references(
    make: Make, tiny_model: Path, tmp_path: Path, computed: list[int]
) -> None:
    options = {"cache": tmp_path / "cache", "precompute_ref_log_probs": True}
    first = make(True, **options)
    other = AutoModelForCausalLM.from_pretrained(tiny_model)
    with torch.no_grad():
        other.lm_head.weight += 0.1
    other.save_pretrained(tmp_path / "other")
    AutoTokenizer.from_pretrained(tiny_model).save_pretrained(tmp_path / "other")

    second = make(True, **options, model=tmp_path / "other")
    make(True, **options, model_init_kwargs={"dtype": "bfloat16"})
    make(True, **options, ld_alpha=0.5)

    assert computed == [8, 8, 8, 8]
    assert list(first.train_dataset["ref_chosen_logps"]) != list(second.train_dataset["ref_chosen_logps"])


@pytest.mark.parametrize(
    ("loading", "pairs_computed"),
    [
        ({"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}}, [8]),
        ({"num_hidden_layers": 1}, [8]),
        ({"rms_norm_eps": 0.1}, [8]),
        ({"attn_implementation": "eager"}, [8]),
        # What the model came out as counts, not whether it was said.
        ({"attn_implementation": "sdpa", "dtype": "float32", "revision": None}, []),
        ({"use_cache": False}, []),
    ],
    ids=lambda value: str(value),
)
def test_reference_is_the_model_as_it_was_loaded(
    make: Make, tmp_path: Path, computed: list[int], loading: dict[str, Any], pairs_computed: list[int]
) -> None:
    options = {"cache": tmp_path, "precompute_ref_log_probs": True}
    make(True, **options, model_init_kwargs={})
    computed.clear()

    make(True, **options, model_init_kwargs=loading)

    assert computed == pairs_computed


def test_copy_of_a_model_with_another_tokenizer_is_the_same_reference(
    make: Make, tiny_model: Path, tmp_path: Path, computed: list[int]
) -> None:
    options = {"cache": tmp_path / "cache", "precompute_ref_log_probs": True}
    make(True, **options)
    shutil.copytree(tiny_model, tmp_path / "copy")
    # The pairs' tokens have keys of their own: the template changes nothing but a comment of its own.
    template = tmp_path / "copy/chat_template.jinja"
    template.write_text("{# a comment #}" + template.read_text())

    make(True, **options, model=tmp_path / "copy", gradient_checkpointing=True)

    assert computed == [8]
