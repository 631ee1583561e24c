"""An OpenAI-compatible endpoint whose replies are a pure function of the request; it can also be made to fail.

In a test:

    with fake_endpoint(reply=lambda request: "Paris", faults=["429", "reset"]) as endpoint:
        Endpoint(endpoint.base_url, endpoint.model)

As a process of its own, for tests that kill: `python tests/fake_endpoint.py --port N --log FILE [--delay S]`.
"""

import argparse
import contextlib
import json
import select
import socket
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from notewriter import testing
from notewriter.testing import words_of as default_reply

Reply = Callable[[dict[str, Any]], str]
Refuses = Callable[[dict[str, Any]], "Fault | None"]


@dataclass(frozen=True)
class Fault:
    """What is sent instead of a reply; `announced` is the Content-Length, by default the truth.

    A `stall` sends nothing until the caller has had enough.
    """

    status: int = 200
    body: bytes = b""
    headers: dict[str, str] = field(default_factory=dict)
    announced: int | None = None
    reset: bool = False
    stall: bool = False


def error(status: int, message: str, **headers: str) -> Fault:
    """An error as OpenAI's API words it; `Retry_After="3"` becomes the header Retry-After."""
    body = json.dumps({"error": {"message": message, "type": "error", "param": None, "code": status}}).encode()
    return Fault(status, body, {name.replace("_", "-"): value for name, value in headers.items()})


def unsupported(parameter: str, message: str, code: str = "unsupported_parameter") -> Fault:
    """A refused parameter, as OpenAI's API words it."""
    body = {"message": message, "type": "invalid_request_error", "param": parameter, "code": code}
    return Fault(400, json.dumps({"error": body}).encode())


def as_gpt5(request: dict[str, Any]) -> Fault | None:
    """What OpenAI's reasoning models refuse, one parameter at a time."""
    if "max_tokens" in request:
        return unsupported(
            "max_tokens",
            "Unsupported parameter: 'max_tokens' is not supported with this model. "
            "Use 'max_completion_tokens' instead.",
        )
    if request.get("temperature", 1) != 1:
        return unsupported(
            "temperature",
            f"Unsupported value: 'temperature' does not support {request['temperature']} with this model. "
            "Only the default (1) value is supported.",
            "unsupported_value",
        )
    for name in ("top_p", "stop"):
        if name in request:
            return unsupported(name, f"Unsupported parameter: '{name}' is not supported with this model.")
    return None


FAULTS = {
    "429": error(429, "slow down", Retry_After="0"),
    "500": error(500, "engine is dead"),
    "503": error(503, "loading"),
    "reset": Fault(reset=True),
    "stall": Fault(stall=True),
    "empty": Fault(),
    "cut": Fault(body=b'{"id": "reply", "object": "chat.completion", "choices": [{"index": 0, "mess'),
    "short": Fault(body=b'{"id": "reply", "choices": ', announced=4000),
    "no choice": Fault(body=b'{"id": "reply", "object": "chat.completion", "choices": [], "usage": null}'),
    "not an object": Fault(body=b'["reply"]'),
    "400": error(400, "This model's maximum context length is 4096 tokens. However, you requested 5000 tokens."),
    "401": error(401, "Incorrect API key provided"),
    "403": error(403, "no access to this model"),
    "404": error(404, "The model does not exist"),
}


def knowing(golds: Mapping[str, str]) -> Reply:
    """Replies of a model that knows the answers by question, so that commands have something to make data of.

    Below a temperature of 0.5 it says the answer, and a chain searches once and ends with it; else a dozen words.
    """

    def reply(request: dict[str, Any]) -> str:
        prompt, *steps = (message["content"] for message in request["messages"])
        known = [(question, gold) for question, gold in golds.items() if question in prompt]
        if known and "Thought" in prompt:
            ((question, gold),) = known
            finish, search = ("finish", {"answer": gold}), ("search", {"query": question})
            function, parameters = finish if steps else search
            return f"Thought: On we go.\nAction: {json.dumps({'function': function, 'parameters': parameters})}"
        return known[0][1] if known and request.get("temperature", 1) < 0.5 else default_reply(request)

    return reply


def pleasing(request: dict[str, Any]) -> str:
    """The reply that ends each method's loop at once, and pleases every judge."""
    if schema := request.get("response_format", {}).get("json_schema", {}).get("schema"):
        return json.dumps({name: _value(each) for name, each in schema["properties"].items()})
    prompt = request["messages"][0]["content"]
    if '"function"' in prompt:
        return 'Thought: I know.\nAction: {"function": "finish", "parameters": {"answer": "Brel"}}'
    if "finish[" in prompt:
        return "Thought: I know.\nAction: finish[Brel]"
    if "Decision:" in prompt:
        return "Explanation: It is there.\nDecision: TRUE"
    return "Yes. So the answer is: Brel"


def _value(schema: dict[str, Any]) -> Any:
    if "enum" in schema:
        return schema["enum"][-1]
    return {"string": "It is fine.", "number": 5, "integer": 5, "array": []}.get(schema.get("type"), "")


@dataclass
class FakeEndpoint:
    """What a running endpoint knows; `requests` are the bodies of all requests for a reply, in order of arrival.

    With `chat_only` it has no /v1/completions, as OpenAI's has none for its chat models. `alter` makes another reply of
    the one at a path.
    """

    base_url: str = ""
    model: str = "fake"
    owner: str = "vllm"
    refuses: Refuses = lambda request: None
    adapters: list[str] = field(default_factory=list)
    requests: list[dict[str, Any]] = field(default_factory=list)
    headers: list[dict[str, str]] = field(default_factory=list)
    most_at_once: int = 0
    chat_only: bool = False
    alter: Callable[[str, Any], Any] = lambda path, reply: reply


