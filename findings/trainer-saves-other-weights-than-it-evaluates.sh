#!/usr/bin/env bash
# transformers' Trainer with `optim="schedule_free_adamw"`. Such an optimizer has two sets of weights: those at which
# gradients are taken, and their average, which is the trained model (`optimizer.eval()`). Guess before running: Trainer
# evaluates with the average, and saves it in its checkpoints and by save_model(), as schedulefree's README asks.
#
# transformers 5.19.0, schedulefree 1.4.1, torch 2.13.0, accelerate 1.15.0. Output seen (the losses differ by machine):
#   evaluate(): 2.745, loss of the average: 2.745, of the weights at which gradients are taken: 2.620
#   no evaluation before, checkpoint: difference from the average 0.011, from the other weights 0.000
#   no evaluation before, save_model: difference from the average 0.011, from the other weights 0.000
#   evaluated at the step, checkpoint: difference from the average 0.000, from the other weights 0.011
#   evaluated at the step, save_model: difference from the average 0.000, from the other weights 0.011
#
# Evaluation puts the optimizer into its mode for evaluation, in which the next save finds it; a training step turns it
# back. So of one run some checkpoints are the average and others are not, by whether eval_steps divides the step, and a
# run without evaluation never saves the model that it trained. Remedy for the end: trainer.optimizer.eval() before
# save_model(). Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 accelerate==1.15.0 schedulefree==1.4.1
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import sys

import torch
from safetensors.torch import load_file
from transformers import LlamaConfig, LlamaForCausalLM, Trainer, TrainingArguments

torch.manual_seed(0)
SIZES = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 64, "num_hidden_layers": 1, "num_attention_heads": 2}
NAME = "model.layers.0.mlp.up_proj.weight"
rows = [{"input_ids": row, "labels": row} for row in torch.randint(0, 64, (16, 12)).tolist()]
settings = {
    **{"optim": "schedule_free_adamw", "learning_rate": 1e-2, "lr_scheduler_type": "constant", "report_to": []},
    **{"max_steps": 20, "save_steps": 20, "per_device_train_batch_size": 4, "use_cpu": True, "disable_tqdm": True},
}


def weights_and_loss(model):
    tokens = torch.tensor([row["input_ids"] for row in rows])
    with torch.no_grad():
        loss = model(input_ids=tokens, labels=tokens).loss.item()
    return dict(model.named_parameters())[NAME].detach().clone(), loss


def trained(folder, **more):
    """The difference of what was saved from the average and from the other weights, and three losses."""
    torch.manual_seed(0)
    arguments = TrainingArguments(folder, logging_strategy="no", **settings, **more)
    trainer = Trainer(LlamaForCausalLM(LlamaConfig(**SIZES)), arguments, train_dataset=rows, eval_dataset=rows)
    trainer.train()
    trainer.save_model(f"{folder}/final")
    trainer.optimizer.eval()
    average, loss_of_average = weights_and_loss(trainer.model)
    trainer.optimizer.train()
    others, loss_of_others = weights_and_loss(trainer.model)
    saved = [load_file(f"{folder}/{name}/model.safetensors")[NAME] for name in ("checkpoint-20", "final")]
    differences = [[(each - weights).abs().max().item() for weights in (average, others)] for each in saved]
    return differences, (trainer.evaluate()["eval_loss"], loss_of_average, loss_of_others)


without, (evaluated, loss_of_average, loss_of_others) = trained("without")
after, _ = trained("after", eval_strategy="steps", eval_steps=20)
print(
    f"evaluate(): {evaluated:.3f}, loss of the average: {loss_of_average:.3f}, of the weights at which gradients are "
    f"taken: {loss_of_others:.3f}"
)
for title, found in (("no evaluation before", without), ("evaluated at the step", after)):
    for name, (average, others) in zip(("checkpoint", "save_model"), found):
        print(f"{title}, {name}: difference from the average {average:.3f}, from the other weights {others:.3f}")
is_evaluated_by_average = abs(evaluated - loss_of_average) < 1e-3 < abs(evaluated - loss_of_others)
is_as_seen = all(others < 1e-6 < 1e-3 < average for average, others in without) and all(
    average < 1e-6 < 1e-3 < others for average, others in after
)
sys.exit(not (is_evaluated_by_average and is_as_seen))
PYTHON
