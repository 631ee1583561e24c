"""The connection to an endpoint: no key in replies, bounded replies, no redirects."""

import asyncio
import gzip
import itertools
import json
import socket
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from fake_endpoint import Fault, completion, error, fake_endpoint
from tiny_world import DEEPNOTE_PAIRS, run_config, tiny_world

from notewriter.data import pairs
from notewriter.evaluation import ask, evaluate
from notewriter.ground import errors
from notewriter.ground.errors import UserError
from notewriter.ground.records import Sampling
from notewriter.models import http
from notewriter.models.client import Client, Endpoint, RequestRefused
from notewriter.models.connection import check_address
from notewriter.models.http import MAX_REPLY_BYTES

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


ESCAPED = "".join(f"\\u{ord(each):04x}" for each in KEY)
ECHOES = {
    "as it is": KEY,
    "in capitals": KEY.upper(),
    "in a URL": quote(KEY, safe=""),
    "in JSON in JSON": json.dumps({"key": KEY}).replace("/", "\\/"),
}


@pytest.mark.parametrize("echo", ECHOES.values(), ids=ECHOES)
async def test_a_key_in_an_error_is_removed_however_it_is_written(echo):
    with (
        fake_endpoint(faults=[error(400, f"bad: {echo}. You sent it")]) as endpoint,
        pytest.raises(RequestRefused, match=r"^bad: .*\[key removed\].*You sent it") as refused,
    ):
        await asked(endpoint.base_url)
    assert KEY[4:12].lower() not in str(refused.value).lower()


@pytest.mark.parametrize(
    "body",
    [
        f"you sent Bearer {KEY}".encode(),
        f'{{"error": {{"message": "you sent {ESCAPED}"}}}}'.encode(),
        json.dumps({"error": {"message": f"you sent {KEY}"}}).encode("utf-16"),
        f"you sent Bearer {KEY}".encode("utf-16"),
        json.dumps({"error": f"you sent {KEY}", KEY: [KEY]}).encode(),
        json.dumps([{"detail": f"you sent {KEY}"}]).encode(),
    ],
    ids=["text", "escapes", "JSON in UTF-16", "text in UTF-16", "as a name", "a list"],
)
@pytest.mark.parametrize("status", [400, 500])
async def test_a_key_in_an_error_of_any_kind_is_removed(body, status):
    fault = Fault(status, body, {"Content-Type": "text/plain"})
    with (
        fake_endpoint(faults=[fault] * 3) as endpoint,
        pytest.raises(RequestRefused if status == 400 else UserError, match=r"you sent .*\[key removed\]") as told,
    ):
        await asked(endpoint.base_url)
    assert KEY not in str(told.value)


async def test_a_key_in_a_reply_is_removed_and_the_rest_stays_as_it_is():
    text = f"Mira\n\tsaid: {KEY}\x1b[2J שלום"
    with fake_endpoint(reply=lambda request: text) as endpoint:
        completion = await asked(endpoint.base_url)
    assert completion.text == text.replace(KEY, "[key removed]")


async def test_tokens_that_spell_the_key_are_not_kept():
    with (
        fake_endpoint(reply=lambda request: f"it is {KEY} then") as endpoint,
        pytest.raises(RequestRefused, match="echoes the key in its reply"),
    ):
        await asked(endpoint.base_url, logprobs=True)


async def test_a_key_in_the_list_of_models_is_removed():
    models = json.dumps({"object": "list", "data": [{"id": f"of {KEY}"}]}).encode()
    with (
        fake_endpoint(models_faults=[Fault(body=models)]) as endpoint,
        pytest.raises(UserError, match=r"it serves of \[key removed\]$"),
    ):
        await checked(endpoint.base_url)


async def test_a_key_in_a_redirect_is_removed():
    with (
        fake_endpoint(faults=[Fault(302, headers={"Location": f"http://other/?key={KEY}"})]) as endpoint,
        pytest.raises(UserError, match=r"redirects to http://other/\?key=\[key removed\]"),
    ):
        await asked(endpoint.base_url)