def completion(request: dict[str, Any], text: str, model: str) -> bytes:
    """The body of a chat completion."""
    return json.dumps(testing.completion(request, text, model)).encode()


def text_completion(request: dict[str, Any], text: str, model: str) -> bytes:
    """The body of a completion of a text without chat template."""
    return json.dumps(testing.text_completion(request, text, model)).encode()


def make_server(
    reply: Reply | None = None,
    faults: Iterable[str | Fault | None] | None = None,
    delay: float = 0.0,
    *,
    models_faults: Iterable[str | Fault | None] | None = None,
    refuses: Refuses | None = None,
    port: int = 0,
    log: Path | None = None,
) -> tuple[ThreadingHTTPServer, FakeEndpoint]:
    """A server that listens; `serve_forever` is the caller's."""
    known = FakeEndpoint() if refuses is None else FakeEndpoint(owner="system", refuses=refuses)
    pending = {"chat": iter(faults or ()), "models": iter(models_faults or ())}
    lock = threading.Lock()
    at_once = 0

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            if self.path == "/health":
                self.send(Fault())
            elif self.path == "/v1/models":
                names = [known.model, *known.adapters]
                data = [{"id": name, "object": "model", "created": 0, "owned_by": known.owner} for name in names]
                models = {"object": "list", "data": data}
                body = json.dumps(known.alter(self.path, models)).encode()
                self.send(self.next_fault("models") or Fault(body=body))
            else:
                self.send(FAULTS["404"])

        def do_POST(self) -> None:
            nonlocal at_once
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            write = {"/v1/chat/completions": completion, "/v1/completions": text_completion}.get(self.path)
            if write is None or (known.chat_only and write is text_completion):
                self.send(FAULTS["404"])
                return
            with lock:
                known.requests.append(request)
                known.headers.append({name.lower(): value for name, value in self.headers.items()})
                at_once += 1
                known.most_at_once = max(known.most_at_once, at_once)
            try:
                time.sleep(delay)
                fault = self.next_fault("chat") or known.refuses(request)
                if fault is not None:
                    self.send(fault)
                elif not self.caller_is_gone():
                    asked = {"messages": [{"role": "user", "content": request.get("prompt")}], **request}
                    try:
                        text = (reply or default_reply)(asked)
                    except Exception as problem:
                        # A mistake in the test's own `reply` must not look like a fault.
                        self.send(error(422, f"reply(request) raised {problem!r}"))
                        return
                    if log is not None:
                        with lock, open(log, "a", encoding="utf-8") as file:
                            file.write(json.dumps(request, sort_keys=True) + "\n")
                    body = known.alter(self.path, json.loads(write(asked, text, known.model)))
                    self.send(Fault(body=json.dumps(body).encode()))
            finally:
                with lock:
                    at_once -= 1

        def next_fault(self, kind: str) -> Fault | None:
            with lock:
                fault = next(pending[kind], None)
            return FAULTS[fault] if isinstance(fault, str) else fault

        def caller_is_gone(self) -> bool:
            readable, _, _ = select.select([self.connection], [], [], 0)
            return bool(readable) and self.connection.recv(1, socket.MSG_PEEK) == b""

        def send(self, fault: Fault) -> None:
            if fault.stall:
                select.select([self.connection], [], [], 60)
                self.close_connection = True
                return
            if fault.reset:
                self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                self.close_connection = True
                # The handler's own shutdown would be a polite end; closing at once makes it a reset.
                self.connection.close()
                return
            self.send_response(fault.status)
            for name, value in {"Content-Type": "application/json", **fault.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(fault.body) if fault.announced is None else fault.announced))
            self.end_headers()
            self.wfile.write(fault.body)
            self.close_connection = self.close_connection or fault.announced is not None

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            """A caller that was killed or that gave up is no news."""

    server = Server(("127.0.0.1", port), Handler)
    known.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    return server, known


@contextlib.contextmanager
def fake_endpoint(
    reply: Reply | None = None,
    faults: Iterable[str | Fault | None] | None = None,
    delay: float = 0.0,
    *,
    models_faults: Iterable[str | Fault | None] | None = None,
    refuses: Refuses | None = None,
) -> Iterator[FakeEndpoint]:
    """An endpoint while the block runs.

    `reply` writes the text from the request's body. `faults` are used up one a chat request, in order of
    arrival (names of `FAULTS`, a `Fault`, or None for a good reply); after the last one all is well.
    `models_faults` do the same for the list of models. `refuses` is a provider's rule for parameters (`as_gpt5`,
    `as_claude`); without one the endpoint is as vLLM, which takes all. `delay` is in seconds a chat request.
    """
    server, known = make_server(reply, faults, delay, models_faults=models_faults, refuses=refuses)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--log", type=Path, help="gets a line (the request's body) for every reply")
    parser.add_argument("--delay", type=float, default=0.0, help="seconds before each reply")
    arguments = parser.parse_args()
    server, known = make_server(delay=arguments.delay, port=arguments.port, log=arguments.log)
    # Nobody can ask this process what it was sent, and a benchmark sends it a great deal.
    known.requests, known.headers = deque(maxlen=0), deque(maxlen=0)
    server.serve_forever()


if __name__ == "__main__":
    main()
