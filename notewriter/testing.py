"""For authors of methods, judges and pipelines: a rollout and an endpoint whose replies a test writes.

def reply(stage, variables):
    return "Mira" if stage == "answer" else "a note"

rollout = ScriptedRollout("two_looks", reply)
assert asyncio.run(two_looks("Who?", rollout)) == "Mira"
assert rollout.stages == ["note", "query", "note", "answer"]

with scripted_endpoint(lambda request: "Mira") as endpoint:
    ...  # notewriter evaluate --base_url {endpoint.base_url} --model {endpoint.model}
"""

import contextlib
import copy
import hashlib
import json
import math
import random
import re
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import MappingProxyType
from typing import Any

from notewriter.data.judges.case import Case, Rules
from notewriter.ground.records import Completion, Passage, Question
from notewriter.methods import METHODS
from notewriter.rollouts.controls import Control
from notewriter.rollouts.method import Stage
from notewriter.rollouts.prompts import Prompts
from notewriter.rollouts.resources import Resources
from notewriter.rollouts.rollout import Rollout

WORDS = ("Mira", "Tolen", "Osk", "river", "founded", "bridge", "keeper", "1871", "bore", "town", "before", "whose")

StageReply = Callable[[str, dict[str, Any]], str]
"""Writes a completion from the stage (without the method's name) and the variables of its prompt."""

RequestReply = Callable[[dict[str, Any]], str]
"""Writes a completion from the body of a request."""


class ScriptedRollout(Rollout):
    """A rollout without model and index. Every prompt is rendered, so that one that lacks a variable fails.

    Args:
        method: the method's name, as on the command line.
        reply: writes a completion, or the completions in their order.
        search: names the passages for a query and top-k; the text of a passage is its name.
        controls: what plays roles without a model, by role.
    """

    def __init__(
        self,
        method: str,
        reply: StageReply | Iterable[str],
        search: Callable[[str, int], list[str]] | None = None,
        controls: Mapping[str, Control] = MappingProxyType({}),
    ) -> None:
        name = METHODS[method].name if method in METHODS else method
        super().__init__(Question("q", "Who?", ("Mira",)), name, Resources({}, Prompts(), controls=controls))
        replies = iter(()) if callable(reply) else iter(reply)
        self._reply = reply if callable(reply) else lambda stage, variables: next(replies)
        self._search = search or (lambda query, top_k: [f"{query}.{place}" for place in range(top_k)])
        self.calls: list[tuple[str, str, dict[str, Any]]] = []
        """Stage, role and variables of every call, in order."""
        self.searches: list[tuple[str, int]] = []

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """Passages by the script."""
        self.searches.append((query, top_k))
        return [Passage(name, f"title {name}", name) for name in self._search(query, top_k)]

    async def generate(
        self, stage: Stage, *, stop: Any = (), json_schema: Any = None, sample: int = 0, **variables: Any
    ) -> str:
        """A completion by the script, cut at the stop strings; a control writes its own."""
        if stage.role in self.resources.controls:
            return await super().generate(stage, sample=sample, **variables)
        self.resources.prompts.render(stage.name, **variables)
        method, name = stage.name.split("/")
        assert method == self.trace.method, f"{stage.name} is a stage of another method than {self.trace.method}"
        # A method may go on to add to its lists.
        self.calls.append((name, stage.role, copy.deepcopy(variables)))
        text = self._reply(name, variables)
        for mark in stop:
            text = text.partition(mark)[0]
        return text if stage.continues else text.strip()

    async def generate_tokens(self, stage: Stage, *, max_tokens: int, **variables: Any) -> list[tuple[str, float]]:
        """A reply's words as tokens; the probability of each is 1, or what stands behind a tilde: `Osk~0.3`."""
        text = await self.generate(stage, **variables)
        split = [word.partition("~") for word in re.findall(r"\s*\S+", text)]
        return [(word, math.log(float(probability or 1))) for word, _, probability in split]

    async def score(self, stage: Stage, reply: str, **variables: Any) -> Completion:
        """A completion whose only token is `reply`, with the log-probability that the script replies."""
        return Completion("", "length", 0, 0, 0, 0.0, [(reply, float(await self.generate(stage, **variables)))])

    @property
    def stages(self) -> list[str]:
        """The stages in the order in which they were called."""
        return [stage for stage, _, _ in self.calls]

    @property
    def roles(self) -> dict[str, str]:
        """The role of each stage."""
        return {stage: role for stage, role, _ in self.calls}

    def variables(self, stage: str) -> list[dict[str, Any]]:
        """The variables of each prompt of a stage; passages by their names."""
        return [
            {key: [passage.id for passage in value] if key == "passages" else value for key, value in variables.items()}
            for name, _, variables in self.calls
            if name == stage
        ]


