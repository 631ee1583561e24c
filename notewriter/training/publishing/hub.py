"""Uploads to the Hugging Face Hub: a repository in one commit, which can be repeated safely.

The hub knows the large files that already arrived by their hashes, and files that did not change are left out of the
commit.
"""

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from pathlib import Path
from typing import Literal

from huggingface_hub import CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError  # type: ignore[attr-defined]
from huggingface_hub.utils import validate_repo_id  # type: ignore[attr-defined]

from notewriter.ground.errors import UserError, one_line

Kind = Literal["model", "dataset"]


@dataclass(frozen=True)
class Upload:
    """The contents of a repository: `files` are texts by their paths in it.

    `stale` are patterns of files at the top of the repository that are deleted unless they are sent.
    """

    kind: Kind
    id: str
    files: Mapping[str, Path | bytes]
    stale: Sequence[str] = ()


def check_repo_id(repo_id: str, option: str = "--repo_id") -> None:
    """Raise a `UserError` unless `repo_id` has the form owner/name."""
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise UserError(f"{option}: {one_line(error)[:300]}") from error
    if "/" not in repo_id:
        raise UserError(f"{option} {repo_id}: has no owner; write owner/name")


def upload(api: HfApi, repository: Upload, private: bool) -> str:
    """Create the repository if needed, and commit every file at once; returns the commit's address.

    Files that an earlier upload left and that match `stale` are deleted in the same commit.

    Raises:
        UserError: the hub refuses or is unreachable, or the repository is public and `private` is set.
    """
    name, kind = repository.id, repository.kind
    with _errors(api, name):
        api.create_repo(name, repo_type=kind, private=private, exist_ok=True)
        if private and not api.repo_info(name, repo_type=kind).private:
            raise UserError(f"{name}: exists and is public; give --private false, or another id")
        there = set(api.list_repo_files(name, repo_type=kind)) - set(repository.files)
        at_the_top = [file for file in there if "/" not in file]
        stale = sorted(file for file in at_the_top if any(fnmatch(file, each) for each in repository.stale))
        operations: list[CommitOperationAdd | CommitOperationDelete] = [
            *(CommitOperationAdd(file, content) for file, content in repository.files.items()),
            *(CommitOperationDelete(file) for file in stale),
        ]
        # One commit, so that no reader ever finds new weights under an old card.
        message = f"Upload the {kind} and its card"
        commit = api.create_commit(name, operations, commit_message=message, repo_type=kind)
        return str(commit.commit_url)


@contextlib.contextmanager
def _errors(api: HfApi, place: str) -> Iterator[None]:
    """Turn errors of the hub's client into a one-line `UserError`, without the token."""
    try:
        yield
    except HfHubHTTPError as error:
        status = error.response.status_code
        remedy = (
            "check that the token may write there"
            if status in {401, 403, 404}
            else "run the same command again later; what has arrived is not sent again"
        )
        raise UserError(f"{api.endpoint}: refused {place} ({status}: {_failure(error, api)}); {remedy}") from error
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        raise UserError(
            f"{api.endpoint}: {place} could not be uploaded ({_failure(error, api)}); "
            "check the connection and HF_ENDPOINT, and run the same command again"
        ) from error


def _failure(error: BaseException | None, api: HfApi) -> str:
    text = one_line(error)
    # Before it is cut, which could leave the beginning of a token.
    return (text.replace(api.token, "[token]") if isinstance(api.token, str) else text)[:300]
