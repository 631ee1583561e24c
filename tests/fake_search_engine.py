"""A stand-in for Elasticsearch and OpenSearch: the part of their documented REST API that is used here.

A query counts words instead of computing BM25.
"""

import contextlib
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from json_service import Answer, Request, Service, json_service


@dataclass
class FakeSearchEngine:
    """An index `wiki` of `documents` by id, which has a `uuid`; `fault` may answer first."""

    documents: dict[str, dict[str, Any]]
    uuid: str = "Kq1x"
    changes: int = 3
    fault: Callable[[Request], Answer | None] = lambda request: None
    service: Service = field(default_factory=Service)

    @property
    def url(self) -> str:
        return self.service.url

    def answer(self, request: Request) -> Answer:
        if fault := self.fault(request):
            return fault
        name, _, action = request.path.strip("/").partition("/")
        if name != "wiki":
            return Answer(404, {"error": {"reason": f"no such index [{name}]"}, "status": 404})
        if (request.method, action) == ("GET", "_stats/docs?level=shards"):
            # The replica lags behind.
            copies = [{"seq_no": {"max_seq_no": each, "local_checkpoint": each}} for each in (0, self.changes)]
            docs = {"docs": {"count": len(self.documents), "deleted": 0}}
            return Answer(200, {"indices": {name: {"uuid": self.uuid, "primaries": docs, "shards": {"0": copies}}}})
        if (request.method, action) == ("POST", "_search"):
            return Answer(200, self.search(request.json))
        return Answer(400, {"error": f"not part of the stand-in: {request.method} {request.path}"})

    def search(self, asked: dict[str, Any]) -> Any:
        match = asked["query"].get("multi_match")
        assert match is None or match["type"] == "most_fields"

        def score(document: dict[str, Any]) -> int:
            text = " ".join(str(_value(document, name)).lower() for name in match["fields"]) if match else ""
            return sum(re.findall(r"\w+", text).count(word) for word in match["query"].split()) if match else 1

        scored = [(score(document), id, document) for id, document in self.documents.items()]
        hits = sorted((each for each in scored if each[0]), key=lambda each: -each[0])[: asked["size"]]
        top = {name.split(".")[0] for name in asked["_source"]}
        return {
            "hits": {
                "hits": [
                    {"_id": id, "_score": score, "_source": {name: each[name] for name in top if name in each}}
                    for score, id, each in hits
                ]
            }
        }


def _value(document: Any, name: str) -> Any:
    for key in name.split("."):
        document = document.get(key, "")
    return document


@contextlib.contextmanager
def fake_search_engine(documents: dict[str, dict[str, Any]]) -> Iterator[FakeSearchEngine]:
    engine = FakeSearchEngine(documents)
    with json_service(engine.answer) as service:
        engine.service = service
        yield engine
