"""A local HTTP service that stands in for retrieval servers, search engines and web search APIs.

with json_service(lambda request: {"result": []}) as service:
    Remote(RemoteOptions(url=service.url))
"""

import contextlib
import json
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


@dataclass(frozen=True)
class Request:
    method: str
    path: str
    body: bytes
    headers: dict[str, str]

    @property
    def json(self) -> Any:
        return json.loads(self.body)


@dataclass(frozen=True)
class Answer:
    """What is sent; `late` is in seconds, and `drop` ends the connection without a reply."""

    status: int = 200
    body: object = b""
    headers: dict[str, str] = field(default_factory=dict)
    late: float = 0.0
    drop: bool = False


@dataclass
class Service:
    url: str = ""
    requests: list[Request] = field(default_factory=list)


@contextlib.contextmanager
def json_service(answer: Callable[[Request], object]) -> Iterator[Service]:
    """A service while the block runs; `answer` returns JSON or an `Answer`."""
    known = Service()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = 1 << 16
        disable_nagle_algorithm = True

        def log_message(self, *_: object) -> None:
            pass

        def respond(self) -> None:
            length = int(self.headers.get("Content-Length") or 0)
            headers = {name.lower(): value for name, value in self.headers.items()}
            request = Request(self.command, self.path, self.rfile.read(length), headers)
            known.requests.append(request)
            reply = answer(request)
            if not isinstance(reply, Answer):
                reply = Answer(body=reply)
            time.sleep(reply.late)
            if reply.drop:
                self.close_connection = True
                return
            body = reply.body if isinstance(reply.body, bytes) else json.dumps(reply.body).encode()
            self.send_response(reply.status)
            for name, value in {"Content-Type": "application/json", **reply.headers}.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command != "HEAD":
                self.wfile.write(body)

        do_GET = do_POST = do_PUT = do_HEAD = do_DELETE = respond

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        request_queue_size = 128

        def handle_error(self, *_: object) -> None:
            """A caller that gave up is no news."""

    server = Server(("127.0.0.1", 0), Handler)
    known.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
