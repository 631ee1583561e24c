"""What rollouts and evaluation share: models from a configuration, run folders, and going on after a kill."""

import asyncio
import contextlib
import fcntl
import hashlib
import json
import logging
import os
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field, fields
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from notewriter import jsonl
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.llm import Client, Endpoint, ResponseCache
from notewriter.models import fingerprint
from notewriter.prompts import Prompts
from notewriter.records import Question, Sampling
from notewriter.retrieval import open_index
from notewriter.rollout import Resources
from notewriter.serving import Server, serve

logger = logging.getLogger(__name__)


@dataclass
class ModelArguments:
    """Which models play, how they are reached, and how they sample."""

    serve: str | None = field(
        default=None,
        metadata={"help": "a model folder or hub id; a vLLM server is started for it and plays every role"},
    )
    serve_options: dict[str, Any] = field(
        default_factory=dict, metadata={"help": "vLLM's own options, e.g. {dtype: bfloat16, tensor_parallel_size: 2}"}
    )
    port: int | None = field(default=None, metadata={"help": "port of the server that is started; default: a free one"})
    base_url: str | None = field(
        default=None, metadata={"help": "an OpenAI-compatible endpoint that runs already, e.g. http://node7:8000/v1"}
    )
    model: str | None = field(default=None, metadata={"help": "the model's name at base_url"})
    models: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "role -> endpoint (base_url, model, api_key_env, ...) or {serve: PATH}; roles are notes, query, "
            "answer, judge; `policy` plays the roles that are not named"
        },
    )
    concurrency: int = field(default=64, metadata={"help": "questions in flight at once"})
    cache: str = field(
        default="runs/cache.sqlite",
        metadata={"help": "every reply is kept here, so that no finished call is made twice"},
    )
    prompts_dir: str | None = field(
        default=None, metadata={"help": "a folder of prompts that go before ours, file by file: <method>/<stage>.jinja"}
    )
    temperature: float = field(default=0.1, metadata={"help": "sampling temperature (DeepNote: 0.1)"})
    top_p: float = field(default=0.9, metadata={"help": "nucleus sampling (the authors' code: 0.9)"})
    max_tokens: int = field(default=1280, metadata={"help": "tokens a completion at the most"})
    stage_sampling: dict[str, Any] = field(
        default_factory=dict,
        metadata={"help": "stage -> what differs there, e.g. {deepnote/answer: {max_tokens: 32}}"},
    )


ROLES = ("policy", "notes", "query", "answer", "judge")
"""The parts that models play in methods and judges; a name that is none of them would go unheard."""

WITHOUT_EFFECT = {
    *("concurrency", "port", "cache", "output_dir"),
    *("base_url", "api_key_env", "timeout", "attempts", "patience"),
}
"""Settings that cannot change a result: they may differ when a run goes on.

A model is known by its name: its server may be another one than before, as after a cluster's queue.
"""


def sampling_by_stage(arguments: ModelArguments) -> tuple[Sampling, dict[str, Sampling]]:
    """The sampling for every stage, and the stages that have their own.

    Raises:
        UserError: a stage's sampling has a key that is none.
    """
    general = Sampling(arguments.temperature, arguments.top_p, arguments.max_tokens)
    by_stage = {}
    for stage, changes in arguments.stage_sampling.items():
        try:
            by_stage[stage] = Sampling(**(asdict(general) | changes))
        except TypeError as error:
            known = ", ".join(field.name for field in fields(Sampling))
            raise UserError(f"stage_sampling: {stage}: {changes!r} has other keys than {known}") from error
    return general, by_stage


