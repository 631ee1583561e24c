"""Run a method over a benchmark and score it; `notewriter evaluate` is the same.

python eval/evaluate.py --config configs/eval/deepnote_hotpotqa.yaml --output_dir runs/hotpotqa
"""

import sys

from notewriter.evaluation.evaluate import main
from notewriter.ground.errors import run

if __name__ == "__main__":
    run(lambda: main(sys.argv[1:]))
