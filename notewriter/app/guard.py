"""The page's guard: it lets in the person with the token, from this machine, and no other web page in their browser.

The token keeps other users out; `ground.loopback`, and the cookie's SameSite, keep out other pages of the browser.
"""

import secrets
from http import HTTPStatus

from starlette.datastructures import MutableHeaders
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from notewriter.ground.loopback import NAMES, is_of_a_page

HEADERS = {
    "Content-Security-Policy": "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; "
    "connect-src 'self'; form-action 'self'; base-uri 'none'; frame-ancestors 'none'",
    "X-Content-Type-Options": "nosniff",
    # With `no-referrer` browsers would send forms with the origin `null`.
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Cache-Control": "no-store",
}


class Guard:
    """Lets requests through to an application that its user has made, and adds `HEADERS` to every reply.

    `/?token=TOKEN` turns the token into a cookie, so that it stays out of later addresses.
    """

    def __init__(self, app: ASGIApp, token: str, port: int) -> None:
        self.app, self.token = app, token
        # Browsers leave HTTP's own port out.
        self.hosts = {name if port == 80 else f"{name}:{port}" for name in NAMES}
        # Cookies do not know ports: another page on this machine has its own.
        self.cookie = f"notewriter-{port}"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, as an ASGI application does."""
        if scope["type"] == "lifespan":
            return await self.app(scope, receive, send)
        if scope["type"] != "http":
            return None

        async def send_guarded(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message).update(HEADERS)
            await send(message)

        app = self._refusal_or_login(Request(scope)) or self.app
        return await app(scope, receive, send_guarded)

    def _refusal_or_login(self, request: Request) -> Response | None:
        """The reason why a request is refused, or None."""
        if request.headers.get("host", "") not in self.hosts:
            return _refuse("this page answers to 127.0.0.1 and localhost only")
        if is_of_a_page(request.headers):
            return _refuse("the request comes from another page")
        if request.url.path == "/" and self._is_token(request.query_params.get("token")):
            login = RedirectResponse("/", HTTPStatus.SEE_OTHER)
            login.set_cookie(self.cookie, self.token, httponly=True, samesite="strict")
            return login
        if not self._is_token(request.cookies.get(self.cookie)):
            return _refuse("open the address that `notewriter app` printed, with its token")
        return None

    def _is_token(self, value: str | None) -> bool:
        return value is not None and secrets.compare_digest(value.encode("utf-8", "replace"), self.token.encode())


def _refuse(reason: str) -> Response:
    return PlainTextResponse(reason + "\n", HTTPStatus.FORBIDDEN)
