"""What scoring needs of a real vLLM server: raw prompts, likely tokens, and the probability of a reply."""

import asyncio
from dataclasses import replace
from pathlib import Path

import pytest

from notewriter.datasets.two_wiki_multihop_qa import load_questions
from notewriter.evaluation.likelihood import note_gains
from notewriter.ground.records import Passage, Question, Sampling
from notewriter.ground.text import is_yes_no
from notewriter.methods.replug import replug
from notewriter.methods.self_rag import self_rag
from notewriter.models.client import Client, Endpoint
from notewriter.models.roles import ModelArguments
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

pytestmark = pytest.mark.integration

GREEDY = Sampling(temperature=0.0, top_p=1.0, max_tokens=12, logprobs=True)
CHAT = [{"role": "user", "content": "What is the capital of France? Answer with one word."}]
END = "<|im_end|>"


@pytest.fixture
async def client(vllm_server):
    client = Client(Endpoint(vllm_server.base_url, vllm_server.model))
    yield client
    await client.close()


class Shelf:
    def search(self, query: str, top_k: int) -> list[Passage]:
        texts = ["Mira built the bridge.", "The bridge was built by Osk.", "Tolen is a town."]
        return [Passage(str(number), f"Page {number}", text) for number, text in enumerate(texts[:top_k])]


async def test_a_greedy_reply_is_as_likely_when_it_is_scored(client):
    draft = await client.complete(CHAT, GREEDY)
    said = [(token, logprob) for token, logprob in draft.tokens if token != END]
    assert "".join(token for token, _ in said) == draft.text
    scoring = replace(GREEDY, max_tokens=1, score_from=draft.prompt_tokens, alternatives=(END,))
    scored = await client.complete([*CHAT, {"role": "assistant", "content": draft.text}], scoring)
    assert [token for token, _ in scored.tokens] == [token for token, _ in said]
    assert sum(logprob for _, logprob in scored.tokens) == pytest.approx(sum(logprob for _, logprob in said), abs=0.05)
    if draft.finish_reason == "stop":
        assert scored.alternatives[0][END] == pytest.approx(dict(draft.tokens)[END], abs=0.05)


async def test_a_reply_that_nobody_would_give_is_less_likely(client):
    draft = await client.complete(CHAT, GREEDY)
    scoring = replace(GREEDY, max_tokens=1, score_from=draft.prompt_tokens)
    scored = [
        await client.complete([*CHAT, {"role": "assistant", "content": text}], scoring) for text in ("Paris", "Zebra")
    ]
    likely, unlikely = (sum(logprob for _, logprob in each.tokens) for each in scored)
    assert likely > unlikely


async def test_a_raw_prompt_of_the_rendered_chat_gets_the_chats_reply(client, smollm2):
    from transformers import AutoTokenizer

    text = AutoTokenizer.from_pretrained(smollm2).apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    chat = await client.complete(CHAT, GREEDY)
    raw = await client.complete([{"role": "user", "content": text}], replace(GREEDY, raw=True, alternatives=(END,)))
    assert raw.text.removesuffix(END) == chat.text and raw.prompt_tokens == chat.prompt_tokens
    assert len(raw.alternatives) == len(raw.tokens)


@pytest.mark.parametrize(("method", "options"), [(replug, {"top_k": 3}), (self_rag, {"top_k": 2, "threshold": -1.0})])
async def test_the_methods_that_read_log_probabilities_run(client, method, options):
    rollout = Rollout(
        Question("q", "Who?", ("Mira",)), method.__name__, Resources({"policy": client}, Prompts(), Shelf())
    )
    answer = await asyncio.wait_for(method("Who built the bridge?", rollout, **options), 300)
    assert isinstance(answer, str) and len(rollout.trace.generations) >= 3


def test_gold_answers_are_likelier_with_the_gold_evidence_than_with_no_note(vllm_server, tmp_path):
    file = Path(__file__).parents[3].parent / "shared/data/2wikimultihopqa/train.json"
    if not file.exists():
        pytest.skip(f"needs {file}")
    questions = [each for each in load_questions(file)[:20] if not is_yes_no(each.answers)][:8]
    notes = {
        "gold": {each.id: " ".join(each.supporting_facts) for each in questions},
        "empty": {each.id: "" for each in questions},
    }
    models = ModelArguments(
        base_url=vllm_server.base_url, model=vllm_server.model, cache=str(tmp_path / "cache.sqlite"), concurrency=8
    )
    gains = note_gains(notes, questions, models, tmp_path, words=80)
    assert len(questions) == 8 and set(gains["empty"].values()) == {0.0}
    assert sum(gains["gold"].values()) / len(questions) > 0.5
    assert sum(gain > 0 for gain in gains["gold"].values()) >= 6
