"""The Starlette application: its pages, styles and script, behind the guard."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute, Route

from notewriter import pages
from notewriter.app.guard import Guard

HERE = Path(__file__).parent

Render = Callable[..., HTMLResponse]
"""`render("judge.html.jinja", **variables)`: a page, whose variables are escaped."""


@dataclass(frozen=True)
class AppSection:
    """A part of the page.

    Args:
        path: its address.
        title: its name in the navigation.
        about: its purpose.
        routes: its pages, made with `render`.
    """

    path: str
    title: str
    about: str
    routes: Callable[[Render], Sequence[BaseRoute]]


def make_app(sections: Sequence[AppSection], token: str, port: int) -> Guard:
    """The application with these sections, for requests with the token."""
    environment = pages.templates(HERE)
    style = (pages.HERE / "style.css").read_text("utf-8") + (HERE / "app.css").read_text("utf-8")
    script = (pages.HERE / "elements.js").read_text("utf-8") + (HERE / "app.js").read_text("utf-8")

    def render(template: str, **variables: object) -> HTMLResponse:
        text = environment.get_template(template).render(sections=sections, **variables)
        # Texts of models may have halves of characters.
        return HTMLResponse(text.encode("utf-8", "replace"))

    def home(request: Request) -> Response:
        return render("home.html.jinja", here="/")

    routes: list[BaseRoute] = [
        Route("/", home),
        Route("/style.css", lambda request: Response(style, media_type="text/css")),
        Route("/app.js", lambda request: Response(script, media_type="text/javascript")),
    ]
    for section in sections:
        routes += section.routes(render)
    return Guard(Starlette(routes=routes), token, port)