def case_of(candidates: Sequence[str], question: Question, **changes: Any) -> Case:
    """A case for a judge that compares texts alone; `changes` replace fields of `Case`, such as `search` or `ask`."""

    async def nothing(*arguments: Any, **variables: Any) -> Any:
        raise AssertionError("the judge asks a model, searches or rolls out: give case_of ask=, search= or finish=")

    case = Case(
        question=question,
        kind="note",
        stage="deepnote/init_note",
        request="Write a note.",
        variables={"question": question.question, "passages": []},
        options={},
        seen={},
        candidates=candidates,
        cut=[False] * len(candidates),
        ask=nothing,
        reader=Resources({}, Prompts()),
        search=nothing,
        finish=nothing,
        next_query=nothing,
        random=random.Random(0),
        rules=Rules(),
    )
    return replace(case, **changes)


@dataclass
class ScriptedEndpoint:
    """A running endpoint: where it is, the name of its model, and the bodies of all requests so far."""

    base_url: str = ""
    model: str = "scripted"
    requests: list[dict[str, Any]] = field(default_factory=list)


@contextlib.contextmanager
def scripted_endpoint(reply: RequestReply | None = None) -> Iterator[ScriptedEndpoint]:
    """An OpenAI-compatible endpoint while the block runs; by default it replies with `words_of` a request."""
    endpoint = ScriptedEndpoint()
    write = reply or words_of

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_GET(self) -> None:
            model = {"id": endpoint.model, "object": "model", "created": 0, "owned_by": "vllm"}
            self.send({"object": "list", "data": [model]})

        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            endpoint.requests.append(request)
            chat = self.path.endswith("/chat/completions")
            messages = request["messages"] if chat else [{"role": "user", "content": request["prompt"]}]
            asked = {**request, "messages": messages}
            self.send((completion if chat else text_completion)(asked, write(asked), endpoint.model))

        def send(self, reply: dict[str, Any]) -> None:
            body = json.dumps(reply).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    endpoint.base_url = f"http://127.0.0.1:{server.server_address[1]}/v1"
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
    try:
        yield endpoint
    finally:
        server.shutdown()
        server.server_close()


def words_of(request: dict[str, Any]) -> str:
    """A dozen words drawn by the hash of a request: the same request, the same words."""
    digest = hashlib.sha256(json.dumps(request, sort_keys=True).encode()).digest()
    return " ".join(WORDS[byte % len(WORDS)] for byte in digest[:12])


def completion(request: dict[str, Any], text: str, model: str) -> dict[str, Any]:
    """A chat completion with its usage; a word is a token, and what exceeds `max_tokens` is cut."""
    words = text.split()
    limit = request.get("max_tokens") or request.get("max_completion_tokens") or len(words) + 1
    prompt_tokens = sum(len(str(message["content"]).split()) for message in request["messages"])
    choice = {
        "index": 0,
        "message": {"role": "assistant", "content": text if len(words) <= limit else " ".join(words[:limit])},
        "finish_reason": "stop" if len(words) <= limit else "length",
        "logprobs": {"content": _tokens(text)} if request.get("logprobs") else None,
    }
    usage = {"prompt_tokens": prompt_tokens, "completion_tokens": min(len(words), limit)}
    reply = {
        "id": "reply",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [choice],
        "usage": usage | {"total_tokens": sum(usage.values())},
    }
    if request.get("return_prompt_text"):
        reply["prompt_text"] = prompt_text(request["messages"])
    if "prompt_logprobs" in request:
        prompt = _tokens(" ".join(message["content"] for message in request["messages"]))
        reply["prompt_logprobs"] = [
            None,
            *({"7": {"logprob": each["logprob"], "rank": 1, "decoded_token": each["token"]}} for each in prompt[1:]),
        ]
    return reply


def text_completion(request: dict[str, Any], text: str, model: str) -> dict[str, Any]:
    """A completion of a text without chat template, as `completion` is one of a chat."""
    reply = completion(request, text, model)
    (choice,) = reply["choices"]
    tokens = _tokens(text)
    logprobs = {
        "tokens": [each["token"] for each in tokens],
        "token_logprobs": [each["logprob"] for each in tokens],
        "top_logprobs": [{each["token"]: each["logprob"]} for each in tokens],
        "text_offset": [],
    }
    choice |= {"text": choice.pop("message")["content"], "logprobs": logprobs if request.get("logprobs") else None}
    return reply | {"object": "text_completion"}


def prompt_text(messages: Iterable[Mapping[str, str]]) -> str:
    """The prompt that the endpoint makes of messages, as vLLM says it at `return_prompt_text`."""
    return "".join(f"<{each['role']}>{each['content']}\n" for each in messages) + "<assistant>"


def _tokens(text: str) -> list[dict[str, Any]]:
    """A word is a token; the longer it is, the less likely. The only likely token is the word itself."""
    tokens = [{"token": f" {word}", "logprob": -0.1 * len(word), "bytes": None} for word in text.split()]
    return [{**token, "top_logprobs": [token]} for token in tokens]
