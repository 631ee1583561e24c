"""The harness of `rollouts.py` and `evaluation.py`: a command's throughput against that of its bare requests.

Three phases on one vLLM server in one run, each from an empty prefix cache:
1. the command's work: concurrent questions, each continuing when its replies arrive;
2. the requests of phase 1 again, in the same order, as many at once as the server runs (`--at_once`), each
   generating exactly as many tokens as in phase 1;
3. the first `--serial` of them again, one at a time.

The last line is a JSON object: completion tokens per second of each phase, `fraction_of_server` (1 against 2)
and `speedup_over_serial` (1 against 3).
"""

import argparse
import asyncio
import json
import os
import sys
import tempfile
import time
import urllib.request
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from notewriter.data.world.world import write_worlds
from notewriter.datasets import load_questions
from notewriter.ground.records import Completion, Message, Question, Sampling
from notewriter.models.client import Client
from notewriter.models.roles import ModelArguments, served_models
from notewriter.retrieval import index
from notewriter.rollouts.resources import Resources, open_resources
from notewriter.rollouts.runner import for_each_question

Call = tuple[list[Message], Sampling, str, Completion]
Work = Callable[[Question, Resources], Awaitable[dict[str, Any]]]

STAGE_SAMPLING = {
    "deepnote/init_note": {"max_tokens": 64},
    "deepnote/refine_query": {"max_tokens": 32},
    "deepnote/accumulate_knowledge": {"max_tokens": 96},
    "deepnote/decide": {"max_tokens": 12},
    "deepnote/answer": {"max_tokens": 16},
    "judge/best_and_worst": {"max_tokens": 24},
}


class Recorder:
    """A client that records requests and replies."""

    def __init__(self, client: Client, calls: list[Call]) -> None:
        self.client = client
        self.calls = calls

    async def complete(
        self, messages: list[Message], sampling: Sampling, *, sample: int = 0, affinity: str = ""
    ) -> Completion:
        """The client's reply, recorded."""
        completion = await self.client.complete(messages, sampling, sample=sample, affinity=affinity)
        self.calls.append((messages, sampling, affinity, completion))
        return completion


def main(work: Work, description: str) -> None:
    """Measure one kind of work and print."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct", help="a model folder to serve")
    parser.add_argument("--base_url", help="a vLLM server that runs, started with VLLM_SERVER_DEV_MODE=1")
    parser.add_argument("--questions", type=int, default=120)
    parser.add_argument("--concurrency", type=int, default=256, help="questions, and their requests, in flight at once")
    parser.add_argument("--at_once", type=int, default=256, help="requests at once in the replay (vLLM's own limit)")
    parser.add_argument("--serial", type=int, default=100, help="requests that are sent one at a time")
    arguments = parser.parse_args()

    # Only in this mode a vLLM server can be told to forget its prefix cache.
    os.environ["VLLM_SERVER_DEV_MODE"] = "1"
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_worlds(folder, 7, {"train": arguments.questions, "test": 1}, [2, 3])
        index_path = str(folder / "index")
        index.main(["--path", str(folder / "train" / "corpus.jsonl"), "--index", index_path])
        questions = load_questions("jsonl", folder / "train" / "questions.jsonl")
        models = ModelArguments(
            serve=None if arguments.base_url else arguments.model,
            base_url=arguments.base_url,
            model=Path(arguments.model).name,
            serve_options={"max_model_len": 2048},
            concurrency=arguments.concurrency,
            cache=str(folder / "cache.sqlite"),
            stage_sampling=STAGE_SAMPLING,
        )
        with served_models(models, folder) as roles:
            base_url = roles["policy"][0].addresses[0]

            async def measure() -> dict[str, Any]:
                async with open_resources(models, roles, [{"index": index_path}]) as resources:
                    return await _measure(work, resources, questions, arguments, base_url, folder / "journal.jsonl")

            sys.stdout.write(json.dumps(asyncio.run(measure())) + "\n")


async def _measure(
    work: Work,
    resources: Resources,
    questions: list[Question],
    arguments: argparse.Namespace,
    base_url: str,
    journal: Path,
) -> dict[str, Any]:
    client = resources.clients["policy"]
    calls: list[Call] = []
    recording = replace(resources, clients={"policy": Recorder(client, calls)})  # type: ignore[dict-item]
    # The server's first replies are slow, while it allocates memory pools and starts threads.
    warm_up = Sampling(0.9, 0.9, 32)
    await asyncio.gather(*(client.complete([{"role": "user", "content": f"Count to {n}."}], warm_up) for n in range(8)))

    _forget_prefixes(base_url)
    start = time.perf_counter()
    await for_each_question(
        questions,
        lambda question: work(question, recording),
        journal,
        concurrency=arguments.concurrency,
        description="working",
        clients=[client],
    )
    seconds = time.perf_counter() - start
    # Calls that the client's cache answered did not reach the server.
    asked = list({id(call[3]): call for call in calls if call[3].seconds > 0}.values())
    own = sum(call[3].completion_tokens for call in asked) / seconds
    sys.stdout.write(f"work: {len(asked)} requests in {seconds:.1f} s, {own:.1f} completion tokens/s\n")

    server = await _replay("replay", client, asked, arguments.at_once, base_url)
    serial = await _replay("one at a time", client, asked[: arguments.serial], 1, base_url)
    return {
        "questions": len(questions),
        "requests": len(asked),
        "tokens_per_second": round(own, 1),
        "server_tokens_per_second": round(server, 1),
        "serial_tokens_per_second": round(serial, 1),
        "fraction_of_server": round(own / server, 3),
        "speedup_over_serial": round(own / serial, 2),
    }


async def _replay(name: str, client: Client, calls: list[Call], at_once: int, base_url: str) -> float:
    """Repeat the requests, `at_once` at a time, for as many tokens each; returns completion tokens per second."""
    _forget_prefixes(base_url)
    extra_body = {"ignore_eos": True}
    # Without a cache: every request reaches the server.
    again = Client(replace(client.endpoint, concurrency=at_once, extra_body=extra_body))
    start = time.perf_counter()
    completions = await asyncio.gather(
        *(
            again.complete(messages, replace(sampling, max_tokens=completion.completion_tokens, stop=()))
            for messages, sampling, _, completion in calls
        )
    )
    seconds = time.perf_counter() - start
    await again.close()
    rate = sum(completion.completion_tokens for completion in completions) / seconds
    sys.stdout.write(f"{name}: {len(calls)} requests in {seconds:.1f} s, {rate:.1f} completion tokens/s\n")
    return rate


def _forget_prefixes(base_url: str) -> None:
    """Empty the server's prefix cache, so that no phase benefits from the previous one."""
    request = urllib.request.Request(base_url.removesuffix("/v1") + "/reset_prefix_cache", method="POST")
    urllib.request.build_opener(urllib.request.ProxyHandler({})).open(request, timeout=60).close()
