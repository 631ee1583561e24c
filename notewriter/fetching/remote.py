"""The record of a file on its server before the download, or the fault of the request for it."""

import logging
import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import httpx2
from huggingface_hub import constants, get_hf_file_metadata, get_token, hf_hub_url
from huggingface_hub.errors import (
    DryRunError,
    EntryNotFoundError,
    FileMetadataError,
    GatedRepoError,
    HfHubHTTPError,
    LocalEntryNotFoundError,
    OfflineModeIsEnabled,
    RepositoryNotFoundError,
    RevisionNotFoundError,
)
from huggingface_hub.file_download import HfFileMetadata
from huggingface_hub.utils import build_hf_headers  # type: ignore[attr-defined]

from notewriter.ground.errors import UserError, one_line
from notewriter.models.connection import check_address

logger = logging.getLogger(__name__)

MIRROR = "NOTEWRITER_MIRROR"
"""The environment variable with the address of a server that has the files of other hosts under /HOST/PATH."""

TIMEOUT = 30.0
"""Seconds to wait for a server's reply."""

_TAG = re.compile(r"(?!\.)[\w.+-]{1,256}", re.ASCII)
"""An ETag or a commit: part of a file's name, and never a path."""

_HUB = re.compile(r"hf://(datasets/)?([^/@]+/[^/@]+)(?:@([^/]+))?/(.+)")


class Unreachable(UserError):
    """A server that gives no answer at all."""


@dataclass(frozen=True, kw_only=True)
class RemoteFile:
    """A file on a server.

    Args:
        url: where it is downloaded from.
        headers: the headers of the request; may contain a token.
        size: bytes, if the server tells it.
        version: changes when the file does; empty if the server sends none.
        sha256: of its content, which the Hub knows of large files.
        commit: of its repository on the Hub.
        validator: what `If-Range` asks for, so that the rest of a file comes only while it is the same file; empty
            where the server gives nothing that does (the Hub's storage has other ETags than the Hub).
    """

    url: str
    headers: dict[str, str] = field(repr=False)
    size: int | None
    version: str
    sha256: str = ""
    commit: str = ""
    validator: str = ""


def look_up(address: str, offline: str) -> RemoteFile:
    """The server's record of an address (`File.address`).

    Args:
        address: `hf://...` or `https://...`.
        offline: the end of errors where the server cannot be reached: what to do on a machine without it.

    Raises:
        UserError: the file is not there, may not be had, or the server is not reached or is another one.
    """
    with failures(address, offline):
        if constants.is_offline_mode():
            raise OfflineModeIsEnabled("HF_HUB_OFFLINE is set")
        hub = _HUB.fullmatch(address)
        return _on_hub(hub) if hub else _elsewhere(mirrored(address))


def _on_hub(address: re.Match[str]) -> RemoteFile:
    datasets, repository, revision, path = address.groups()
    kind = "dataset" if datasets else "model"
    url = hf_hub_url(repository, path, repo_type=kind, revision=revision, endpoint=constants.ENDPOINT)
    headers = build_hf_headers(token=get_token() or False) | {"Accept-Encoding": "identity"}
    found = metadata(url, timeout=TIMEOUT, headers=headers)
    assert found.etag and found.commit_hash
    moved = re.match(rf"{re.escape(constants.ENDPOINT)}/(?:datasets/)?([^/]+/[^/]+)/resolve/", found.location)
    if moved and moved[1] != repository:
        logger.warning("%s: has moved to %s", repository, moved[1])
    return RemoteFile(
        url=url,
        headers=headers,
        size=found.size,
        version=found.etag,
        # Of small files it is git's.
        sha256=found.etag if re.fullmatch("[0-9a-f]{64}", found.etag) else "",
        commit=found.commit_hash,
    )


def metadata(*arguments: Any, **options: Any) -> HfFileMetadata:
    """The library's `get_hf_file_metadata`; its ETag and commit are checked, since file names are made of them.

    Raises:
        FileMetadataError: the ETag or the commit is not valid.
    """
    found = get_hf_file_metadata(*arguments, **options)
    if not (_TAG.fullmatch(found.etag or "") and _TAG.fullmatch(found.commit_hash or "")):
        raise FileMetadataError("its reply is not that of a Hub")
    return found


