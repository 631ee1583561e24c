"""Downloads of a release: resumed after a kill, checked, and visible only when all files are there."""

import bz2
import datetime
import gzip
import hashlib
import json
import logging
import lzma
import os
import re
import shutil
import stat
import tarfile
import time
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import httpx2
from huggingface_hub.errors import FileMetadataError
from tqdm import tqdm

from notewriter.fetching.remote import TIMEOUT, RemoteFile, check_reply, failures, look_up
from notewriter.ground import jsonl
from notewriter.ground.digests import file_digest
from notewriter.ground.errors import UserError, free, one_line
from notewriter.ground.folders import new_folder
from notewriter.ground.releases import ORIGIN, File, Release, origin

logger = logging.getLogger(__name__)

DOWNLOADS = ".downloads"
"""The folder of incomplete files, in the folder that is being made."""

OPENERS: dict[str, Callable[[Path], Any]] = {".gz": gzip.open, ".bz2": bz2.open}
"""Decompression by file ending; a file that is not an archive keeps the ending unless its name here lacks it."""

ATTEMPTS = 5
"""Connections that may break in a row without a byte arriving."""

_BY_HAND = "unpack it yourself, look at it, and give the file with --path"

SLOW_AFTER, SLOWEST = 60.0, 60_000
"""Seconds, and the least bytes to arrive in them; a slower connection counts as broken."""

SPARE = 1 << 28
"""Bytes that stay free on the disk."""


Plan = list[tuple[File, list[RemoteFile]]]
"""The plan of a download: the missing files, each with its parts on their servers."""


def size_of(to_do: Plan) -> int:
    """Bytes to download, as far as the servers say; an archive counts once."""
    parts = {part.url: part.size or 0 for _, parts in to_do for part in parts}
    return sum(parts.values())


def room_for(to_do: Plan) -> int:
    """Bytes of disk that are needed at most, as far as they are known: an archive lies beside its unpacked files."""
    joined = sum(parts[-1].size or 0 for _, parts in to_do if len(parts) > 1)
    packed = {parts[0].url: parts[0].size or 0 for file, parts in to_do if _is_packed(file)}
    return size_of(to_do) + joined + 3 * sum(packed.values())


def missing(release: Release, files: Iterable[File]) -> list[File]:
    """The files of a release that are not there, or that came from another address than the release has now."""
    known = origin(release.folder)
    return [
        file
        for file in files
        if not (release.folder / file.here).exists() or known.get(file.here, {}).get("address") != _address(file)
    ]


def plan(files: Iterable[File], offline: str) -> Plan:
    """Ask the servers for every file. `offline` is the end of errors about a server that is not reached."""
    known: dict[str, RemoteFile] = {}
    for address in (address for file in files for address in file.addresses):
        if address not in known:
            known[address] = look_up(address, offline)
    return [(file, [known[address] for address in file.addresses]) for file in files]


def fetch(
    release: Release, to_do: Plan, rows: Callable[[Path], int] | None, *, offline: str, check: bool = True
) -> None:
    """Download files into the folder of a release, which appears, or is replaced, when all are there and checked.

    Args:
        release: their release.
        to_do: the missing files.
        rows: counts the questions in a file; None if it has none.
        offline: the end of errors about a server that is not reached.
        check: whether a file of another size, SHA-256 or number of questions than is published is an error.

    Raises:
        UserError: the disk is too small, a server is not reached or answers with something else, or a file differs.
    """
    folder = release.folder
    check_disk(folder, to_do)
    with new_folder(folder, resume=True) as partial:
        _keep(folder, partial)
        records: dict[str, dict[str, Any]] = dict(origin(folder)) | dict(origin(partial))
        for file, parts in to_do:
            if (partial / file.here).exists() and records.get(file.here, {}).get("address") == _address(file):
                continue
            records[file.here] = _get(file, parts, partial, rows, offline, check)
            _write_origin(partial, release, records)
        shutil.rmtree(partial / DOWNLOADS, ignore_errors=True)
    logger.info("%s: complete; its licence is %s (%s)", folder, release.licence, release.page)


