"""The time of `notewriter preflight`, including its start: pairs are tokenised, checked and shown.

    python benchmarks/preflight.py --model models/SmolLM2-135M-Instruct

The pairs are made of the passages of a fictional world; their prompts have `--prompt_tokens` tokens and a few more,
and the completions about `--completion_tokens` each. The last line is a JSON object: the wall `seconds`, the pairs
and all of their tokens.
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from datasets import Dataset
from transformers import AutoTokenizer, PreTrainedTokenizerBase

from notewriter.data.world.world import write_worlds
from notewriter.ground import jsonl
from notewriter.training.inputs.chat_templates import text_of


def main() -> None:
    """Make the pairs, run the command on them and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct", help="a model folder")
    parser.add_argument("--pairs", type=int, default=1000)
    parser.add_argument("--prompt_tokens", type=int, default=1400)
    parser.add_argument("--completion_tokens", type=int, default=120)
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_worlds(Path(name), 7, {"train": 200, "test": 1}, [2, 3])
        texts = itertools.cycle([row["text"] for _, row in jsonl.read(folder / "train" / "corpus.jsonl")])
        tokenizer = AutoTokenizer.from_pretrained(arguments.model, trust_remote_code=False)
        prompts = pieces(texts, arguments.prompt_tokens, tokenizer)
        completions = pieces(texts, arguments.completion_tokens, tokenizer)
        rows = [
            {
                "prompt": [{"role": "user", "content": next(prompts)}],
                "chosen": [{"role": "assistant", "content": next(completions)}],
                "rejected": [{"role": "assistant", "content": next(completions)}],
                "stage": ["deepnote/init_note", "deepnote/refine_note", "deepnote/answer"][number % 3],
                "question_id": f"q{number}",
            }
            for number in range(arguments.pairs)
        ]
        Dataset.from_list(rows).to_parquet(str(folder / "train.parquet"))

        command = [sys.executable, "-m", "notewriter.cli", "preflight", "--pairs", str(folder / "train.parquet")]
        command += ["--model_name_or_path", arguments.model, "--max_length", "8192"]
        command += ["--num_train_epochs", "1", "--prefix_sharing", "true"]
        # Nothing is reused from an earlier run.
        environment = os.environ | {"HF_DATASETS_CACHE": str(folder / "cache")}
        start = time.perf_counter()
        done = subprocess.run(command, env=environment, check=True, capture_output=True, text=True)
        seconds = time.perf_counter() - start
    sys.stdout.write(done.stdout)
    tokens = next(line.split()[0] for line in done.stdout.splitlines() if "optimizer steps" in line)
    sys.stdout.write(
        json.dumps({"seconds": round(seconds, 1), "pairs": arguments.pairs, "tokens": int(tokens.replace(",", ""))})
        + "\n"
    )


def pieces(texts: Iterator[str], tokens: int, tokenizer: PreTrainedTokenizerBase) -> Iterator[str]:
    """Texts of about so many tokens each, cut from one stream."""
    stream: list[int] = []
    while True:
        while len(stream) < tokens:
            stream += tokenizer(next(texts) + "\n\n", add_special_tokens=False)["input_ids"]
        yield text_of(stream[:tokens], tokenizer).strip()
        del stream[:tokens]


if __name__ == "__main__":
    main()
