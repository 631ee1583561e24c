"""A model hub on this machine: repositories with branches, large files, and faults on demand."""

import base64
import hashlib
import json
import re
import socket
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import unquote, urlsplit

REPO = "someone/notes-135m"
TOKEN = "hf_" + "abcdefghij" * 3
LARGE = (".safetensors", ".parquet")
"""Names of files that go into the storage for large files."""


@dataclass
class Stored:
    """A repository: branch -> path -> content, and the commits in order."""

    private: bool
    branches: dict[str, dict[str, bytes]] = field(default_factory=lambda: {"main": {}})
    commits: list[tuple[str, list[dict[str, Any]]]] = field(default_factory=list)


class Hub(ThreadingHTTPServer):
    """What arrived, and every request that was made.

    `faults` are pairs of the beginning of a request such as `PUT /storage/` and what happens to the next request that
    begins so: a status, `reset` (the connection is cut in the middle of the body) or `lost` (it takes effect, and the
    connection is cut before the reply).
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.requests: list[str] = []
        self.authorizations: set[str | None] = set()
        self.created: dict[str, Any] = {}
        self.objects: dict[str, bytes] = {}
        self.repositories: dict[tuple[str, str], Stored] = {}
        self.there: list[str] = []
        self.private: bool | None = None
        self.refusal: int | None = None
        self.faults: list[tuple[str, int | str]] = []

    def handle_error(self, *_: object) -> None:
        """Connections are cut on purpose."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def commits(self) -> list[list[dict[str, Any]]]:
        """The lines of every commit to any repository."""
        return [lines for repository in self.repositories.values() for _, lines in repository.commits]

    def arrived(self, repo: str = REPO, kind: str = "model", branch: str = "main") -> dict[str, bytes]:
        """Path -> content of the files of a branch."""
        return self.repositories[kind, repo].branches[branch]

    def repository(self, kind: str, repo: str) -> Stored:
        """A repository; it exists from the first look at it, with the files `there`."""
        if (kind, repo) not in self.repositories:
            private = self.created.get("visibility", "private") == "private" if self.private is None else self.private
            self.repositories[kind, repo] = Stored(private, {"main": dict.fromkeys(self.there, b"earlier")})
        return self.repositories[kind, repo]

    def fault(self, request: str) -> int | str | None:
        """The fault that this request meets, if any; each is met once."""
        for number, (beginning, fault) in enumerate(self.faults):
            if request.startswith(beginning):
                del self.faults[number]
                return fault
        return None