def check_disk(folder: Path, to_do: Plan) -> None:
    """Refuse a download that does not fit on the disk.

    Raises:
        UserError: the disk of a folder has too little room.
    """
    loaded = folder.with_name(folder.name + ".partial") / DOWNLOADS
    there = sum(file.stat().st_size for file in loaded.iterdir()) if loaded.is_dir() else 0
    if (needed := room_for(to_do) - there + SPARE) > free(folder):
        raise UserError(
            f"{folder}: needs {size_text(needed)}, and {size_text(free(folder))} are free; free some space or set "
            "NOTEWRITER_HOME to a folder on a larger disk"
        )


def size_text(size: float | None) -> str:
    """A number of bytes for people."""
    if size is None:
        return "unknown"
    for unit in ("bytes", "kB", "MB"):
        if size < 1000:
            return f"{size:.0f} {unit}"
        size /= 1000
    return f"{size:.1f} GB"


def _keep(folder: Path, partial: Path) -> None:
    """Give the new folder the files of the one that it replaces, without copying them if the disk can."""
    for path in sorted(folder.rglob("*")) if folder.is_dir() else ():
        target = partial / path.relative_to(folder)
        if path.is_dir() or target.exists() or path.name == ORIGIN:
            continue
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            os.link(path, target)
        except OSError:
            shutil.copy2(path, target)


def _get(
    file: File, parts: list[RemoteFile], partial: Path, rows: Callable[[Path], int] | None, offline: str, check: bool
) -> dict[str, Any]:
    """Download, join or unpack, and check one file; returns its record."""
    downloads = partial / DOWNLOADS
    downloads.mkdir(exist_ok=True)
    whole = _joined(file, parts, downloads, offline)
    digest = parts[0].sha256 if len(parts) == 1 and parts[0].sha256 else file_digest(whole)
    differs = _differs("bytes", whole.stat().st_size, file.size) or _differs("as SHA-256", digest, file.sha256)
    if differs and check:
        # It is kept: sending it again can take hours, and --check false uses it.
        raise _other_file(file, differs, f"remove {whole} and ")
    target = partial / file.here
    target.parent.mkdir(parents=True, exist_ok=True)
    _unpack(whole, file, target)
    if check and rows and file.rows is not None and (differs := _differs("questions", rows(target), file.rows)):
        target.unlink()
        raise _other_file(file, differs)
    return {
        "address": _address(file),
        "commit": ", ".join(dict.fromkeys(part.commit for part in parts if part.commit)),
        "bytes": sum(path.stat().st_size for path in [target, *target.rglob("*")] if path.is_file()),
        "sha256": digest,
        "fetched": datetime.date.today().isoformat(),
    }


def _differs(what: str, found: int | str, expected: int | str | None) -> str:
    numbers = [f"{value:,}" if isinstance(value, int) else value[:12] for value in (found, expected or "")]
    return f"has {numbers[0]} {what}, not {numbers[1]}" if expected and found != expected else ""


def _other_file(file: File, differs: str, first: str = "") -> UserError:
    return UserError(
        f"{_address(file)}: {differs}: this is not the published version; accept it with --check false, or {first}run "
        "the same command again"
    )


def _joined(file: File, parts: list[RemoteFile], downloads: Path, offline: str) -> Path:
    """The downloaded file; parts are appended to the first, so that the disk need not have room for all of it twice."""
    keys = [
        hashlib.sha256(f"{address} {part.version} {part.size}".encode()).hexdigest()[:16]
        for address, part in zip(file.addresses, parts, strict=True)
    ]
    joined = downloads / f"{keys[0]}.joined"
    if joined.exists():
        return joined
    loaded = [
        _download(address, part, downloads / key, offline)
        for address, part, key in zip(file.addresses, parts, keys, strict=True)
    ]
    if len(loaded) == 1:
        return loaded[0]
    with open(loaded[0], "r+b") as whole:
        # A killed run may have appended something.
        whole.truncate(parts[0].size or 0)
        whole.seek(0, os.SEEK_END)
        for path in loaded[1:]:
            with open(path, "rb") as part_file:
                shutil.copyfileobj(part_file, whole, 1 << 24)
        whole.flush()
        os.fsync(whole.fileno())
    os.replace(loaded[0], joined)
    for path in loaded[1:]:
        path.unlink()
    return joined


