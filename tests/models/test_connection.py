"""The connection to an endpoint: addresses, no key in errors, no redirects, malformed replies."""

import asyncio
import itertools
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fake_endpoint import Fault, completion, error, fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import build_pairs
from notewriter.evaluation import ask, evaluate
from notewriter.ground import errors
from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.connection import check_address

KEY = "sk-proj-4fQz/Lr+9x&7aB2c-Dd_81eE"
SAMPLING = Sampling(max_tokens=40)
SAID = b'{"choices": ["words"]}'


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Retries without waiting."""
    monkeypatch.setattr("notewriter.models.connection._backoff", lambda state: 0)
    monkeypatch.setenv("OPENAI_API_KEY", KEY)


async def asked(base_url: str, **settings: Any) -> Any:
    """The reply to one request, optionally with log-probabilities."""
    sampling = Sampling(max_tokens=40, logprobs=settings.pop("logprobs", False))
    client = Client(Endpoint(base_url, "fake", **{"attempts": 3, "patience": 0.0} | settings))
    try:
        return await client.complete([{"role": "user", "content": "hi"}], sampling)
    finally:
        await client.close()


async def checked(base_url: str) -> None:
    client = Client(Endpoint(base_url, "fake"))
    try:
        await client.check()
    finally:
        await client.close()


# The key


@pytest.mark.parametrize("status", [400, 500])
@pytest.mark.parametrize(
    "body",
    [f"you sent Bearer {KEY}", json.dumps({"error": {"message": f"you sent {KEY}"}})],
    ids=["text", "JSON"],
)
async def test_a_key_in_an_error_is_removed(body, status):
    fault = Fault(status, body.encode(), {"Content-Type": "text/plain"})
    with (
        fake_endpoint(faults=[fault] * 3) as endpoint,
        pytest.raises(RequestRefused if status == 400 else UserError, match=r"you sent .*\[key removed\]") as told,
    ):
        await asked(endpoint.base_url)
    assert KEY not in str(told.value)


async def test_a_reply_with_the_key_ends_the_run_and_is_not_kept():
    with (
        fake_endpoint(reply=lambda request: f"it is {KEY} then") as endpoint,
        pytest.raises(UserError, match="sends the key back in its reply; use another endpoint") as told,
    ):
        await asked(endpoint.base_url)
    assert KEY not in str(told.value)


@pytest.mark.parametrize("key", ["EMPTY", "none", "token"])
async def test_a_word_that_stands_for_no_key_stays_in_errors(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with (
        fake_endpoint(faults=[error(400, f"the {key} of it")]) as endpoint,
        pytest.raises(RequestRefused, match=f"the {key} of it"),
    ):
        await asked(endpoint.base_url)


@pytest.mark.parametrize("key", [f"{KEY}\n", f" {KEY}", f"{KEY}\x1b[2J", f"{KEY}ä"], ids=ascii)
async def test_a_key_that_cannot_be_sent_is_named_by_its_variable(monkeypatch, key):
    monkeypatch.setenv("MY_KEY", key)
    with pytest.raises(UserError, match=r"^MY_KEY: the key in this environment variable contains white space") as told:
        await asked("http://127.0.0.1:9/v1", api_key_env="MY_KEY")
    assert KEY not in str(told.value)


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return tiny_world(tmp_path_factory.mktemp("world"), 3)


def echoing(number: int) -> Iterator[Fault | None]:
    """Half of the requests get a reply, the others an error that quotes the key."""
    return itertools.cycle([error(number, f"you sent Bearer {KEY} \x1b[2J\x9b1m"), None])


COMMANDS: dict[str, tuple[Callable[[list[str]], None], dict[str, Any]]] = {
    "evaluate": (evaluate.main, {"method_options": {"max_step": 1, "max_failure": 1}}),
    "pairs": (build_pairs.main, DEEPNOTE_PAIRS),
    "ask": (lambda argv: ask.main(["Who?", *argv]), {"method": "vanilla", "dataset": None, "path": None}),
}
WAYS: dict[str, Callable[[], Iterator[Fault | None]]] = {
    "400": lambda: echoing(400),
    "reply": lambda: itertools.repeat(Fault(body=completion({"messages": []}, f"Bearer {KEY}", "fake"))),
    "500": lambda: itertools.repeat(error(500, f"you sent Bearer {KEY} \x1b[2J")),
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_file_and_no_line_of_a_command_has_the_key(command, way, world, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, settings = COMMANDS[command]
    with fake_endpoint(faults=WAYS[way]()) as endpoint:
        argv = run_config(tmp_path, "run", world, endpoint, settings)
        file = Path(argv[1])
        file.write_text("".join(line for line in file.read_text().splitlines(True) if "null" not in line))
        try:
            errors.run(lambda: main(argv))
        except SystemExit as ended:
            assert ended.code == 2
    output = capfd.readouterr()
    shown = output.out + output.err
    kept = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    assert any(path.name == "run.yaml" for path in kept)
    assert [str(path) for path, content in kept.items() if KEY.encode() in content] == []
    assert KEY not in shown
    assert not any(sign in shown for sign in ("\x1b", "\x9b", "\u202e"))
    assert endpoint.headers == [] or endpoint.headers[0]["authorization"] == f"Bearer {KEY}"


# Where requests go


@pytest.mark.parametrize(
    "address",
    [
        "http://node7:99999/v1",
        "http://node7:0/v1",
        "http://node7:port/v1",
        "http://[::1/v1",
        "http://[fe80::zz]:8000/v1",
        "http://[127.0.0.1]:8000/v1",
        "http://:8000/v1",
        "http:///v1",
        "http:/node7:8000/v1",
        "node7:8000/v1",
        "ftp://node7/v1",
        "file:///etc/passwd",
        "http://node7:8000/v 1",
        "http://node7:8000/v1\x1b[2J",
        "http://node\x007/v1",
        "http://" + "a" * 70 + ".example/v1",
        "http://a..b/v1",
        "http://node7/v1#part",
        "http://node7/v1?version=1",
        "http://node7:8000/v1,",
        "",
    ],
    ids=ascii,
)
def test_an_address_that_is_none_is_named(address):
    with pytest.raises(
        UserError, match=r"^models: judge: base_url: .* is not the address of an endpoint .*http://HOST"
    ) as told:
        for part in address.split(","):
            check_address(part, "models: judge: base_url")
    assert not any(sign in str(told.value) for sign in "\n\x1b\0")


def test_what_follows_a_question_mark_is_not_repeated():
    with pytest.raises(UserError, match="something after the path") as told:
        check_address("http://node7/v1?api_key=pa55word")
    assert "pa55word" not in str(told.value)


@pytest.mark.parametrize(
    "address",
    [
        "http://127.0.0.1:8000/v1",
        "http://[::1]:8000/v1",
        "https://api.example.com/v1/",
        "http://node_7:8000",
        "https://büro.example/v1",
    ],
)
def test_an_address_that_is_one_passes(address):
    check_address(address)


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_not_followed(status):
    with fake_endpoint() as elsewhere:
        moved = Fault(status, headers={"Location": f"{elsewhere.base_url}/chat/completions"})
        with (
            fake_endpoint(faults=[moved]) as endpoint,
            pytest.raises(
                UserError, match=f"redirects to {elsewhere.base_url}/chat.* redirects are not followed"
            ) as told,
        ):
            await asked(endpoint.base_url)
    assert len(endpoint.requests) == 1
    assert elsewhere.requests == []
    assert "correct base_url" in str(told.value)


@pytest.mark.parametrize("location", ["/v1/models", "http://[::1", "\x1b[2J", "http://a:99999/"], ids=ascii)
async def test_a_redirect_of_the_list_of_models_ends_at_once(location):
    start = time.monotonic()
    forever = itertools.repeat(Fault(302, headers={"Location": location}))
    with fake_endpoint(models_faults=forever) as endpoint, pytest.raises(UserError, match="redirects to") as told:
        await checked(endpoint.base_url)
    assert time.monotonic() - start < 5
    assert "\x1b" not in str(told.value)


# Malformed replies


PAGE = b"<!doctype html><title>Sign in\x1b[2J</title>"


async def test_a_page_where_json_belongs_is_told():
    html = Fault(body=PAGE, headers={"Content-Type": f"text/html; charset=utf-8; key={KEY}"})
    with fake_endpoint(faults=[html] * 3, models_faults=[html] * 3) as endpoint:
        with pytest.raises(UserError, match=r"no reply after 3 attempts \(text/html.*not JSON.*Sign in") as told:
            await asked(endpoint.base_url)
        assert not any(secret in str(told.value) for secret in ("\x1b", KEY))
        with pytest.raises(UserError, match=r"cannot be reached \(text/html.*not JSON.*correct base_url"):
            await checked(endpoint.base_url)


def changed(**changes: Any) -> Fault:
    """A completion with a part replaced."""
    reply = json.loads(completion({"messages": []}, "Mira", "fake"))
    for path, value in changes.items():
        *parts, last = path.split("__")
        inner: Any = reply
        for part in parts:
            inner = inner[part]
            inner = inner[0] if isinstance(inner, list) else inner
        inner[last] = value
    return Fault(body=json.dumps(reply).encode())


GARBLED = {
    "nested": Fault(body=b"[" * 200_000),
    "nested objects": Fault(body=b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "a number of many digits": Fault(body=b'{"choices": ' + b"1" * 5000 + b"}"),
    "a number": Fault(body=b"7"),
    "null": Fault(body=b"null"),
    "a text": Fault(body=b'"reply"'),
    "no UTF-8": Fault(body=b'{"choices": "\xff\xfe"}'),
    "choices null": changed(choices=None),
    "choices an object": changed(choices={}),
    "a choice null": changed(choices=[None]),
    "message null": changed(choices__message=None),
    "content a number": changed(choices__message__content=5),
    "content a list of numbers": changed(choices__message__content=[3]),
    "finish reason a number": changed(choices__finish_reason=5),
    "tokens a text": changed(usage__completion_tokens="many"),
    "tokens infinite": changed(usage__completion_tokens=float("inf")),
    "cached tokens a text": changed(usage__prompt_tokens_details={"cached_tokens": "many"}),
    "cached a text": changed(usage__prompt_tokens_details={"cached_tokens": "none"}),
}


@pytest.mark.parametrize("fault", GARBLED.values(), ids=GARBLED)
async def test_a_reply_of_another_shape_is_asked_for_again(fault):
    with fake_endpoint(lambda request: "Mira", faults=[fault]) as endpoint:
        assert (await asked(endpoint.base_url)).text == "Mira"
    assert len(endpoint.requests) == 2


@pytest.mark.parametrize(
    "scored",
    [
        "Mira",
        [None],
        ["Mira"],
        [{"token": 5, "logprob": 0.0}],
        [{"token": "M", "logprob": None}],
        [{"token": "M", "logprob": 10**400}],
    ],
    ids=lambda value: str(value)[:40],
)
async def test_log_probabilities_of_another_shape_are_asked_for_again(scored):
    fault = changed(choices__logprobs={"content": scored})
    with fake_endpoint(lambda request: "Mira", faults=[fault]) as endpoint:
        assert (await asked(endpoint.base_url, logprobs=True)).tokens == [(" Mira", -0.4)]


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ([{"id": None}], None),
        ([{"id": 7}], None),
        ([{"id": ["fake"]}], None),
        ([{}], None),
        ([], None),
        ([{"id": None}, {"id": "fake"}], None),
        ([{"id": None}, {"id": "other\x1b[2J"}], r"it serves other\\x1b\[2J; correct model or base_url$"),
        ([{"id": "long" * 1000}], r"it serves (long){25}; correct model or base_url$"),
        ([None], "cannot be reached"),
        (["fake"], "cannot be reached"),
        ("fake", "cannot be reached"),
        (7, "cannot be reached"),
    ],
    ids=lambda value: str(value)[:40],
)
async def test_a_list_of_models_in_any_shape_is_read_or_named(data, problem):
    body = json.dumps({"object": "list", "data": data}).encode()
    with fake_endpoint(models_faults=itertools.repeat(Fault(body=body))) as endpoint:
        if problem is None:
            await checked(endpoint.base_url)
        else:
            with pytest.raises(UserError, match=problem) as told:
                await checked(endpoint.base_url)
            assert "\n" not in str(told.value)


@pytest.mark.parametrize("body", [b"null", b"[]", b"7", b'{"data": null}', b"{}"])
async def test_an_endpoint_that_answers_something_else_about_its_models_ends_in_no_traceback(body):
    with fake_endpoint(models_faults=itertools.repeat(Fault(body=body))) as endpoint:
        try:
            await asyncio.wait_for(checked(endpoint.base_url), 20)
        except UserError as told:
            assert "cannot be reached" in str(told)
