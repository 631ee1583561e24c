"""Which parameters an endpoint gets: known by the model's name, learnt from a refusal, or set by the user."""

import logging

import pytest
from fake_endpoint import Fault, as_claude, as_gpt5, error, fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import REFUSALS, Client, Endpoint, RequestRefused, cache_key
from notewriter.models.dialects import PARAMETERS, known_dialect, learn
from notewriter.models.roles import ModelArguments, check_endpoints, policy_of

SAMPLING = Sampling(temperature=0.5, top_p=0.9, max_tokens=40, stop=("\n",))
CHAT = [{"role": "user", "content": "hi"}]
SENT = {name: name for name in PARAMETERS}


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


@pytest.mark.parametrize(
    ("refusal", "learnt"),
    [
        (
            "'max_tokens' is not supported. Use 'max_completion_tokens' instead.",
            {"max_tokens": "max_completion_tokens"},
        ),
        ("'temperature' does not support 0 with this model. Only the default (1) is supported.", {"temperature": None}),
        ("`temperature` and `top_p` cannot both be specified for this model. Please use only one.", {"top_p": None}),
        ('BedrockException - {\\"message\\":\\"`temperature` is deprecated for this model.\\"}', {"temperature": None}),
        ("top_p: Extra inputs are not permitted", {"top_p": None}),
        # About something else, or about a value.
        ("This model's maximum context length is 4096 tokens; max_tokens: 5000 is not supported", {}),
        ("max_tokens is not supported", {}),
        ("temperature: 1.5 is not supported, it must be in the range 0 to 1", {}),
        ("Unsupported request: please stop", {}),
        ("top_k is not supported", {}),
    ],
)
def test_a_refusal_that_names_a_parameter_teaches(refusal, learnt):
    assert learn(refusal, SENT) == learnt


@pytest.mark.parametrize(
    ("refuses", "remaining"),
    [(as_gpt5, {"max_completion_tokens": 40}), (as_claude, {"temperature": 0.5, "max_tokens": 40, "stop": ["\n"]})],
)
async def test_what_is_refused_is_learnt_once_and_told(refuses, remaining, caplog):
    caplog.set_level(logging.WARNING)
    with fake_endpoint(refuses=refuses) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        await client.complete(CHAT, SAMPLING)
        refused = len(endpoint.requests) - 1
        await client.complete(CHAT, SAMPLING, sample=1)
        await client.close()
    assert [sent(request) for request in endpoint.requests[refused:]] == [remaining] * 2
    assert len(endpoint.requests) == refused + 2
    assert len(caplog.records) == refused == len(client.endpoint.parameters)


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


async def test_the_cache_tells_what_was_really_sent_and_a_resumed_run_finds_it(tmp_path):
    cache = ResponseCache(str(tmp_path / "cache.sqlite"))
    with fake_endpoint(refuses=as_claude) as endpoint:
        first, asked = await complete(endpoint.base_url, cache=cache)
        again, _ = await complete(endpoint.base_url, cache=cache)
        # Refused, answered; refused, found.
        assert len(endpoint.requests) == 3
    cache.close()
    assert again == first and asked.parameters == {"top_p": None}
    assert cache_key(asked, CHAT, SAMPLING, 0) != cache_key(Endpoint(endpoint.base_url, "fake"), CHAT, SAMPLING, 0)


def test_the_keys_of_endpoints_without_a_dialect_are_those_of_earlier_versions():
    key = cache_key(Endpoint("http://host/v1", "fake"), CHAT, Sampling(), 0)
    assert key == "b927addf58e8a9ac0c0acc50d670900cf924e9b98404b500848213d6116386a9"


async def test_refusals_that_teach_nothing_end_the_run_with_their_reason():
    with fake_endpoint(refuses=lambda request: error(400, "tools are required")) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        for sample in range(REFUSALS - 1):
            with pytest.raises(RequestRefused):
                await client.complete(CHAT, SAMPLING, sample=sample)
        with pytest.raises(UserError, match=r"tools are required.*--retry_errors"):
            await client.complete(CHAT, SAMPLING, sample=REFUSALS)
        await client.close()