def _download(address: str, remote: RemoteFile, path: Path, offline: str) -> Path:
    """Download one file to a path, beginning where a killed run stopped.

    Raises:
        UserError: the server is not reached, or sends something else than it announced.
    """
    if path.exists():
        return path
    partial = path.with_suffix(".part")
    name = address.rpartition("/")[2]
    with failures(address, offline), open(partial, "ab") as file:
        failed = 0
        with tqdm(
            total=remote.size, initial=file.tell(), unit="B", unit_scale=True, desc=name[-40:], disable=None
        ) as bar:
            while remote.size is None or file.tell() < remote.size:
                before = file.tell()
                try:
                    _receive(remote, file, bar, path)
                    break
                except httpx2.TransportError as error:
                    failed = 0 if file.tell() - before > SLOWEST else failed + 1
                    if failed >= ATTEMPTS:
                        raise
                    logger.warning("%s: the connection broke (%s); going on", name, one_line(error))
                    time.sleep(min(failed, 5))
        file.flush()
        os.fsync(file.fileno())
        size = file.tell()
    if differs := _differs("bytes", size, remote.size) or (
        remote.sha256 and _differs("as SHA-256", file_digest(partial), remote.sha256)
    ):
        partial.unlink()
        raise UserError(f"{address}: what was received {differs}; run the same command again")
    os.replace(partial, path)
    return path


def _receive(remote: RemoteFile, file: BinaryIO, bar: "tqdm[Any]", path: Path) -> None:
    """Append the missing rest of a remote file, or write the file anew if the server has another one by now.

    Raises:
        httpx2.TransportError: the connection broke, or is too slow.
        UserError: more comes than was announced, or than the disk has room for.
    """
    # Without a known size it is unknown whether the file is complete.
    there = file.tell() if remote.size else 0
    headers = dict(remote.headers)
    if there:
        headers |= {"Range": f"bytes={there}-"} | ({"If-Range": remote.validator} if remote.validator else {})
    with (
        httpx2.Client(follow_redirects=True, timeout=TIMEOUT) as client,
        client.stream("GET", remote.url, headers=headers) as reply,
    ):
        if not (there and reply.status_code == httpx2.codes.RANGE_NOT_SATISFIABLE):
            # Checked before the part that is there is discarded.
            check_reply(reply)
        is_rest = there and _is_rest(reply, remote, there)
        if not is_rest:
            file.seek(0)
            file.truncate()
            bar.reset(remote.size)
        if there and not is_rest and reply.status_code != httpx2.codes.OK:
            # The next attempt asks for the whole file, since nothing is there now.
            raise httpx2.RemoteProtocolError("the server has another file by now; it is sent anew")
        if reply.status_code == httpx2.codes.PARTIAL_CONTENT and not there:
            raise FileMetadataError("it answered with a part of it")
        start, before = time.monotonic(), file.tell()
        for chunk in reply.iter_raw():
            file.write(chunk)
            bar.update(len(chunk))
            if remote.size is not None and file.tell() > remote.size:
                return
            if time.monotonic() - start > SLOW_AFTER:
                if file.tell() - before < SLOWEST:
                    raise httpx2.ReadTimeout(f"less than {size_text(SLOWEST)} in {SLOW_AFTER:g} seconds")
                if remote.size is None and free(path) < SPARE:
                    raise UserError(f"{path}: more comes than the disk has room for; free some space")
                start, before = time.monotonic(), file.tell()


def _is_rest(reply: httpx2.Response, remote: RemoteFile, there: int) -> bool:
    """Whether a reply is the rest of a file after its first bytes: of the same file, and from there on."""
    found = re.fullmatch(r"bytes ([0-9]{1,18})-[0-9]+/([0-9]{1,18}|\*)", reply.headers.get("Content-Range", ""))
    return (
        reply.status_code == httpx2.codes.PARTIAL_CONTENT
        and found is not None
        and int(found[1]) == there
        and found[2] in ("*", str(remote.size))
        and (not remote.validator.startswith('"') or reply.headers.get("ETag", remote.validator) == remote.validator)
    )


