"""Write preference pairs of your own and train on them with DPO.

    python examples/train_on_pairs.py --model models/SmolLM2-135M-Instruct --output_dir runs/example

Pairs have the columns of TRL's conversational preference format plus `stage` and `question_id`; `notewriter pairs`
builds such files from rollouts. Training is launched with accelerate, since it runs in its own processes, one per GPU.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from datasets import Dataset

ROOT = Path(__file__).parents[1]

PASSAGE = "Tolen was founded in 1871 by the bridge keeper Mira Tolen."
PROMPT = f"Write down what the passage says about the question.\n\nPassage: {PASSAGE}\nQuestion: "
PAIRS = [
    ("Who founded Tolen?", "Mira Tolen, a bridge keeper, founded Tolen.", "Tolen is a town."),
    ("When was Tolen founded?", "Tolen was founded in 1871.", "Tolen is an old town, and nobody knows."),
    ("What did Mira Tolen do before?", "She was a bridge keeper.", "She was a mayor."),
    ("What happened in 1871?", "Tolen was founded.", "A bridge was built."),
]
"""Question, better note and worse note."""


def write_pairs(folder: Path) -> None:
    """Write the pairs as `train.parquet`, which training, preflight and `datasets.load_dataset` read."""
    rows = [
        {
            "prompt": [{"role": "user", "content": PROMPT + question}],
            "chosen": [{"role": "assistant", "content": better}],
            "rejected": [{"role": "assistant", "content": worse}],
            "stage": "deepnote/init_note",
            "question_id": f"q{number}",
        }
        for number, (question, better, worse) in enumerate(PAIRS)
    ]
    folder.mkdir(parents=True, exist_ok=True)
    Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))


def main() -> None:
    """Parse the command line, write the pairs, and train a few steps."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", required=True)
    parser.add_argument("--output_dir", type=Path, required=True)
    parser.add_argument("--accelerate_config", default="configs/accelerate/cpu.yaml")
    arguments = parser.parse_args()

    write_pairs(arguments.output_dir / "pairs")
    command = [
        *(sys.executable, "-m", "accelerate.commands.launch", "--quiet", "--config_file"),
        *(str(ROOT / arguments.accelerate_config), str(ROOT / "training" / "train_dpo.py")),
        *("--model_name_or_path", arguments.model, "--pairs", str(arguments.output_dir / "pairs")),
        *("--output_dir", str(arguments.output_dir / "checkpoint"), "--max_length", "128", "--max_steps", "4"),
        *("--per_device_train_batch_size", "2", "--learning_rate", "1e-5", "--logging_steps", "1"),
    ]
    subprocess.run(command, check=True)
    print(f"serve it with: vllm serve {arguments.output_dir / 'checkpoint'}")


if __name__ == "__main__":
    main()