@contextlib.contextmanager
def served_models(arguments: ModelArguments, log_dir: Path) -> Iterator[dict[str, tuple[Endpoint, Server | None]]]:
    """Start the servers that are asked for; yields each role's endpoint, and its server where we started it.

    Raises:
        UserError: no model is named, one is named twice over, or an endpoint's keys are wrong.
    """
    if arguments.concurrency < 1:
        raise UserError(f"concurrency: {arguments.concurrency} questions at once get nowhere; give at least 1")
    for role, value in arguments.models.items():
        choose("role in models", role, dict.fromkeys(ROLES))
        if not isinstance(value, dict):
            raise UserError(f"models: {role}: {value!r} is no endpoint; give {{serve: PATH}}, or base_url and model")
    specifications = {role: dict(value) for role, value in arguments.models.items()}
    given = [key for key in ("serve", "base_url") if getattr(arguments, key)]
    given += ["models: policy"] if "policy" in specifications else []
    if len(given) > 1:
        raise UserError(f"both {given[0]} and {given[1]} are set; give one of them")
    if arguments.serve:
        specifications["policy"] = {"serve": arguments.serve}
    elif arguments.base_url:
        if not arguments.model:
            raise UserError("base_url is set and model is not; add --model NAME, as the endpoint calls it")
        specifications["policy"] = {"base_url": arguments.base_url, "model": arguments.model}
    if "policy" not in specifications:
        raise UserError("no model: give --serve PATH, or --base_url URL --model NAME")

    with contextlib.ExitStack() as servers:
        roles: dict[str, tuple[Endpoint, Server | None]] = {}
        for role, specification in specifications.items():
            path = specification.pop("serve", None)
            if path is None:
                roles[role] = (_endpoint(role, specification), None)
                continue
            name = Path(path).name
            options = arguments.serve_options | {"served_model_name": name}
            log = log_dir / f"vllm-{role}.log"
            server = servers.enter_context(serve(path, options, log=log, port=arguments.port))
            identity = f"{fingerprint(path)} {json.dumps(arguments.serve_options, sort_keys=True)}"
            specification |= {"base_url": server.base_url, "model": name, "identity": identity}
            roles[role] = (_endpoint(role, specification), server)
        yield roles


def _endpoint(role: str, specification: dict[str, Any]) -> Endpoint:
    known = [field.name for field in fields(Endpoint)]
    if unknown := [key for key in specification if key not in known]:
        raise UserError(f"models: {role}: unknown key {unknown[0]!r}; an endpoint has: {', '.join(known)}, or serve")
    for key in ("concurrency", "attempts"):
        number = specification.get(key, 1)
        if not isinstance(number, int) or number < 1:
            raise UserError(f"models: {role}: {key} must be a whole number above 0, not {number!r}")
    if not all(isinstance(specification.get(key), str) for key in ("base_url", "model")):
        raise UserError(f"models: {role}: needs base_url and model, or serve")
    return Endpoint(**specification)


def check_inputs(arguments: ModelArguments, index: Sequence[str] | None) -> None:
    """Find what is wrong with sampling, prompts and index before a server is started for minutes.

    Raises:
        UserError: a stage's sampling or a prompt that there is none of, or a folder that is no index.
    """
    _, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    for stage in stage_sampling:
        prompts.check(stage)
    if index:
        open_index(index)


@contextlib.asynccontextmanager
async def open_resources(
    arguments: ModelArguments, roles: dict[str, tuple[Endpoint, Server | None]], index: Sequence[str] | None
) -> AsyncIterator[Resources]:
    """What rollouts share, with every endpoint checked; connections and cache are closed at the end."""
    check_inputs(arguments, index)
    sampling, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    retriever = open_index(index) if index else None
    cache = ResponseCache(arguments.cache)
    clients = {
        role: Client(endpoint, cache, server.ensure_alive if server else None)
        for role, (endpoint, server) in roles.items()
    }
    try:
        await asyncio.gather(*(client.check() for client in clients.values()))
        yield Resources(clients, prompts, retriever, sampling, stage_sampling)
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))
        cache.close()


def config_hash(config: dict[str, Any]) -> str:
    """A short hash of the settings that can change a result."""
    return hashlib.sha256(json.dumps(_with_effect(config), sort_keys=True).encode()).hexdigest()[:16]


def _with_effect(config: dict[str, Any]) -> dict[str, Any]:
    """The settings that can change a result, those of each role's endpoint among them."""
    kept = {key: value for key, value in config.items() if key not in WITHOUT_EFFECT}
    models = kept.get("models")
    if isinstance(models, dict):
        kept["models"] = {
            role: {key: value for key, value in endpoint.items() if key not in WITHOUT_EFFECT}
            for role, endpoint in models.items()
            if isinstance(endpoint, dict)
        }
    return kept