class Handler(BaseHTTPRequestHandler):
    server: Hub
    lost = False

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
        self._send(json.dumps(record).encode(), {"Content-Type": "application/json"}, status)

    def _send(self, body: bytes, headers: dict[str, str], status: int = 200) -> None:
        if self.lost:
            self._cut()
            return
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def _cut(self) -> None:
        """Close with a reset instead of the orderly end of a connection."""
        self.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.close_connection = True
        self.connection.close()

    @contextmanager
    def _noted(self) -> Iterator[bytes | None]:
        """The body of a request; None where a fault has already answered it."""
        request = f"{self.command} {self.path}"
        self.server.requests.append(request)
        if not self.path.startswith("/storage/"):
            self.server.authorizations.add(self.headers.get("Authorization"))
        fault = self.server.fault(request)
        self.lost = fault == "lost"
        if fault == "reset":
            self.rfile.read(int(self.headers.get("Content-Length", 0)) // 2)
            self._cut()
            yield None
            return
        body = self._body()
        if isinstance(fault, int):
            self._reply({"error": "a fault"}, fault)
            yield None
        else:
            yield body

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self._noted() as body:
            if body is not None:
                self._get(urlsplit(self.path).path)

    def _get(self, path: str) -> None:
        if found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            repository = self.server.repository(found[1], found[2])
            files = files_at(repository, found[3] or "main")
            siblings = [{"rfilename": name} for name in files]
            self._reply(
                {
                    **{"id": found[2], "modelId": found[2], "sha": commit_of(files), "private": repository.private},
                    **{"siblings": siblings, "tags": []},
                }
            )
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/tree/(.+)", path):
            files = files_at(self.server.repository(found[1], found[2]), found[3])
            entries = [{"type": "file", "path": name, "size": len(content)} for name, content in files.items()]
            self._reply([entry | {"oid": "0" * 40} for entry in entries])
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            kind = "dataset" if found[1] else "model"
            files = files_at(self.server.repository(kind, found[2]), found[3])
            content = files[unquote(found[4])]
            etag = f'"{hashlib.sha256(content).hexdigest()}"'
            self._send(content, {"ETag": etag, "X-Repo-Commit": commit_of(files), "Accept-Ranges": "bytes"})
        else:
            self._reply({"error": "no such endpoint"}, 404)

    def do_PUT(self) -> None:
        with self._noted() as body:
            if body is not None:
                self.server.objects[self.path.removeprefix("/storage/")] = body
                self._reply({})

    def do_POST(self) -> None:
        with self._noted() as body:
            if body is not None:
                self._post(body)

    def _post(self, body: bytes) -> None:
        path = urlsplit(self.path).path
        if self.server.refusal:
            self._reply({"error": "You don't have the rights"}, self.server.refusal)
        elif path == "/api/repos/create":
            self.server.created = json.loads(body)
            repo = f"{self.server.created['organization']}/{self.server.created['name']}"
            known = (self.server.created.get("type", "model"), repo)
            self.server.repository(*known)
            self._reply({"url": f"{self.server.endpoint}/{repo}"})
        elif path == "/api/validate-yaml":
            self._reply({"errors": [], "warnings": []})
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/branch/(.+)", path):
            branches = self.server.repository(found[1], found[2]).branches
            known = unquote(found[3]) in branches
            branches.setdefault(unquote(found[3]), dict(branches["main"]))
            self._reply({"error": "exists"} if known else {}, 409 if known else 200)
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/preupload/(.+)", path):
            files = self.server.repository(found[1], found[2]).branches[unquote(found[3])]
            self._reply({"files": [_mode(file["path"], files) for file in json.loads(body)["files"]]})
        elif re.fullmatch(r"/(datasets/)?[^/]+/[^/]+\.git/info/lfs/objects/batch", path):
            objects = [
                item
                if item["oid"] in self.server.objects
                else item | {"actions": {"upload": {"href": f"{self.server.endpoint}/storage/{item['oid']}"}}}
                for item in json.loads(body)["objects"]
            ]
            self._reply({"transfer": "basic", "objects": objects})
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/commit/(.+)", path):
            repository = self.server.repository(found[1], found[2])
            self._commit(repository, unquote(found[3]), [json.loads(line) for line in body.splitlines()])
        else:
            self._reply({"error": "no such endpoint"}, 404)

    def _commit(self, repository: Stored, branch: str, lines: list[dict[str, Any]]) -> None:
        repository.commits.append((branch, lines))
        files = repository.branches[branch]
        for line in lines:
            value = line["value"]
            if line["key"] == "file":
                files[value["path"]] = base64.b64decode(value["content"])
            elif line["key"] == "lfsFile":
                files[value["path"]] = self.server.objects[value["oid"]]
            elif line["key"] == "deletedFile":
                del files[value["path"]]
        commit = commit_of(files)
        self._reply({"commitUrl": f"{self.server.endpoint}/{REPO}/commit/{commit}", "commitOid": commit})


def files_at(repository: Stored, revision: str) -> dict[str, bytes]:
    """The files of a repository at a branch or a commit."""
    branches, revision = repository.branches, unquote(revision)
    return branches.get(revision) or next(each for each in branches.values() if commit_of(each) == revision)


def commit_of(files: dict[str, bytes]) -> str:
    """A commit's id, here by its content."""
    digest = hashlib.sha1()
    for name, content in sorted(files.items()):
        digest.update(name.encode() + b"\0" + content)
    return digest.hexdigest()


def _mode(path: str, files: dict[str, bytes]) -> dict[str, Any]:
    large = path.endswith(LARGE)
    file: dict[str, Any] = {"path": path, "uploadMode": "lfs" if large else "regular", "shouldIgnore": False}
    if path in files:
        content = files[path]
        blob = b"blob %d\0" % len(content) + content
        file["oid"] = hashlib.sha256(content).hexdigest() if large else hashlib.sha1(blob).hexdigest()
    return file
