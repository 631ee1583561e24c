"""Every method on some questions of several benchmarks with one small model, and the report of each benchmark.

    python benchmarks/methods.py --data data --model models/SmolLM2-135M-Instruct --output_dir runs/methods

`data` holds `hotpotqa/train.json`, `2wikimultihopqa/train.json` and `musique/train.jsonl`. The limits are small,
so that a model on two CPU cores finishes; the methods' own defaults are the papers'. Finished runs are not
repeated.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path

from notewriter.methods import METHODS
from notewriter.models.server import serve

FILES = {
    "hotpotqa": "hotpotqa/train.json",
    "2wikimultihopqa": "2wikimultihopqa/train.json",
    "musique": "musique/train.jsonl",
}
LIMITS = {
    "in_context": {"max_words": 1500},
    "ircot": {"top_k": 2, "max_step": 2},
    "flare": {"top_k": 2, "max_step": 2},
    "rat": {"top_k": 2, "max_step": 2},
    "react": {"top_k": 2, "max_step": 3},
    "renact": {"top_k": 2, "max_step": 3},
    "search_o1": {"top_k": 3, "max_search": 2, "max_turn": 3},
    "rearag": {"top_k": 3, "max_step": 3},
    "resp": {"top_k": 3, "max_step": 2},
    "deepnote": {"top_k": 3, "max_step": 2, "max_failure": 1},
    "sure": {"top_k": 3},
}
SERVER = {"max_model_len": 4096, "enforce_eager": True}


def main() -> None:
    """Run all, one after the other; the first failure ends it with the command's own error."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", type=Path, required=True, help="the folder of the benchmarks' files")
    parser.add_argument("--model", required=True, help="a model folder, served by vLLM for all runs")
    parser.add_argument("--output_dir", type=Path, default=Path("runs/methods"))
    names = list(METHODS)
    parser.add_argument("--methods", nargs="+", default=names, choices=names, metavar="METHOD", help="all by default")
    parser.add_argument("--questions", type=int, default=20, help="of each benchmark")
    parser.add_argument("--max_tokens", type=int, default=64, help="tokens a completion at the most")
    arguments = parser.parse_args()
    output = arguments.output_dir
    output.mkdir(parents=True, exist_ok=True)
    with serve(arguments.model, SERVER | {"served_model_name": "small"}, log=output / "vllm.log") as server:
        for dataset, file in FILES.items():
            path, index = str(arguments.data / file), str(output / "index" / dataset)
            _notewriter("index", "--dataset", dataset, "--path", path, "--index", index)
            for name in arguments.methods:
                method = METHODS[name]
                options = LIMITS.get(name, {"top_k": 3} if method.retrieves else {})
                _notewriter(
                    *("evaluate", "--dataset", dataset, "--path", path, "--method", name, "--seed", "7"),
                    *(("--index", index) if method.retrieves else ()),
                    *("--method_options", json.dumps(options), "--max_tokens", str(arguments.max_tokens)),
                    *("--limit", str(arguments.questions), "--temperature", "0.0"),
                    *("--base_url", server.base_url, "--model", "small", "--cache", str(output / "cache.sqlite")),
                    *("--output_dir", str(output / dataset / name)),
                )
            runs = [str(output / dataset / name) for name in arguments.methods]
            _notewriter("report", "--runs", *runs, "--output", str(output / f"{dataset}.html"))


def _notewriter(*arguments: str) -> None:
    done = subprocess.run([str(Path(sys.executable).with_name("notewriter")), *arguments], check=False)
    if done.returncode:
        raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