def _unpack(whole: Path, file: File, target: Path) -> None:
    """Put a downloaded file in its place: as it is, or taken from an archive."""
    address = file.addresses[0].partition("?")[0]
    if not _is_packed(file):
        os.replace(whole, target)
        return
    is_zip = address.endswith(".zip")
    # It appears when it is complete.
    unpacked = whole.with_suffix(".unpacked")
    shutil.rmtree(unpacked, ignore_errors=True)
    unpacked.mkdir()
    try:
        if file.member:
            found = _extract(address, file.member, _zip_members(whole) if is_zip else _tar_members(whole), unpacked)
        else:
            found = unpacked / "file"
            with OPENERS[Path(address).suffix](whole) as source:
                _copy(source, found)
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(
            f"{address}: cannot be unpacked ({one_line(error)}): it is encrypted, or compressed in a way that is not "
            "known here; unpack it with another program and give the file with --path"
        ) from error
    except (zipfile.BadZipFile, tarfile.TarError, EOFError, zlib.error, lzma.LZMAError, ValueError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:
            raise
        whole.unlink()
        raise UserError(f"{address}: is damaged ({one_line(error)}); run the same command again") from error
    if found is None:
        raise UserError(f"{address}: contains no {file.member}; download it yourself and give the file with --path")
    if target.is_dir():
        shutil.rmtree(target)
    os.replace(found, target)
    shutil.rmtree(unpacked)


def _is_packed(file: File) -> bool:
    """Whether a download is an archive or compressed, and not kept as it is."""
    ending = Path(file.addresses[0].partition("?")[0]).suffix
    return bool(file.member) or (ending in OPENERS and not file.here.endswith(ending))


Member = tuple[str, Callable[[], BinaryIO | None]]
"""A member of an archive: its name, and what opens it; that returns None for one that is no file."""


def _zip_members(path: Path) -> Iterator[Member]:
    with zipfile.ZipFile(path) as archive:
        for info in archive.infolist():
            # The upper half is of the system that packed it.
            is_link = stat.S_ISLNK(info.external_attr >> 16)
            yield info.filename, partial(_opened, archive, info, is_link)


def _opened(archive: zipfile.ZipFile, info: zipfile.ZipInfo, is_link: bool) -> BinaryIO | None:
    return None if is_link else archive.open(info)  # type: ignore[return-value]


def _tar_members(path: Path) -> Iterator[Member]:
    with tarfile.open(path, "r|*") as tape:
        for each in tape:
            # Of anything but a file there is no content, and a link would lead elsewhere.
            name = each.name + ("/" if each.isdir() else "")
            yield name, partial(tape.extractfile, each) if each.isfile() else lambda: None  # type: ignore[misc]


def _extract(address: str, member: str, members: Iterable[Member], into: Path) -> Path | None:
    """The wanted file or folder of an archive, wherever it is there, under a name of ours; None if it has none.

    Nothing is written under a name that leads out of the folder: below it names are those of the archive, and checked.

    Raises:
        UserError: a wanted member has a name that is none, or is a link.
    """
    wanted = into / "member"
    above: str | None = None
    for name, opened in members:
        path = f"/{name}"
        if f"/{member}/" in path:
            before, _, below = path.partition(f"/{member}/")
        elif path.endswith(f"/{member}"):
            before, below = path.removesuffix(f"/{member}"), ""
        else:
            continue
        if above not in (None, before):
            continue
        # Of several that are called so, the first one is meant.
        above = before
        if name.endswith("/"):
            continue
        parts = below.split("/") if below else []
        target = wanted.joinpath(*parts)
        if any(part in ("", ".", "..") or not part.isprintable() or "\\" in part for part in parts):
            raise UserError(f"{address}: its member {name!r} has a name that leads elsewhere; {_BY_HAND}")
        if target.is_dir() or any(parent.is_file() for parent in target.parents):
            raise UserError(f"{address}: its member {name!r} is a file and a folder; {_BY_HAND}")
        source = opened()
        if source is None:
            raise UserError(f"{address}: its member {name!r} is a link or no file; {_BY_HAND}")
        target.parent.mkdir(parents=True, exist_ok=True)
        with source:
            _copy(source, target)
    return wanted if wanted.exists() else None


def _copy(source: Any, target: Path) -> None:
    """Write the contents of a stream into a file.

    Raises:
        UserError: the disk has no room for it, as for what a small archive can stand for.
    """
    with open(target, "wb") as file:
        while block := source.read(1 << 24):
            file.write(block)
            if free(target) < SPARE:
                raise UserError(f"{target}: more is unpacked than the disk has room for; free some space")


def _address(file: File) -> str:
    return " + ".join(file.addresses) + (f" ({file.member})" if file.member else "")


def _write_origin(folder: Path, release: Release, files: dict[str, dict[str, Any]]) -> None:
    record = {
        "schema": "notewriter/origin/1",
        "name": release.name,
        "page": release.page,
        "licence": release.licence,
        "files": files,
    }
    jsonl.write_text(folder / ORIGIN, [json.dumps(record, indent=2) + "\n"])
