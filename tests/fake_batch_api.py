"""A local stand-in for a batch API of OpenAI's form, whose replies are a function of the request.

with fake_batch_api() as api:
    Endpoint(api.base_url, "fake", batch=True)
"""

import contextlib
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from fake_endpoint import completion, default_reply
from json_service import Answer, Request, json_service

Line = dict[str, Any] | str
"""A line of an output file; text stands for itself."""


@dataclass
class FakeBatchApi:
    """What the service knows and how it behaves.

    `polls` is how often a batch is looked at before it ends, with `end` as its status. With `empty_files` it also has
    the output and error files that have no lines. `outcome` makes the line for a
    request's custom id and body, or None to leave it out. `faults` are answered before anything else, once each, to
    the first request whose method and path begin with the key. `at_once` is the reply to a request outside of batches.
    """

    base_url: str = ""
    polls: int = 0
    end: str = "completed"
    empty_files: bool = False
    at_once: str = ""
    outcome: Callable[[str, dict[str, Any]], Line | None] | None = None
    faults: list[tuple[str, Answer]] = field(default_factory=list)
    files: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    batches: dict[str, dict[str, Any]] = field(default_factory=dict)
    calls: Counter[str] = field(default_factory=Counter)
    outputs: dict[str, bytes] = field(default_factory=dict)

    @property
    def sizes(self) -> list[int]:
        """The number of requests of each batch."""
        return [len(self.files[batch["input_file_id"]]) for batch in self.batches.values()]

    def answer(self, request: Request) -> object:
        path = request.path.removeprefix("/v1").split("?")[0]
        call = f"{request.method} {path}"
        self.calls[call] += 1
        for fault in self.faults:
            if call.startswith(fault[0]):
                self.faults.remove(fault)
                if fault[1].headers.get("X-After"):
                    # The request takes effect, and only its reply is lost.
                    self.act(request, call)
                return fault[1]
        return self.act(request, call)

    def act(self, request: Request, call: str) -> object:
        if call == "GET /models":
            return {"object": "list", "data": [{"id": "fake", "object": "model", "created": 0, "owned_by": "vllm"}]}
        if call == "POST /files":
            lines = re.findall(rb'^\{"custom_id".*\}\r?$', request.body, re.MULTILINE)
            file = f"file-{len(self.files)}"
            self.files[file] = [json.loads(line) for line in lines]
            return {"id": file, "object": "file", "purpose": "batch", "filename": "f", "bytes": 1, "created_at": 0}
        if call == "POST /batches":
            batch = {"id": f"batch_{len(self.batches)}", "object": "batch", "created_at": 0, "status": "in_progress"}
            self.batches[batch["id"]] = batch | request.json | {"polls": 0}
            return self.state(batch["id"])
        if call == "GET /batches":
            return {"object": "list", "data": [self.state(id) for id in reversed(self.batches)], "has_more": False}
        if call.startswith("GET /batches/"):
            id = call.removeprefix("GET /batches/")
            if id not in self.batches:
                return Answer(404, {"error": {"message": f"no batch {id}"}})
            batch = self.batches[id]
            batch["polls"] += 1
            if batch["polls"] > self.polls:
                self.finish(batch)
            return self.state(id)
        if call.startswith("GET /files/") and call.endswith("/content"):
            return Answer(body=self.outputs[call.split("/")[2]], headers={"Content-Type": "application/octet-stream"})
        if call == "POST /chat/completions" and self.at_once:
            return json.loads(completion(request.json, self.at_once, "fake"))
        return Answer(404, {"error": {"message": f"unknown: {call}"}})

    def state(self, id: str) -> dict[str, Any]:
        batch = {key: value for key, value in self.batches[id].items() if key != "polls"}
        total = len(self.files[batch["input_file_id"]])
        done = total if batch["status"] == "completed" else 0
        return batch | {"request_counts": {"total": total, "completed": done, "failed": 0}}

    def finish(self, batch: dict[str, Any]) -> None:
        batch["status"] = self.end
        good, bad = [], []
        for request in self.files[batch["input_file_id"]]:
            line = (self.outcome or self.reply)(request["custom_id"], request["body"])
            if isinstance(line, dict):
                failed = line["response"] is None or line["response"]["status_code"] != 200
                (bad if failed else good).append(json.dumps(line))
            elif line is not None:
                good.append(line)
        for name, lines in (("output", good), ("error", bad)):
            if lines or self.empty_files:
                batch[f"{name}_file_id"] = f"{name}-{batch['id']}"
                self.outputs[batch[f"{name}_file_id"]] = "".join(f"{each}\n" for each in lines).encode()
        if self.end == "failed":
            batch["errors"] = {"object": "list", "data": [{"code": "token_limit", "message": "too many tokens"}]}

    @staticmethod
    def reply(custom_id: str, body: dict[str, Any]) -> Line:
        return line(custom_id, 200, json.loads(completion(body, default_reply(body), "fake")))


def line(custom_id: str, status: int, body: object) -> dict[str, Any]:
    response = {"status_code": status, "request_id": "r", "body": body}
    return {"id": "x", "custom_id": custom_id, "response": response, "error": None}


def expired(custom_id: str) -> dict[str, Any]:
    error = {"code": "batch_expired", "message": "This request could not be executed before the window expired."}
    return {"id": "x", "custom_id": custom_id, "response": None, "error": error}


@contextlib.contextmanager
def fake_batch_api(**behaviour: Any) -> Iterator[FakeBatchApi]:
    """The service while the block runs."""
    api = FakeBatchApi(**behaviour)
    with json_service(api.answer) as service:
        api.base_url = f"{service.url}/v1"
        yield api
