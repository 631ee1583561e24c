"""A stand-in for Elasticsearch and OpenSearch: the part of their documented REST API that the clients use here.

Queries are answered from memory: `match` counts words instead of computing BM25, kNN is exact.
"""

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from json_service import Answer, Request, Service, json_service

HEADERS = {"X-Elastic-Product": "Elasticsearch"}
"""Without it the official client of Elasticsearch refuses a server."""


@dataclass
class FakeSearchEngine:
    """`indexes` are bodies of created indexes by name, `documents` what they hold by id; `fault` may answer first."""

    service: Service = field(default_factory=Service)
    indexes: dict[str, Any] = field(default_factory=dict)
    documents: dict[str, dict[str, Any]] = field(default_factory=dict)
    fault: Callable[[Request], Answer | None] = lambda request: None

    @property
    def url(self) -> str:
        return self.service.url

    def answer(self, request: Request) -> Answer:
        if fault := self.fault(request):
            return Answer(fault.status, fault.body, HEADERS | fault.headers, fault.late, fault.drop)
        status, body = self.respond(request.method, request.path.split("?")[0].strip("/"), request.body)
        accepted = request.headers.get("accept", "")
        kind = {"Content-Type": accepted} if accepted.startswith("application/vnd.elasticsearch") else {}
        return Answer(status, body, HEADERS | kind)

    def respond(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        name, _, action = path.partition("/")
        if action == "_bulk" or name == "_bulk":
            return 200, {"errors": False, "items": self.bulk(body)}
        if method == "PUT" and not action:
            self.indexes[name] = json.loads(body)
            return 200, {"acknowledged": True, "index": name}
        if name not in self.indexes:
            return 404, {"error": {"type": "index_not_found_exception", "reason": f"no such index [{name}]"}}
        if method == "HEAD":
            return 200, b""
        if action == "_mapping":
            return 200, {name: {"mappings": self.indexes[name]["mappings"]}}
        if action == "_refresh":
            return 200, {"_shards": {"failed": 0}}
        if action == "_count":
            return 200, {"count": len(self.documents)}
        if action == "_search":
            return 200, self.search(json.loads(body))
        return 400, {"error": f"not part of the stand-in: {method} {path}"}

    def bulk(self, body: bytes) -> list[Any]:
        lines = [json.loads(line) for line in body.splitlines() if line.strip()]
        items = []
        for action, document in zip(lines[::2], lines[1::2], strict=True):
            known = set(self.indexes[action["index"]["_index"]]["mappings"]["properties"])
            assert set(document) <= known, "the mapping is strict"
            self.documents[action["index"]["_id"]] = document
            items.append({"index": {"_id": action["index"]["_id"], "status": 201}})
        return items

    def search(self, asked: dict[str, Any]) -> Any:
        if "aggs" in asked:
            positions = [document["position"] for document in self.documents.values()]
            return {"hits": {"hits": []}, "aggregations": {"last": {"value": max(positions, default=None)}}}
        knn = asked.get("knn") or asked["query"].get("knn", {}).get("embedding")
        if knn:
            vector, count = knn.get("query_vector") or knn["vector"], knn["k"]

            def score(document: dict[str, Any]) -> float:
                return sum(x * y for x, y in zip(vector, document["embedding"], strict=True))

            restriction = knn.get("filter")
        else:
            query, count = asked["query"]["bool"], asked["size"]
            restriction = query.get("filter")

            def score(document: dict[str, Any]) -> float:
                return sum(
                    re.findall(r"\w+", document[name].lower()).count(word)
                    for clause in query["should"]
                    for name, words in clause["match"].items()
                    for word in words.split()
                )

        scored = [
            (score(document), document["position"], id, document)
            for id, document in self.documents.items()
            if self.inside(id, document, restriction)
        ]
        hits = sorted((each for each in scored if knn or each[0] > 0), key=lambda each: (-each[0], each[1]))
        return {
            "hits": {
                "hits": [
                    {"_id": id, "_score": score, "_source": {"title": each["title"], "text": each["text"]}}
                    for score, _, id, each in hits[: min(count, asked["size"])]
                ]
            }
        }

    def inside(self, id: str, document: dict[str, Any], restriction: Any) -> bool:
        if restriction is None:
            return True
        ids, titles = restriction["bool"]["should"]
        return id in ids["ids"]["values"] or document["title"] in titles["terms"]["title.exact"]


@contextlib.contextmanager
def fake_search_engine() -> Iterator[FakeSearchEngine]:
    engine = FakeSearchEngine()
    with json_service(engine.answer) as service:
        engine.service = service
        yield engine
