"""`notewriter fetch pages`: the pages of Wikipedia that a benchmark's questions name, as HTML with their tables.

FanOutQA names revisions, which are downloaded; of FRAMES's pages it is the newest. `notewriter corpus --source
wikipedia-html` reads the file. MediaWiki's Action API is asked for one page after the other, as its etiquette wants,
with the waits that it asks for. The same command goes on where it was stopped, and asks again for missing pages.
"""

import logging
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any
from urllib.parse import quote, urlsplit

from annotated_types import MinLen
from tqdm import tqdm

from notewriter import __version__
from notewriter.corpora.pages import Pages
from notewriter.datasets import question_file
from notewriter.datasets.questions import PATH, SPLIT
from notewriter.ground import config, jsonl
from notewriter.ground.errors import UserError
from notewriter.ground.event_loop import run_async
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import names_in, option
from notewriter.ground.releases import FETCHED
from notewriter.ground.terminal import escape_controls
from notewriter.ground.text import page_title
from notewriter.models.connection import UnreadableReply, connect, is_transient, reason, retrying

if TYPE_CHECKING:
    import openai
else:
    openai = Lazy("openai")

logger = logging.getLogger(__name__)

WIKI = "en.wikipedia.org"
API = f"https://{WIKI}/w/api.php"
ATTEMPTS = 8
TIMEOUT = 60.0
MAX_NAMED = 10
"""Missing pages that are named on the terminal."""

BUSY = ("maxlag", "ratelimited", "readonly", "internal_api_error")
"""Temporary errors of the API, by the beginning of their code."""

ABSENT = ("missingtitle", "invalidtitle", "nosuchrevid", "pagecannotexist", "permissiondenied")
"""Codes of pages and revisions that the wiki does not have, or has deleted."""

UNKNOWN = 0
"""The revision of a page whose record does not tell it."""


@dataclass
class PagesArguments:
    """The questions whose pages are downloaded, and the file for them."""

    dataset: str = field(metadata={"help": "the benchmark: fanoutqa or frames", "names": names_in})
    output: str = field(metadata={"help": "the JSON Lines file to write; pages that it has are not downloaded again"})
    contact: Annotated[str, MinLen(3)] = field(
        metadata={
            "help": "your e-mail address or home page, sent with every request: Wikimedia's policy asks for it and may "
            "block clients without one"
        }
    )
    path: str = field(default=FETCHED, metadata=PATH)
    split: str | None = field(default=None, metadata=SPLIT)
    api: str = option(API, "the address of the wiki's api.php")


def main(argv: list[str]) -> None:
    """Download the pages that the file lacks.

    Raises:
        UserError: the questions name no pages, the wiki cannot be reached, or it has none of the pages.
    """
    (arguments,) = config.parse(PagesArguments, argv, prog="notewriter fetch pages", description=__doc__)
    path = question_file(arguments.dataset, arguments.path, arguments.split)
    pages, output = Pages(arguments.dataset, Path(path)), Path(arguments.output)
    missing = run_async(_download(pages, output, arguments))
    if len(missing) == len(pages):
        raise UserError(f"{arguments.api}: has none of the {len(pages)} pages; check --path and --api")
    sys.stdout.write(f"{output}: {len(pages) - len(missing):,} of {len(pages):,} pages\n")
    if missing:
        named = "; ".join(f"{escape_controls(page)} ({why})" for page, why in list(missing.items())[:MAX_NAMED])
        more = ", ..." if len(missing) > MAX_NAMED else ""
        logger.warning("%d pages were not found: %s%s", len(missing), named, more)


async def _download(pages: Pages, output: Path, arguments: PagesArguments) -> dict[str, str]:
    """Add the pages that a file lacks; returns those that the wiki does not have, with the reasons.

    Until it has all that there are, the file ends in `.part`.

    Raises:
        UserError: the file has a page in another revision, or as `_ask`.
    """
    missing: dict[str, str] = {}
    part = output.with_name(f"{output.name}.part")
    held = output if output.exists() and not part.exists() else part
    records = jsonl.read(held, journal=True) if held.exists() else ()
    there = {record.get("url"): record.get("revision", UNKNOWN) for _, record in records}
    wanted = {_address(page): (page, revision) for page, revision in pages}
    for address, (page, revision) in wanted.items():
        if there.get(address, revision) not in (revision, UNKNOWN):
            raise UserError(
                f"{held}: has {escape_controls(page)} in another revision than these questions name; choose another "
                "--output"
            )
    if held == output:
        output.rename(part)
    with jsonl.Journal(part) as file:
        wiki = connect(arguments.api, TIMEOUT, place="api")
        try:
            for address, (page, revision) in tqdm(wanted.items(), desc="pages", unit=" pages"):
                if address in there:
                    continue
                if (host := urlsplit(address).hostname or "").replace(".m.", ".") != WIKI:
                    missing[page] = f"a page of {host or 'no wiki'}"
                    continue
                answer = await _ask(wiki, arguments, _query(page, revision))
                if isinstance(answer, str):
                    missing[page] = answer
                    continue
                told = {"id": answer["pageid"], "title": answer["title"], "url": address, "revision": revision}
                file.append({**told, "html": answer["text"]})
        finally:
            await wiki.close()
    if len(missing) < len(wanted):
        part.rename(output)
    return missing


def _address(page: str) -> str:
    """The address of a page that a question names by its title or its address."""
    return page if "://" in page else f"https://{WIKI}/wiki/{quote(page.replace(' ', '_'), safe='')}"


def _query(page: str, revision: int | None) -> dict[str, str]:
    which = {"oldid": str(revision)} if revision is not None else {"page": page_title(page), "redirects": "1"}
    return {"action": "parse", "prop": "text", "format": "json", "formatversion": "2", **which}


async def _ask(wiki: "openai.AsyncOpenAI", arguments: PagesArguments, query: dict[str, str]) -> dict[str, Any] | str:
    """The parsed page, or the reason why the wiki does not have it.

    Raises:
        UserError: no usable reply after all attempts, or the request is refused.
    """
    sent: Any = {
        "params": query,
        "headers": {
            "Authorization": openai.Omit(),
            "User-Agent": f"notewriter/{__version__} ({arguments.contact})",
        },
    }

    async def ask() -> dict[str, Any] | str:
        reply: Any = await wiki.get(arguments.api, cast_to=object, options=sent)
        if isinstance(reply, dict) and isinstance(error := reply.get("error"), dict):
            code, words = str(error.get("code", "")), " ".join(str(error.get("info", "")).split())[:200]
            if code.startswith(BUSY):
                raise UnreadableReply(f"{code}: {words}")
            if code in ABSENT:
                return words or code
            raise UserError(
                f"{arguments.api}: refuses the request ({code}: {escape_controls(words)}); correct what it names, and "
                "run the same command again"
            )
        page = reply.get("parse") if isinstance(reply, dict) else None
        kinds = {"pageid": int, "title": str, "text": str}
        if not isinstance(page, dict) or not all(isinstance(page.get(key), kind) for key, kind in kinds.items()):
            raise UnreadableReply(f"a reply of another form: {str(reply)[:200]}")
        return page

    try:
        return await retrying(ATTEMPTS)(ask)
    except (openai.APIError, UnreadableReply) as error:
        remedy = "pages that came are kept; run the same command again" if is_transient(error) else "check --api"
        raise UserError(f"{arguments.api}: no usable reply ({reason(error)}); {remedy}") from error
