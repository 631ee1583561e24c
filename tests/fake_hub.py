"""A model hub on this machine: one repository, and the endpoints that an upload uses."""

import base64
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

REPO = "someone/notes-135m"


class Hub(ThreadingHTTPServer):
    """One repository: what arrived, by path, and every request that was made."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.created: dict[str, Any] = {}
        self.objects: dict[str, bytes] = {}
        self.commits: list[list[dict[str, Any]]] = []
        self.there: list[str] = []
        self.private = True
        self.refusal: int | None = None

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    def arrived(self) -> dict[str, bytes]:
        """Path -> content of the files in the only commit."""
        (commit,) = self.commits
        files = {}
        for line in commit:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.objects[value["oid"]]
        return files


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def log_message(self, *_: object) -> None:
        """Keep the tests' output clean."""

    def _body(self) -> bytes:
        if self.headers.get("Transfer-Encoding") == "chunked":
            body = b""
            while size := int(self.rfile.readline(), 16):
                body += self.rfile.read(size)
                self.rfile.readline()
            self.rfile.readline()
            return body
        return self.rfile.read(int(self.headers.get("Content-Length", 0)))

    def _reply(self, record: Any, status: int = 200) -> None:
        body = json.dumps(record).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _note(self) -> None:
        self.server.requests.append(f"{self.command} {self.path}")
        if not self.path.startswith("/storage/"):
            self.server.authorizations.add(self.headers.get("Authorization"))

    def do_GET(self) -> None:
        self._note()
        assert self.path == f"/api/models/{REPO}"
        siblings = [{"rfilename": name} for name in self.server.there]
        self._reply({"id": REPO, "modelId": REPO, "private": self.server.private, "siblings": siblings, "tags": []})

    def do_PUT(self) -> None:
        self._note()
        content = self._body()
        self.server.objects[self.path.removeprefix("/storage/")] = content
        self._reply({})

    def do_POST(self) -> None:
        self._note()
        body = self._body()
        if self.server.refusal:
            self._reply({"error": "You don't have the rights"}, self.server.refusal)
        elif self.path == "/api/repos/create":
            self.server.created = json.loads(body)
            self._reply({"url": f"{self.server.endpoint}/{REPO}"})
        elif self.path == "/api/validate-yaml":
            self._reply({"errors": [], "warnings": []})
        elif self.path == f"/api/models/{REPO}/preupload/main":
            files = json.loads(body)["files"]
            modes = {file["path"]: "lfs" if file["path"].endswith(".safetensors") else "regular" for file in files}
            self._reply(
                {"files": [{"path": path, "uploadMode": mode, "shouldIgnore": False} for path, mode in modes.items()]}
            )
        elif self.path == f"/{REPO}.git/info/lfs/objects/batch":
            objects = [
                item | {"actions": {"upload": {"href": f"{self.server.endpoint}/storage/{item['oid']}"}}}
                for item in json.loads(body)["objects"]
            ]
            self._reply({"transfer": "basic", "objects": objects})
        elif self.path == f"/api/models/{REPO}/commit/main":
            self.server.commits.append([json.loads(line) for line in body.splitlines()])
            self._reply({"commitUrl": f"{self.server.endpoint}/{REPO}/commit/{'0' * 40}", "commitOid": "0" * 40})
        else:
            self._reply({"error": "no such endpoint"}, 404)