@pytest.mark.parametrize(
    "reason",
    [
        "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens.",
        "The decoder prompt (length 5000) is longer than the maximum model length of 4096.",
        "prompt is too long: 210000 tokens > 200000 maximum",
    ],
)
async def test_prompts_that_are_too_long_end_no_run(reason):
    with fake_endpoint(refuses=lambda request: error(400, reason)) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        for sample in range(2 * REFUSALS):
            with pytest.raises(RequestRefused):
                await client.complete(CHAT, SAMPLING, sample=sample)
        await client.close()


async def test_a_reply_in_between_forgives_refusals():
    refuse = error(400, "no such tool")
    faults = [*[refuse] * (REFUSALS - 1), None, *[refuse] * (REFUSALS - 1)]
    with fake_endpoint(faults=faults) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        for sample, fault in enumerate(faults):
            if fault is None:
                await client.complete(CHAT, SAMPLING, sample=sample)
            else:
                with pytest.raises(RequestRefused):
                    await client.complete(CHAT, SAMPLING, sample=sample)
        await client.close()


async def test_two_refusals_that_contradict_each_other_end():
    def refuses(request: dict[str, object]) -> Fault:
        one, other = "max_tokens", "max_completion_tokens"
        if other in request:
            one, other = other, one
        return error(400, f"Unsupported parameter: '{one}'. Use '{other}' instead.")

    with fake_endpoint(refuses=refuses) as endpoint, pytest.raises(RequestRefused):
        await complete(endpoint.base_url)
    assert len(endpoint.requests) == 2


async def test_an_endpoint_is_tried_out_once_unless_it_is_known_to_take_everything(tmp_path):
    cache = ResponseCache(str(tmp_path / "cache.sqlite"))
    asked = []
    for refuses in (None, as_claude, as_claude):
        with fake_endpoint(refuses=refuses) as endpoint:
            # The same model, whatever port it has.
            client = Client(Endpoint(endpoint.base_url, "fake", identity="one"), cache)
            await client.check()
            await client.try_out(SAMPLING)
            await client.close()
            asked.append(len(endpoint.requests))
    cache.close()
    # vLLM; refused and answered; refused and found.
    assert asked == [0, 2, 1]


async def test_an_endpoint_that_refuses_even_a_word_is_named_before_a_run_begins():
    with fake_endpoint(refuses=lambda request: error(400, "tools are required")) as endpoint:
        client = Client(Endpoint(endpoint.base_url, "fake"))
        await client.check()
        with pytest.raises(UserError, match=r"tools are required.*parameters"):
            await client.try_out(SAMPLING)
        await client.close()


async def test_an_endpoint_without_raw_completions_says_so():
    with fake_endpoint(faults=["404"]) as endpoint, pytest.raises(UserError, match=r"/v1/completions.*raw"):
        await complete(endpoint.base_url, Sampling(raw=True))


def test_parameters_of_the_flat_options_are_those_of_the_policy():
    arguments = ModelArguments(base_url="http://host/v1", model="m", parameters={"top_p": None})
    check_endpoints(arguments)
    assert policy_of(arguments)["parameters"] == {"top_p": None}


@pytest.mark.parametrize("parameters", [{"top_k": None}, {"top_p": 3}, {"max_tokens": "two words"}])
@pytest.mark.parametrize("flat", [True, False])
def test_other_parameters_are_refused(parameters, flat):
    endpoint = {"base_url": "http://host/v1", "model": "m"}
    settings = (
        {**endpoint, "parameters": parameters} if flat else {"models": {"judge": endpoint | {"parameters": parameters}}}
    )
    with pytest.raises(UserError, match="parameters"):
        check_endpoints(ModelArguments(**settings))