@contextlib.contextmanager
def open_run(output_dir: str | Path, config: dict[str, Any], questions: Sequence[Question] = ()) -> Iterator[Path]:
    """A run folder with its resolved `config.yaml`: a new one, or one of the same settings and questions to go on with.

    It is locked while the block runs, so that no two processes write into it.

    Raises:
        UserError: another process works in the folder, or it holds a run with other settings (names the first
            that differs) or over questions that were others when it began.
    """
    folder = Path(output_dir)
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        _check_config(folder, config)
        digest = questions_digest(questions)
        path = folder / "questions.sha256"
        if path.exists() and path.read_text(encoding="utf-8").strip() != digest:
            raise UserError(
                f"{folder}: holds a run over other questions, the file has changed since; "
                "choose another output_dir, or remove this one"
            )
        jsonl.write_text(folder / "config.yaml", [yaml.safe_dump(config, sort_keys=False, allow_unicode=True)])
        jsonl.write_text(path, [digest + "\n"])
        yield folder


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of the questions' content in their order; it tells that a question file was changed in place."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(asdict(question), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


@contextlib.contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold the folder's lock, which ends with this process however it ends."""
    with open(folder / ".lock", "a+", encoding="utf-8") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "another process"
            raise UserError(
                f"{folder}: {holder} works in this folder; wait until it has ended, or choose another output_dir"
            ) from None
        except OSError as error:
            # Some network file systems have no locks; a run there is no worse off than it was without.
            logger.warning("%s: cannot be locked (%s); see that no other run writes into it", folder, error.strerror)
        file.truncate(0)
        file.write(f"process {os.getpid()} on {socket.gethostname()}")
        file.flush()
        yield


def _check_config(folder: Path, config: dict[str, Any]) -> None:
    path = folder / "config.yaml"
    if not path.exists():
        return
    try:
        before = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML; remove {folder} or choose another output_dir") from error
    if not isinstance(before, dict):
        raise UserError(f"{path}: is no run's configuration; remove {folder} or choose another output_dir")
    before, now = _with_effect(before), _with_effect(config)
    for key in {**before, **now}:
        if before.get(key) != now.get(key):
            raise UserError(
                f"{folder}: holds a run with {key}: {before.get(key)!r}, not {now.get(key)!r}; "
                "choose another output_dir, or remove this one"
            )


def remaining(journal: Path, questions: Sequence[Question]) -> int:
    """How many of the questions a journal does not hold yet."""
    if not journal.exists():
        return len(questions)
    with jsonl.Journal(journal):  # removes a last line that a kill has cut
        done = {record["question_id"] for _, record in jsonl.read(journal)}
    return sum(question.id not in done for question in questions)


def finished(journal: Path, questions: Sequence[Question]) -> Iterator[dict[str, Any]]:
    """The journal's records of these questions, in the questions' order, one at a time in memory.

    The order of the file is the order in which questions happened to finish; results must not depend on it.
    """
    if not journal.exists():
        return
    places = {}
    with jsonl.Journal(journal):  # removes a last line that a kill has cut
        pass
    with open(journal, "rb") as file:
        start = 0
        for line in file:
            places[json.loads(line)["question_id"]] = start
            start += len(line)
        for question in questions:
            if question.id in places:
                file.seek(places[question.id])
                yield json.loads(file.readline())


async def for_each_question(
    questions: Sequence[Question],
    work: Callable[[Question], Awaitable[dict[str, Any] | None]],
    journal: Path,
    *,
    concurrency: int,
    description: str,
) -> None:
    """Run `work` for every question that the journal does not hold yet, and append what it returns.

    Each record must have a `question_id`; None says that there is nothing to do for a question, and leaves no trace.
    What is finished when the run is killed stays finished.
    The first error ends the run, after the calls under way were given up.
    """
    with jsonl.Journal(journal) as file:
        done = {record["question_id"] for _, record in jsonl.read(journal)}
        waiting = [question for question in questions if question.id not in done]
        before = len(questions) - len(waiting)
        queue = iter(waiting)
        with tqdm(total=len(questions), initial=before, desc=description, unit="question", smoothing=0.05) as bar:

            async def worker() -> None:
                for question in queue:
                    record = await work(question)
                    if record is not None:
                        file.append(record)
                    bar.update()

            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(concurrency, len(waiting))):
                        workers.create_task(worker())
            except BaseExceptionGroup as group:
                raise _first_leaf(group) from None


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
