"""LoRA adapters on a real vLLM server: two over one base, and each against its merged model."""

import asyncio
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
import torch
from peft import LoraConfig, get_peft_model
from tiny_world import tiny_world, write_config
from transformers import AutoModelForCausalLM, AutoTokenizer

from notewriter.artifacts.traces import Trace
from notewriter.evaluation import evaluate
from notewriter.ground import jsonl
from notewriter.ground.records import Message, Sampling
from notewriter.models.client import Client, Endpoint
from notewriter.models.roles import ModelArguments, Roles, served_models
from notewriter.models.server import serve
from notewriter.training.merge import merge

pytestmark = pytest.mark.integration

OPTIONS = {"max_model_len": 1024, "enforce_eager": True, "dtype": "float32"}
TEXTS = [
    "Name the capital of France.",
    "Write a note: The Osk is a river. Tolen lies at its mouth.",
    "Who founded Tolen? Answer in one word.",
    "List three colours.",
    "What is 2 + 3?",
    "Continue: the town whose mayor",
]

PROMPTS: list[list[Message]] = [[{"role": "user", "content": text}] for text in TEXTS]


def make_adapter(base: Path, folder: Path, seed: int) -> Path:
    """An adapter of random weights, large enough to change the replies."""
    torch.manual_seed(seed)
    model = AutoModelForCausalLM.from_pretrained(base, dtype=torch.float32)
    adapted = get_peft_model(model, LoraConfig(r=8, lora_alpha=16, target_modules=["q_proj", "v_proj", "down_proj"]))
    with torch.no_grad():
        for name, weights in adapted.named_parameters():
            if "lora_B" in name:
                weights.normal_(std=0.02)
    adapted.save_pretrained(folder)
    AutoTokenizer.from_pretrained(base).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def adapters(smollm2, tmp_path_factory) -> list[Path]:
    folder = tmp_path_factory.mktemp("adapters")
    return [make_adapter(smollm2, folder / name, seed) for seed, name in enumerate(("notes", "query"))]


@pytest.fixture(scope="module")
def roles(adapters, tmp_path_factory) -> Iterator[Roles]:
    """`serve` and a role's `serve` name adapters: the policy is the adapter `notes`, queries are from `query`."""
    notes, query = map(str, adapters)
    arguments = ModelArguments(serve=notes, serve_options=OPTIONS, models={"query": {"serve": query}})
    with served_models(arguments, tmp_path_factory.mktemp("server")) as given:
        yield given


def ask(endpoint: Endpoint, prompts: Sequence[list[Message]], samplings: Sequence[Sampling] = ()) -> list[str]:
    """Completions, greedy unless they are sampled otherwise."""
    samplings = samplings or [Sampling(0.0, 1.0, 24)] * len(prompts)

    async def complete() -> list[str]:
        client = Client(endpoint)
        try:
            # One by one: in a batch sums are rounded in an order that depends on the neighbours.
            return [(await client.complete(*each)).text for each in zip(prompts, samplings, strict=True)]
        finally:
            await client.close()

    return asyncio.run(complete())


def test_roles_with_adapters_of_one_base_share_a_server_and_answer_differently(roles):
    (policy, servers), (query, others) = roles["policy"], roles["query"]
    assert servers == others and len(servers) == 1
    assert (policy.model, query.model) == ("notes", "query")
    base = Endpoint(policy.base_url, Path(servers[0].model).name)
    assert len({tuple(ask(endpoint, PROMPTS)) for endpoint in (policy, query, base)}) == 3


def test_an_adapter_answers_as_its_merged_model_does(roles, adapters, tmp_path):
    adapted = ask(roles["policy"][0], PROMPTS)
    merge(adapters[0], tmp_path / "merged")
    with serve(str(tmp_path / "merged"), OPTIONS, log=tmp_path / "merged.log") as server:
        merged = ask(Endpoint(server.base_url, server.model), PROMPTS)
    assert adapted == merged


def test_the_replies_of_a_rollout_are_of_the_adapter_that_plays_the_role(roles, tmp_path):
    endpoints = {role: {"base_url": each.base_url, "model": each.model} for role, (each, _) in roles.items()}
    options = {
        **tiny_world(tmp_path / "world", 2),
        **{"output_dir": str(tmp_path / "run"), "cache": str(tmp_path / "cache.sqlite")},
        **{"method": "deepnote", "method_options": {"top_k": 2, "max_step": 1, "max_failure": 1}},
        **{"limit": 1, "temperature": 0.0, "top_p": 1.0, "max_tokens": 16, "concurrency": 1, "models": endpoints},
    }
    evaluate.main(write_config(tmp_path / "run.yaml", options))
    generations = [
        step
        for _, record in jsonl.read(tmp_path / "run" / "traces.jsonl")
        for step in Trace.from_dict(record).generations
    ]
    assert {step.role for step in generations} > {"query"}
    for role, (endpoint, _) in roles.items():
        own = [step for step in generations if (step.role if step.role in roles else "policy") == role]
        again = ask(endpoint, [step.messages for step in own], [step.sampling for step in own])
        assert [step.completion.text for step in own] == again