def _elsewhere(url: str) -> RemoteFile:
    headers = {"Accept-Encoding": "identity"}
    with httpx2.Client(follow_redirects=True, timeout=TIMEOUT) as client:
        reply = client.head(url, headers=headers)
        if reply.status_code in (403, 405, 501):
            # Some servers do not answer HEAD.
            with client.stream("GET", url, headers=headers) as reply:
                pass
    check_reply(reply)
    length = reply.headers.get("Content-Length", "")
    tag, modified = reply.headers.get("ETag", ""), reply.headers.get("Last-Modified", "")
    return RemoteFile(
        url=url,
        headers=headers,
        size=int(length) if re.fullmatch("[0-9]{1,18}", length) else None,
        version=tag or modified,
        # A weak ETag does not promise the same bytes.
        validator=tag if re.fullmatch('"[!-~]*"', tag) else "" if tag else modified,
    )


def mirrored(address: str) -> str:
    """An `https://` address, or where the mirror has it.

    Raises:
        UserError: the mirror's address is none.
    """
    if mirror := os.environ.get(MIRROR):
        check_address(mirror, MIRROR)
    return f"{mirror.rstrip('/')}/{address.partition('://')[2]}" if mirror else address


def check_reply(reply: httpx2.Response) -> None:
    """Refuse an error, an HTML page in place of a file (as proxies and logins send), and a redirect from HTTPS to HTTP.

    Raises:
        httpx2.HTTPStatusError: the status is one.
        FileMetadataError: the reply is HTML, or came over plain HTTP behind an address with HTTPS.
    """
    reply.raise_for_status()
    schemes = [each.url.scheme for each in (*reply.history, reply)]
    if "http" in schemes[1:] and schemes[0] == "https":
        raise FileMetadataError("it leads from HTTPS to plain HTTP")
    if reply.headers.get("Content-Type", "").startswith("text/html"):
        raise FileMetadataError("it answered with a web page")


@contextmanager
def failures(address: str, offline: str) -> Iterator[None]:
    """Report what goes wrong with a server in the block as errors about an address; `offline` as in `look_up`.

    Raises:
        UserError: in place of the errors of the libraries.
    """
    # Not checked here, where the error would be another one.
    mirror = os.environ.get(MIRROR) or address
    host = constants.ENDPOINT if address.startswith("hf://") else "/".join(mirror.split("/")[:3])
    try:
        yield
    except (httpx2.RequestError, OfflineModeIsEnabled, LocalEntryNotFoundError, DryRunError) as error:
        # The last two are what the library makes of the others when it looks into its cache.
        cause = error.__cause__ or error
        reason = one_line(cause)[:200] or type(cause).__name__
        raise Unreachable(f"{address}: {host} cannot be reached ({reason}); {offline}") from error
    except (httpx2.InvalidURL, ValueError) as error:
        # Of a proxy's address it is the latter.
        raise UserError(
            f"{address}: {host} is not an address that can be asked ({one_line(error)[:200]}); correct "
            "HF_ENDPOINT, or the proxy's in HTTPS_PROXY"
        ) from error
    except GatedRepoError as error:
        raise UserError(
            f"{address}: is gated; accept its conditions at {_page(address)}, then log in with `hf auth login` "
            "or set HF_TOKEN to a token of that account"
        ) from error
    except RevisionNotFoundError as error:
        raise UserError(
            f"{address}: this revision is gone; look at {_page(address)} for another one, download the file yourself "
            "and give it with --path"
        ) from error
    except RepositoryNotFoundError as error:
        raise UserError(
            f"{address}: there is no such repository, or it is private; check the name at {_page(address)}, "
            "and for a private one log in with `hf auth login` or set HF_TOKEN"
        ) from error
    except EntryNotFoundError as error:
        raise UserError(
            f"{address}: the file is gone; look for it at {_page(address)}, download it and give it with --path"
        ) from error
    except FileMetadataError as error:
        raise UserError(
            f"{address}: {host} did not send the file ({one_line(error)}); a proxy or a login may stand before it: "
            "open the address in a browser, set HTTPS_PROXY or HF_ENDPOINT"
        ) from error
    except (HfHubHTTPError, httpx2.HTTPStatusError) as error:
        status = error.response.status_code
        passes = status >= 500 or status == httpx2.codes.TOO_MANY_REQUESTS
        remedy = "try later" if passes else "the file may have moved: download it yourself and give it with --path"
        raise UserError(f"{address}: {host} answered with status {status}; {remedy}") from error


def _page(address: str) -> str:
    hub = _HUB.fullmatch(address)
    return f"{constants.ENDPOINT}/{hub[1] or ''}{hub[2]}" if hub else address
