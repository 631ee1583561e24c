#!/usr/bin/env bash
# transformers' Trainer and the order of its rows under each `train_sampling_strategy`. Guess before running, from the
# documentation of `seed` and `data_seed` ("to be used with data samplers"), and doubted for the last two after their code
# was read: wherever rows are shuffled, another seed and another data_seed give another order, and a run that is
# resumed within its second epoch reads each row of that epoch once.
#
# transformers 5.19.0, torch 2.13.0, accelerate 1.15.0, datasets 5.2.0. 24 rows, batches of four, resumed after step 8.
# Output seen:
#   random: other order by seed True, by data_seed True; resumed epoch: 24 of 24 rows, rest unchanged True
#   group_by_length: other order by seed True, by data_seed False; resumed epoch: 18 of 24 rows, rest unchanged False
#   batch_rebalance: other order by seed False, by data_seed False; resumed epoch: 24 of 24 rows, rest unchanged True
#
# With batch_rebalance, new in transformers 5, runs with several seeds read the rows in one order, so that their spread
# is too small. With group_by_length the order comes from torch's global generator: a resumed run draws another one and
# skips its first batches, so that it leaves rows out and repeats others. Nothing is said. Pull request 48025 of
# huggingface/transformers gave the sampler for evaluation a generator of its own, not that for training. Overriding
# _get_train_sampler() with seeded samplers is a remedy. Exits non-zero if the behaviour changes.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
python3 -m venv "$work/venv"
"$work/venv/bin/pip" install --quiet torch==2.13.0 transformers==5.19.0 accelerate==1.15.0 datasets==5.2.0
cd "$work"
"$work/venv/bin/python" - 2>/dev/null <<'PYTHON'
import shutil
import sys

import torch
from datasets import Dataset
from transformers import LlamaConfig, LlamaForCausalLM, PrinterCallback, Trainer, TrainingArguments

LENGTHS = torch.randint(2, 13, (24,), generator=torch.Generator().manual_seed(0)).tolist()
rows = Dataset.from_list([{"input_ids": [number] * length} for number, length in enumerate(LENGTHS)])
config = LlamaConfig(
    vocab_size=32, hidden_size=8, intermediate_size=8, num_hidden_layers=1, num_attention_heads=1
)
settings = {
    **{"output_dir": "run", "num_train_epochs": 2, "per_device_train_batch_size": 4, "save_steps": 8, "use_cpu": True},
    **{"report_to": [], "disable_tqdm": True, "logging_strategy": "no", "remove_unused_columns": False},
}


def order(strategy, checkpoint=None, **seeds):
    read = []

    def collate(batch):
        read.extend(row["input_ids"][0] for row in batch)
        longest = max(len(row["input_ids"]) for row in batch)
        tokens = torch.tensor([row["input_ids"] + [0] * (longest - len(row["input_ids"])) for row in batch])
        return {"input_ids": tokens, "labels": tokens}

    arguments = TrainingArguments(train_sampling_strategy=strategy, **settings, **seeds)
    trainer = Trainer(LlamaForCausalLM(config), arguments, train_dataset=rows, data_collator=collate)
    trainer.remove_callback(PrinterCallback)
    trainer.train(resume_from_checkpoint=checkpoint)
    return read


seen = []
for strategy in ("random", "group_by_length", "batch_rebalance"):
    whole = order(strategy)
    # A checkpoint of the eighth step: six steps of the first epoch, two of the second.
    rest = order(strategy, checkpoint="run/checkpoint-8")[-16:]
    by_seed, by_data_seed = order(strategy, seed=7) != whole, order(strategy, data_seed=7) != whole
    distinct = len({*whole[24:32], *rest})
    print(
        f"{strategy}: other order by seed {by_seed}, by data_seed {by_data_seed};"
        f" resumed epoch: {distinct} of 24 rows, rest unchanged {rest == whole[32:]}"
    )
    seen.append((by_seed, by_data_seed, distinct == 24))
    shutil.rmtree("run")
sys.exit(seen != [(True, True, True), (True, False, False), (False, False, True)])
PYTHON
