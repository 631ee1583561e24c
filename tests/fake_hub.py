"""A model hub on this machine: repositories with branches, large files, and faults on demand.

It also stands for every other server: what `publish` puts at `https://HOST/PATH` is served at `/HOST/PATH`, where
NOTEWRITER_MIRROR leads. `notewriter fetch` reads from it in a process of its own as well:

    with serving() as hub:
        hub.publish("hf://datasets/google/frames-benchmark@main/test.tsv", b"...")
        hub.publish("https://raw.githubusercontent.com/someone/something/main/dev.json", b"...")
        env = os.environ | hub.environment(folder)
        subprocess.run(["notewriter", "fetch", "dataset", "frames", "--check", "false"], env=env)

`--check false`, since what a test publishes has neither the size nor the questions of the original.
"""

import base64
import gzip
import hashlib
import io
import json
import re
import socket
import struct
import tarfile
import threading
import time
import zipfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from notewriter.ground.releases import Release

REPO = "someone/notes-135m"
TOKEN = "hf_" + "abcdefghij" * 3
CHUNK = 1 << 16
LARGE = (".safetensors", ".parquet", ".gz", "part_aa", "part_ab")
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
    begins so: a status, `reset` (the connection is cut in the middle of the body), `lost` (it takes effect, and the
    connection is cut before the reply) or `half` (it is cut in the middle of the reply).

    `moved` has old and new names of repositories, `gated` those that need a token. With `is_proxy` every answer is a
    web page. `served` counts the bytes of files that were sent, `ranges` has what was asked of them, `pace` is a pause
    in seconds after each 64 kB, `encoding` the Content-Encoding that other servers than the Hub name. `continues` is
    what the rest of a file that is asked for becomes: one from `elsewhere` in it, of a `longer` file, or status 416.
    `after_fault` is called after a reply that was cut, and `tag` is the ETag of all small files of the Hub.
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
        self.authorizations_elsewhere: set[str | None] = set()
        self.elsewhere: dict[str, bytes] = {}
        self.moved: dict[str, str] = {}
        self.gated: set[str] = set()
        self.is_proxy = False
        self.pace = 0.0
        self.encoding = ""
        self.continues = ""
        self.after_fault: Callable[[], None] = lambda: None
        self.tag = ""
        self.served = 0
        self.ranges: list[str] = []

    def handle_error(self, *_: object) -> None:
        """Connections are cut on purpose."""

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def storage(self) -> str:
        """Where large files are: another host, which must not see the token."""
        return f"http://localhost:{self.server_port}"

    @property
    def commits(self) -> list[list[dict[str, Any]]]:
        """The lines of every commit to any repository."""
        return [lines for repository in self.repositories.values() for _, lines in repository.commits]

    def arrived(self, repo: str = REPO, kind: str = "model", branch: str = "main") -> dict[str, bytes]:
        """Path -> content of the files of a branch."""
        return self.repositories[kind, repo].branches[branch]

    def publish(self, address: str, content: bytes) -> None:
        """Serve a file at an address that `File.address` may have."""
        if found := re.fullmatch(r"hf://(?:(dataset)s/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)", address):
            branches = self.repository(found[1] or "model", found[2]).branches
            for revision in {"main", found[3] or "main"}:
                branches.setdefault(revision, {})[found[4]] = content
        else:
            self.elsewhere[address.partition("://")[2].partition("?")[0]] = content

    def publish_release(self, release: Release, contents: dict[str, bytes]) -> None:
        """Serve the files of a release, by their names here; those of archives are packed."""
        archives: dict[str, dict[str, bytes]] = {}
        for file in release.files:
            if file.here not in contents:
                continue
            content, address = contents[file.here], file.addresses[0].partition("?")[0]
            if file.member:
                archives.setdefault(address, {})[file.member] = content
            elif len(file.addresses) > 1:
                half = len(content) // 2
                for part, some in zip(file.addresses, (content[:half], content[half:]), strict=True):
                    self.publish(part, some)
            else:
                is_packed = address.endswith(".gz") and not file.here.endswith(".gz")
                self.publish(address, gzip.compress(content) if is_packed else content)
        for address, members in archives.items():
            self.publish(address, packed(address, members))

    def environment(self, folder: Path) -> dict[str, str]:
        """The variables with which a process finds everything here and keeps what it fetches in a folder."""
        return {
            "HF_ENDPOINT": self.endpoint,
            "NOTEWRITER_MIRROR": self.endpoint,
            "HF_HUB_DISABLE_XET": "1",
            "HF_HOME": str(folder / "huggingface"),
            "NOTEWRITER_HOME": str(folder / "notewriter"),
        }

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
    lost = half = False

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
        is_hub = not self.path.startswith(("/storage/", "/cdn/")) and self.path.lstrip("/") not in self.server.elsewhere
        known = self.server.authorizations if is_hub else self.server.authorizations_elsewhere
        known.add(self.headers.get("Authorization"))
        fault = self.server.fault(request)
        self.lost, self.half = fault == "lost", fault == "half"
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

    def _send_file(self, content: bytes, headers: dict[str, str]) -> None:
        """Answer with a file, or with the part of it that is asked for."""
        if self.command == "GET":
            self.server.ranges.append(self.headers.get("Range", ""))
        start, status = 0, 200
        found = re.fullmatch(r"bytes=(\d+)-", self.headers.get("Range", ""))
        # As RFC 9110 wants it: the rest only of the same file.
        if found and self.headers.get("If-Range", headers.get("ETag", "")) == headers.get("ETag", ""):
            if self.server.continues == "416":
                self._send(b"", {}, 416)
                return
            start, status = int(found[1]), 206
            asked = start + (self.server.continues == "elsewhere")
            size = len(content) + (self.server.continues == "longer")
            headers = headers | {"Content-Range": f"bytes {asked}-{size - 1}/{size}"}
        body = content[start:]
        self.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body)), "Accept-Ranges": "bytes"}).items():
            self.send_header(name, value)
        self.end_headers()
        if self.command == "HEAD":
            return
        for place in range(0, len(body), CHUNK):
            if self.half and place > len(body) // 2:
                self._cut()
                self.server.after_fault()
                return
            # Counted first: the client goes on as soon as it has the last of it.
            self.server.served += len(body[place : place + CHUNK])
            self.wfile.write(body[place : place + CHUNK])
            time.sleep(self.server.pace)

    def _moved(self, repo: str) -> None:
        self._send(b"", {"Location": self.path.replace(repo, self.server.moved[repo])}, 307)

    def _refuse(self, status: int, code: str) -> None:
        self._send(b"", {"X-Error-Code": code, "X-Error-Message": code}, status)

    def do_HEAD(self) -> None:
        self.do_GET()

    def do_GET(self) -> None:
        with self._noted() as body:
            if body is not None:
                self._get(urlsplit(self.path).path)

    def _get(self, path: str) -> None:
        if self.server.is_proxy:
            self._send(b"<html>Log in</html>", {"Content-Type": "text/html; charset=utf-8"})
        elif path.lstrip("/") in self.server.elsewhere:
            content = self.server.elsewhere[path.lstrip("/")]
            headers = {"ETag": f'"{hashlib.md5(content).hexdigest()}"', "Content-Type": "text/plain"}
            encoding = {"Content-Encoding": self.server.encoding} if self.server.encoding else {}
            self._send_file(content, headers | encoding)
        elif path.startswith("/cdn/"):
            self._send_file(self.server.objects[path.removeprefix("/cdn/")], {})
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)(?:/revision/(.+))?", path):
            if found[2] in self.server.moved:
                self._moved(found[2])
                return
            repository = self.server.repository(found[1], found[2])
            files = files_of(repository, unquote(found[3] or "main"))
            if files is None:
                self._refuse(404, "RevisionNotFound")
                return
            siblings = [{"rfilename": name, "size": len(content)} for name, content in files.items()]
            self._reply(
                {
                    **{"id": found[2], "modelId": found[2], "sha": commit_of(files), "private": repository.private},
                    **{"siblings": siblings, "tags": []},
                }
            )
        elif found := re.fullmatch(r"/api/(model|dataset)s/([^/]+/[^/]+)/tree/(.+)", path):
            if found[2] in self.server.moved:
                self._moved(found[2])
                return
            files = files_of(self.server.repository(found[1], found[2]), unquote(found[3])) or {}
            entries = [{"type": "file", "path": name, "size": len(content)} for name, content in files.items()]
            self._reply([entry | {"oid": "0" * 40} for entry in entries])
        elif found := re.fullmatch(r"/(datasets/)?([^/]+/[^/]+)/resolve/([^/]+)/(.+)", path):
            self._resolve("dataset" if found[1] else "model", found[2], unquote(found[3]), unquote(found[4]))
        else:
            self._reply({"error": "no such endpoint"}, 404)

    def _resolve(self, kind: str, repo: str, revision: str, path: str) -> None:
        if repo in self.server.moved:
            self._moved(repo)
        elif (kind, repo) not in self.server.repositories:
            self._refuse(404, "RepoNotFound")
        elif repo in self.server.gated and self.headers.get("Authorization") != f"Bearer {TOKEN}":
            self._refuse(401, "GatedRepo")
        elif (files := files_of(self.server.repository(kind, repo), revision)) is None:
            self._refuse(404, "RevisionNotFound")
        elif path not in files:
            self._refuse(404, "EntryNotFound")
        else:
            content = files[path]
            digest = hashlib.sha256(content).hexdigest()
            commit = {"X-Repo-Commit": revision if re.fullmatch("[0-9a-f]{40}", revision) else commit_of(files)}
            if path.endswith(LARGE):
                self.server.objects[digest] = content
                linked = {"X-Linked-Size": str(len(content)), "X-Linked-ETag": f'"{digest}"'}
                self._send(b"", commit | linked | {"Location": f"{self.server.storage}/cdn/{digest}"}, 302)
            else:
                self._send_file(content, commit | {"ETag": self.server.tag or f'"{digest[:40]}"'})

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


@contextmanager
def serving() -> Iterator[Hub]:
    """A hub that answers until the block ends."""
    with Hub() as hub:
        threading.Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
        yield hub
        hub.shutdown()


def packed(address: str, members: dict[str, bytes]) -> bytes:
    """An archive of the kind that an address ends in."""
    archive = io.BytesIO()
    if address.endswith(".zip"):
        with zipfile.ZipFile(archive, "w") as file:
            for name, content in members.items():
                file.writestr(name, content)
    else:
        kind = address.rpartition(".")[2].replace("tgz", "gz").replace("tar", "")
        with tarfile.open(fileobj=archive, mode=f"w:{kind}") as tape:  # type: ignore[call-overload]
            for name, content in members.items():
                # What is below a folder: one file in it stands for all.
                entry = tarfile.TarInfo(name + "AA/wiki_00" if name.endswith("/") else name)
                entry.size = len(content)
                tape.addfile(entry, io.BytesIO(content))
    return archive.getvalue()


def files_of(repository: Stored, revision: str) -> dict[str, bytes] | None:
    """The files at a branch or commit; None if there is no such revision."""
    branches = repository.branches
    return next((files for name, files in branches.items() if revision in (name, commit_of(files))), None)


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
