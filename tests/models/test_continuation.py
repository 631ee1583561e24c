"""Texts that a model writes over several calls: what the server is sent, of each kind of server."""

import asyncio
import json
from contextlib import closing

import pytest
from fake_endpoint import Fault, error, fake_endpoint

from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models.cache import ResponseCache
from notewriter.models.client import Client, Endpoint
from notewriter.testing import prompt_text

SAMPLING = Sampling(stop=("</search>",), continues=True)
ASKED = [{"role": "user", "content": "Who built the mill?"}]
BEGUN = "<think>\nI need to know.\n<search>mill</search> Oda. "


def ask(endpoint, *texts, cache=None, sampling=SAMPLING):
    """The parts of a text that follow each of `texts`, "" for its beginning."""

    async def run():
        client = Client(Endpoint(endpoint.base_url, endpoint.model), cache)
        try:
            told = [[*ASKED, {"role": "assistant", "content": text}] if text else ASKED for text in texts]
            return [(await client.complete(messages, sampling)).text for messages in told]
        finally:
            await client.close()

    return asyncio.run(run())


def altered(endpoint, change):
    """Let an endpoint change the message of its chats, given the request."""

    def alter(path, reply):
        if path.endswith("/chat/completions"):
            change(reply, reply["choices"][0]["message"], endpoint.requests[-1])
        return reply

    endpoint.alter = alter


def test_the_next_prompt_is_the_one_before_and_what_was_added():
    with fake_endpoint(lambda request: " white space stays ") as endpoint:
        assert ask(endpoint, "", BEGUN) == [" white space stays ", " white space stays "]
    first, second = endpoint.requests
    assert first["return_prompt_text"] and first["skip_special_tokens"] is False
    # The template's own first token is in the text.
    assert second["prompt"] == prompt_text(ASKED) + BEGUN and second["add_special_tokens"] is False
    assert (first["stop"], second["stop"]) == (["</search>"], ["</search>"])
    assert first["max_tokens"] == second["max_tokens"] == SAMPLING.max_tokens


def test_a_text_that_goes_on_after_a_restart_asks_for_its_prompt_with_one_token(tmp_path):
    with closing(ResponseCache(tmp_path / "cache.sqlite")) as cache, fake_endpoint(lambda request: "Mira") as endpoint:
        ask(endpoint, "", cache=cache)
        ask(endpoint, "", BEGUN, BEGUN + "Mira", cache=cache)
    _, opening, second, third = endpoint.requests
    assert (opening["messages"], opening["max_tokens"]) == (ASKED, 1) and "stop" not in opening
    assert [each["prompt"] for each in (second, third)] == [
        prompt_text(ASKED) + BEGUN,
        prompt_text(ASKED) + BEGUN + "Mira",
    ]


def test_behind_a_reasoning_parser_the_first_part_is_a_raw_prompt_too():
    def parted(reply, message, request):
        message |= {"reasoning": message["content"], "content": None}

    with fake_endpoint(lambda request: "<search>mill") as endpoint:
        altered(endpoint, parted)
        assert ask(endpoint, "", BEGUN) == ["<search>mill"] * 2
    _, first, second = endpoint.requests
    assert (first["prompt"], second["prompt"]) == (prompt_text(ASKED), prompt_text(ASKED) + BEGUN)


@pytest.mark.parametrize("field", ["reasoning", "reasoning_content", "thinking"])
@pytest.mark.parametrize("content", [None, "It was Oda."])
def test_a_server_that_keeps_thoughts_apart_and_no_prompt_is_refused(field, content):
    def parted(reply, message, request):
        message |= {field: "I need to know.", "content": content}
        reply.pop("prompt_text", None)

    with fake_endpoint(lambda request: "-") as endpoint:
        altered(endpoint, parted)
        with pytest.raises(UserError, match=rf"thoughts apart \(`{field}`\).*without a reasoning parser"):
            ask(endpoint, "")


@pytest.mark.parametrize("repeats", [False, True], ids=["as SGLang", "as llama.cpp's server"])
def test_a_server_that_does_not_say_its_prompts_continues_the_message_itself(repeats):
    def silent(reply, message, request):
        reply.pop("prompt_text", None)
        told = request["messages"][-1]
        if repeats and told["role"] == "assistant":
            message["content"] = told["content"] + message["content"]

    with fake_endpoint(lambda request: "Mira") as endpoint:
        altered(endpoint, silent)
        assert ask(endpoint, "", BEGUN, BEGUN + "x") == ["Mira"] * 3
    first, second, third = endpoint.requests
    assert "continue_final_message" not in first
    for request, text in ((second, BEGUN), (third, BEGUN + "x")):
        assert request["messages"] == [*ASKED, {"role": "assistant", "content": text}]
        assert (request["continue_final_message"], request["add_generation_prompt"]) == (True, False)
        assert "return_prompt_text" not in request


def test_a_server_that_refuses_to_be_asked_for_its_prompt_is_asked_once():
    def strict(request):
        return error(400, "unknown parameter return_prompt_text") if "return_prompt_text" in request else None

    with fake_endpoint(lambda request: "Mira", refuses=strict) as endpoint:
        assert ask(endpoint, "", BEGUN) == ["Mira"] * 2
    assert ["return_prompt_text" in request for request in endpoint.requests] == [True, False, False]


def test_a_reply_without_a_choice_is_asked_for_again():
    empty = Fault(body=json.dumps({"id": "r", "object": "chat.completion", "choices": [], "usage": None}).encode())
    with fake_endpoint(lambda request: "Mira", faults=[empty]) as endpoint:
        assert ask(endpoint, "") == ["Mira"]
    assert len(endpoint.requests) == 2


def test_other_chats_are_asked_as_ever():
    with fake_endpoint(lambda request: "Mira") as endpoint:
        ask(endpoint, "", sampling=Sampling())
    (request,) = endpoint.requests
    assert not {"return_prompt_text", "skip_special_tokens", "prompt"} & request.keys()
