"""Train with KTO on preference pairs, on any number of processes.

    accelerate launch --quiet --config_file configs/accelerate/zero3.yaml training/train_kto.py \
        --config configs/kto/deepnote_qwen2.5-7b.yaml --pairs data/pairs
"""

import sys

from notewriter.ground.errors import run
from notewriter.training.overrides import start

if __name__ == "__main__":
    run(lambda: start("notewriter.training.kto", sys.argv[1:]))
