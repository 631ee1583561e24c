"""Which parameters an endpoint gets: known by the model's name or set by the user."""

import contextlib

import pytest
from fake_endpoint import as_gpt5, fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint, cache_key
from notewriter.models.dialects import PARAMETERS, known_dialect
from notewriter.models.roles import ModelArguments, check_endpoints

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=40, stop=("\n",))
CHAT = [{"role": "user", "content": "hi"}]


def sent(request):
    return {name: value for name, value in request.items() if name not in {"model", "messages"}}


async def complete(base_url, sampling=SAMPLING, cache=None, **settings):
    client = Client(Endpoint(base_url, settings.pop("model", "fake"), **settings), cache)
    try:
        return await client.complete(CHAT, sampling), client.endpoint
    finally:
        await client.close()


@pytest.mark.parametrize("model", ["gpt-5", "openai/gpt-5.1-mini", "o3", "o4-mini-2025-04-16"])
def test_reasoning_models_of_openai_get_none_but_the_length_under_its_new_name(model):
    assert known_dialect(model) == {
        **{"max_tokens": "max_completion_tokens", "temperature": None, "top_p": None, "stop": None}
    }


@pytest.mark.parametrize("model", ["claude-opus-4-1", "claude-sonnet-4-5-20250929", "anthropic/claude-sonnet-4.6"])
def test_claude_gets_a_temperature_without_top_p(model):
    assert known_dialect(model) == {"top_p": None}


@pytest.mark.parametrize("model", ["claude-opus-4-7", "us.anthropic.claude-opus-4-8-v1:0"])
def test_the_newest_claude_gets_neither(model):
    assert known_dialect(model) == {"temperature": None, "top_p": None}


OTHERS = (
    *("gpt-4o-mini", "gpt-5-chat-latest", "gpt-50", "gpt-oss-120b", "claude-3-5-sonnet-20241022"),
    *("claude-opus-4-20250514", "Qwen/Qwen2.5-7B-Instruct", "olmo3", "solo1"),
)


@pytest.mark.parametrize("model", OTHERS)
def test_other_models_get_everything(model):
    assert known_dialect(model) == {}


async def test_a_known_model_is_not_asked_in_vain():
    with fake_endpoint(refuses=as_gpt5) as endpoint:
        await complete(endpoint.base_url, model="gpt-5-mini")
    assert [sent(request) for request in endpoint.requests] == [{"max_completion_tokens": 40}]


async def test_parameters_that_the_user_sets_precede_what_is_known():
    settings = {"model": "gpt-5", "parameters": {"temperature": "temperature", "max_tokens": "max_output_tokens"}}
    with fake_endpoint() as endpoint:
        await complete(endpoint.base_url, **settings)
    assert [sent(request) for request in endpoint.requests] == [{"temperature": 0.5, "max_output_tokens": 40}]


async def test_a_checkpoint_served_here_may_be_called_as_a_provider_calls_its_model():
    with fake_endpoint() as endpoint:
        await complete(endpoint.base_url, model="o3", identity="sha256")
    assert sent(endpoint.requests[0]).keys() == set(PARAMETERS)


async def test_a_reply_ends_before_a_stop_that_could_not_be_sent():
    with fake_endpoint(lambda request: "one\ntwo") as endpoint:
        completion, _ = await complete(endpoint.base_url, parameters={"stop": None})
    assert (completion.text, completion.finish_reason) == ("one", "stop")


async def test_the_cache_tells_what_was_really_sent():
    plain = Endpoint("http://host/v1", "fake")
    other = Endpoint("http://host/v1", "fake", parameters={"top_p": None})
    assert cache_key(other, CHAT, SAMPLING, 0) != cache_key(plain, CHAT, SAMPLING, 0)


def test_the_keys_of_endpoints_without_a_dialect_are_those_of_earlier_versions():
    key = cache_key(Endpoint("http://host/v1", "fake"), CHAT, Sampling(), 0)
    assert key == "b927addf58e8a9ac0c0acc50d670900cf924e9b98404b500848213d6116386a9"


@pytest.mark.parametrize(("refuses", "requests"), [(None, 0), (lambda request: None, 1)], ids=["vllm", "another"])
async def test_an_endpoint_is_tried_out_once_unless_it_is_known_to_take_everything(tmp_path, refuses, requests):
    with (
        contextlib.closing(ResponseCache(tmp_path / "cache.sqlite")) as cache,
        fake_endpoint(refuses=refuses) as endpoint,
    ):
        for _ in range(2):
            client = Client(Endpoint(endpoint.base_url, "fake"), cache)
            await client.check()
            await client.try_out(SAMPLING)
            await client.close()
    assert len(endpoint.requests) == requests


async def test_an_endpoint_that_refuses_even_a_word_is_named_before_a_run_begins():
    with fake_endpoint(refuses=as_gpt5) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        await client.check()
        with pytest.raises(UserError, match=r"max_completion_tokens.*`parameters`"):
            await client.try_out(SAMPLING)
        await client.close()


async def test_an_endpoint_without_raw_completions_says_so():
    with fake_endpoint(faults=["404"]) as endpoint, pytest.raises(UserError, match=r"/v1/completions.*raw"):
        await complete(endpoint.base_url, Sampling(raw=True))


@pytest.mark.parametrize("parameters", [{"top_k": None}, {"top_p": 3}, {"max_tokens": "two words"}])
def test_other_parameters_are_refused(parameters):
    judge = {"base_url": "http://host/v1", "model": "m", "parameters": parameters}
    with pytest.raises(UserError, match="models: judge: parameters"):
        check_endpoints(ModelArguments(models={"judge": judge}))
