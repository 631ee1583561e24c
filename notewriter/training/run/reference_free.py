"""SimPO and ORPO, which compare the sides of a pair without a reference model, on the forwards of DPO.

TRL has both in trainers of their own that build all logits, render the chat template themselves and score each prompt
twice. Here they are losses of the DPO trainer: the same checked tokens, shared prompts and fused head, and no reference
in memory. Their values are those of TRL's trainers (tested); of ORPO's only the first term differs, which TRL takes
over the prompt too, and the paper, as here, over the completion alone.
"""

from typing import Any

import torch
import torch.nn.functional as F
from datasets import Dataset

from notewriter.training.run.losses import is_reference_free
from notewriter.training.run.step_counts import CountsSteps
from notewriter.training.sharing.reference import CachedReferenceTrainer

CLOSEST = 1e-6
"""How close a mean log-probability may come to 0, where the odds are infinite."""


def simpo(chosen: torch.Tensor, rejected: torch.Tensor, beta: float, gamma: float) -> torch.Tensor:
    """SimPO's loss (Meng et al. 2024, arXiv 2405.14734, equation 6) of each pair.

    `chosen` and `rejected` are the mean log-probabilities of a completion's tokens; `gamma` is the target margin.
    """
    return -F.logsigmoid(beta * (chosen - rejected) - gamma)


def odds_ratio(chosen: torch.Tensor, rejected: torch.Tensor) -> torch.Tensor:
    """ORPO's loss of the odds ratio (Hong et al. 2024, arXiv 2403.07691, equation 7) of each pair."""
    return -F.logsigmoid(log_odds(chosen) - log_odds(rejected))


def log_odds(log_probs: torch.Tensor) -> torch.Tensor:
    """log(p / (1 - p)) of mean log-probabilities log(p)."""
    below = log_probs.clamp(max=-CLOSEST)
    return below - torch.log(-torch.expm1(below))


class ReferenceFreeTrainer(CountsSteps, CachedReferenceTrainer):
    """The DPO trainer, which has no reference where no loss needs one (`losses.LOSSES`)."""

    def __init__(self, model: str, **arguments: Any) -> None:
        training = arguments["args"]
        self.sizes: dict[str, list[int]] = {}
        self.is_reference_free = is_reference_free(training.loss_type)
        precomputes = training.precompute_ref_log_probs
        # TRL keeps no reference where the log-probs are there; under FSDP it loads one all the same, and frees it.
        training.precompute_ref_log_probs = precomputes or self.is_reference_free
        super().__init__(model, **arguments)
        training.precompute_ref_log_probs = self.precompute_ref_logps = precomputes

    def _precompute_ref_logps(self, dataset: Dataset, name: str, batch_size: int) -> Dataset:
        return dataset if self.is_reference_free else super()._precompute_ref_logps(dataset, name, batch_size)

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        """TRL's, with the rewards as means over pairs; TRL's are over forwards, and dev's last one is often short."""
        mode = "train" if self.model.training else "eval"
        sizes = self.sizes.pop(mode, [])
        for name, values in self._metrics[mode].items():
            if name.startswith(("rewards/", "logps/")) and len(values) == len(sizes):
                of_all = sum(value * size for value, size in zip(values, sizes, strict=True)) / sum(sizes)
                self._metrics[mode][name] = [of_all]
        super().log(logs, start_time)

    def _compute_loss(self, model: torch.nn.Module, inputs: dict[str, torch.Tensor], return_outputs: bool) -> Any:
        """The loss of stacked pairs, `[chosen; rejected]`, as its share of a step; its metrics are named as TRL's."""
        of_pairs, of_tokens = self.shares(inputs)
        self.sizes.setdefault("train" if self.model.training else "eval", []).append(len(inputs["input_ids"]))
        if not self.is_reference_free:
            weights = self.loss_weights
            both = zip(self.loss_types, weights, strict=True)
            self.loss_weights = [weight * (of_tokens if loss == "sft" else of_pairs) for loss, weight in both]
            try:
                return super()._compute_loss(model, inputs, return_outputs)  # type: ignore[no-untyped-call]
            finally:
                self.loss_weights = weights
        trained = inputs["completion_mask"]
        outputs = model(
            input_ids=inputs["input_ids"],
            attention_mask=inputs["attention_mask"],
            labels=inputs["input_ids"].masked_fill(trained == 0, -100),
            use_cache=False,
            fused_lm_head=True,
            **({"output_router_logits": True} if self.aux_loss_enabled else {}),
        )
        tokens = trained[:, 1:].sum(1)
        # As in TRL: some adapters put tokens of their own before the prompt.
        summed = outputs.log_probs[:, 1 - trained.shape[1] :].sum(1).float()
        chosen, rejected = (summed / tokens.clamp(min=1)).chunk(2)
        likelihood = -summed.chunk(2)[0].sum() / tokens.chunk(2)[0].sum()

        beta, gamma = self.beta, self.args.simpo_gamma  # type: ignore[attr-defined]
        terms = {
            "simpo": simpo(chosen, rejected, beta, gamma).mean() * of_pairs,
            "orpo": likelihood * of_tokens + beta * odds_ratio(chosen, rejected).mean() * of_pairs,
            "sft": likelihood * of_tokens,
        }
        weighted = zip(self.loss_weights, self.loss_types, strict=True)
        loss: torch.Tensor = torch.stack([weight * terms[name] for weight, name in weighted]).sum()
        if self.aux_loss_enabled:
            loss = loss + self.router_aux_loss_coef * outputs.aux_loss

        rewards = beta * chosen.detach(), beta * rejected.detach()
        logged = {
            "rewards/chosen": rewards[0],
            "rewards/rejected": rewards[1],
            "rewards/margins": rewards[0] - rewards[1],
            "rewards/accuracies": (rewards[0] > rewards[1]).float(),
            "logps/chosen": summed.detach().chunk(2)[0],
            "logps/rejected": summed.detach().chunk(2)[1],
            "nll_loss": likelihood.detach()[None],
        }
        mode = "train" if self.model.training else "eval"
        for metric, values in logged.items():
            self._metrics[mode][metric].append(self.accelerator.gather(values).mean().item())
        if mode == "train":
            counted = self.accelerator.gather(inputs["attention_mask"].sum()).sum().item()
            self._total_train_tokens += counted // self._tp_size
        self._metrics[mode]["num_tokens"] = [self._total_train_tokens]
        return (loss, outputs) if return_outputs else loss
