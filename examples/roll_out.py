"""Roll out a method on one question and print what it did.

    python examples/roll_out.py "Who founded the town at the mouth of the Osk?" \
        --base_url http://127.0.0.1:8000/v1 --model SmolLM2-135M-Instruct --method deepnote

The endpoint is any OpenAI-compatible server, for example `vllm serve models/SmolLM2-135M-Instruct`. The corpus is the
three passages below; `notewriter index` builds indexes of larger ones.
"""

import argparse
import asyncio
import tempfile
from pathlib import Path

from notewriter.artifacts.traces import Generation, Retrieval, Trace
from notewriter.ground.records import Passage, Question, Sampling
from notewriter.methods import METHODS
from notewriter.models.client import Client, Endpoint
from notewriter.retrieval import bm25
from notewriter.retrieval.protocol import Retriever
from notewriter.retrieval.sources.index import open_index
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

CORPUS = [
    Passage("p1", "Osk", "The Osk is a river. The town of Tolen lies at its mouth."),
    Passage("p2", "Tolen", "Tolen was founded in 1871 by the bridge keeper Mira Tolen."),
    Passage("p3", "Mira Tolen", "Mira Tolen kept the bridge over the Osk before she founded a town."),
]


async def roll_out(question: str, method: str, endpoint: Endpoint, retriever: Retriever) -> Trace:
    """Run a method on a question; the trace contains its steps, its note and its answer."""
    client = Client(endpoint)
    try:
        await client.check()
        # One model plays every role; {"judge": ...} beside it would play the judge.
        resources = Resources({"policy": client}, Prompts(), retriever, Sampling(temperature=0.1, max_tokens=256))
        rollout = Rollout(Question("example", question, ()), method, resources)
        rollout.trace.answer = await METHODS[method].run(question, rollout)
        return rollout.trace
    finally:
        await client.close()


def main() -> None:
    """Parse the command line, roll out, and print the trace."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("question")
    parser.add_argument("--base_url", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--method", choices=METHODS, default="deepnote")
    arguments = parser.parse_args()

    with tempfile.TemporaryDirectory() as folder:
        bm25.build(CORPUS, Path(folder, "index"))
        endpoint = Endpoint(arguments.base_url, arguments.model)
        retriever = open_index(Path(folder, "index"))
        trace = asyncio.run(roll_out(arguments.question, arguments.method, endpoint, retriever))

    for step in trace.steps:
        match step:
            case Retrieval():
                print(f"retrieve {step.query!r}: {', '.join(passage['title'] for passage in step.passages)}")
            case Generation():
                print(f"{step.stage} ({step.completion.completion_tokens} tokens): {step.completion.text}")
    print(f"answer: {trace.answer}")


if __name__ == "__main__":
    main()
