"""Train a note-writing model on preference pairs with DPO, on any number of processes.

    accelerate launch --quiet --config_file configs/accelerate/zero3.yaml training/train_dpo.py \
        --config configs/dpo/deepnote_qwen2.5-7b.yaml --pairs data/pairs
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.overrides import start

if __name__ == "__main__":
    run(lambda: start("notewriter.training.dpo", sys.argv[1:]))