async def test_a_key_in_what_is_no_http_is_removed(raw):
    address = raw(f"HTTP/1.1 999999 Bearer {KEY}\r\n\r\n".encode())
    with pytest.raises(UserError, match="no reply after 3 attempts") as told:
        await asked(address)
    assert KEY not in str(told.value)


async def test_other_headers_that_the_environment_adds_are_keys_too(monkeypatch):
    monkeypatch.setenv("OPENAI_CUSTOM_HEADERS", "api-key: another-secret-71")
    with (
        fake_endpoint(faults=[error(400, "api-key another-secret-71 is unknown")]) as endpoint,
        pytest.raises(RequestRefused, match=r"^api-key \[key removed\] is unknown"),
    ):
        await asked(endpoint.base_url)


@pytest.mark.parametrize("key", ["EMPTY", "none", "token"])
async def test_a_word_that_stands_for_no_key_stays_in_replies(monkeypatch, key):
    monkeypatch.setenv("OPENAI_API_KEY", key)
    with fake_endpoint(reply=lambda request: f"the bag is {key}") as endpoint:
        assert (await asked(endpoint.base_url)).text == f"the bag is {key}"


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
    "pairs": (pairs.main, DEEPNOTE_PAIRS),
    "ask": (lambda argv: ask.main(["Who?", *argv]), {"method": "vanilla", "dataset": None, "path": None}),
}
WAYS: dict[str, dict[str, Any]] = {
    "400": {"faults": lambda: echoing(400)},
    "500": {"faults": lambda: itertools.repeat(error(500, f"you sent Bearer {KEY} \x1b[2J"))},
    "reply": {"reply": lambda request: f"{len(str(request))} Bearer {KEY} \x1b[2J"},
    "models": {
        "models_faults": lambda: [
            Fault(body=json.dumps({"object": "list", "data": [{"id": f"{KEY} \x1b[2J\u202e"}]}).encode())
        ]
    },
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("command", COMMANDS)
def test_no_file_and_no_line_of_a_command_has_the_key(command, way, world, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    main, settings = COMMANDS[command]
    made = {name: value() if callable(value) and name != "reply" else value for name, value in WAYS[way].items()}
    with fake_endpoint(**made) as endpoint:
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


# Size and time


class Counted:
    """Chunks of an endless reply, counted as they are read."""

    def __init__(self, piece: bytes, wait: float = 0.0) -> None:
        self.piece, self.wait, self.taken = piece, wait, 0

    def __call__(self) -> Iterator[bytes]:
        while True:
            self.taken += len(self.piece)
            yield self.piece
            time.sleep(self.wait)


@pytest.mark.parametrize("status", [200, 400, 500])
async def test_a_reply_without_an_end_is_read_to_the_bound_and_once(status):
    pieces = Counted(b"x" * 2**16)
    with (
        fake_endpoint(faults=[Fault(status, pieces=pieces)]) as endpoint,
        pytest.raises(UserError, match="sends a reply of more than 16 MiB, which no model writes; correct base_url"),
    ):
        await asked(endpoint.base_url)
    assert len(endpoint.requests) == 1
    # Socket buffers hold what is sent and not read.
    assert pieces.taken < MAX_REPLY_BYTES + 2**24


async def test_the_largest_reply_still_passes(monkeypatch):
    body = completion({"messages": []}, "Mira", "fake")
    monkeypatch.setattr(http, "MAX_REPLY_BYTES", len(body))
    with fake_endpoint(faults=[Fault(body=body)]) as endpoint:
        assert (await asked(endpoint.base_url)).text == "Mira"


@pytest.mark.parametrize(
    ("encoding", "pack"),
    [("gzip", gzip.compress), ("deflate", zlib.compress), ("GZIP", gzip.compress)],
)
async def test_a_compressed_reply_is_read_also_where_none_was_asked_for(encoding, pack):
    body = pack(completion({"messages": []}, "Mira", "fake"))
    with fake_endpoint(faults=[Fault(body=body, headers={"Content-Encoding": encoding})]) as endpoint:
        assert (await asked(endpoint.base_url)).text == "Mira"
    assert endpoint.headers[0]["accept-encoding"] == "identity"


async def test_a_reply_that_grows_without_bounds_when_decompressed_is_refused():
    bomb = zlib.compressobj(9, zlib.DEFLATED, zlib.MAX_WBITS | 16)
    packed = b"".join(bomb.compress(bytes(2**20)) for _ in range(64)) + bomb.flush()
    with (
        fake_endpoint(faults=[Fault(body=packed, headers={"Content-Encoding": "gzip"})]) as endpoint,
        pytest.raises(UserError, match="more than 16 MiB"),
    ):
        await asked(endpoint.base_url)
    assert len(endpoint.requests) == 1


@pytest.mark.parametrize("encoding", ["br", "zstd", "gzip, gzip", f"{KEY}\x1b[2J"], ids=ascii)
async def test_an_encoding_that_was_not_asked_for_is_named(encoding):
    with (
        fake_endpoint(faults=[Fault(body=SAID, headers={"Content-Encoding": encoding})]) as endpoint,
        pytest.raises(UserError, match="encoding that was not requested") as told,
    ):
        await asked(endpoint.base_url)
    assert not any(secret in str(told.value) for secret in ("\x1b", KEY))


async def test_a_reply_that_drips_ends_with_the_time_for_a_whole_one():
    start = time.monotonic()
    with (
        fake_endpoint(faults=[Fault(pieces=Counted(b" ", wait=0.1)) for _ in range(2)]) as endpoint,
        pytest.raises(UserError, match=r"no reply after 2 attempts \(Request timed out"),
    ):
        await asked(endpoint.base_url, timeout=1.5, attempts=2)
    assert 3.0 <= time.monotonic() - start < 10
    assert len(endpoint.requests) == 2


@pytest.fixture
def raw() -> Iterator[Callable[[bytes], str]]:
    """A server that answers every request with these bytes, and sends some of them slowly."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        answer: list[Any] = []

        def serve() -> None:
            while True:
                try:
                    connected, _ = server.accept()
                except OSError:
                    return
                with connected:
                    connected.recv(2**16)
                    for piece in answer[0]:
                        try:
                            connected.sendall(piece)
                        except OSError:
                            break

        threading.Thread(target=serve, daemon=True).start()

        def start(pieces: Any) -> str:
            answer.append([pieces] if isinstance(pieces, bytes) else pieces)
            return f"http://127.0.0.1:{server.getsockname()[1]}/v1"

        yield start
        server.shutdown(socket.SHUT_RDWR)


@pytest.mark.parametrize("line", [b"HTTP/1.1 100 Continue\r\n\r\n", b"X: y\r\n"], ids=["interim replies", "headers"])
async def test_a_reply_that_never_begins_ends_too(raw, line):
    def drip() -> Iterator[bytes]:
        yield b"" if line.startswith(b"HTTP") else b"HTTP/1.1 200 OK\r\n"
        while True:
            yield line
            time.sleep(0.05)

    start = time.monotonic()
    with pytest.raises(UserError, match="no reply after 1 attempts"):
        await asked(raw(drip()), timeout=1.0, attempts=1)
    assert time.monotonic() - start < 10


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
    "content a list": changed(choices__message__content=["Mira"]),
    "finish reason a number": changed(choices__finish_reason=5),
    "tokens null": changed(usage__prompt_tokens=None),
    "tokens a text": changed(usage__completion_tokens="many"),
    "tokens infinite": changed(usage__completion_tokens=float("inf")),
    "details a text": changed(usage__prompt_tokens_details="none"),
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
        ([{"id": None}, {"id": "other\x1b[2J"}], r"it serves other\\x1b\[2J$"),
        ([{"id": "long" * 1000}], r"it serves (long){25}$"),
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
