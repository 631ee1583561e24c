"""What rollouts and evaluation share: models from a configuration, run folders, and going on after a kill."""

import asyncio
import contextlib
import hashlib
import json
import logging
import math
import re
import sys
import time
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from pathlib import Path
from typing import Any

import yaml
from tqdm import tqdm

from notewriter import jsonl
from notewriter.config import choose
from notewriter.errors import UserError
from notewriter.llm import Client, Endpoint, ResponseCache
from notewriter.locks import locked
from notewriter.models import fingerprint
from notewriter.prompts import Prompts
from notewriter.records import Question, Sampling
from notewriter.retrieval import open_index
from notewriter.rollout import Resources
from notewriter.serving import Server, free_ports, serve, visible_devices

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
        default=None,
        metadata={
            "help": "an OpenAI-compatible endpoint that runs already, e.g. http://node7:8000/v1; several servers of "
            "one model with commas between: a question stays on one of them, another does the work of one that is down"
        },
    )
    model: str | None = field(default=None, metadata={"help": "the model's name at base_url"})
    models: dict[str, Any] = field(
        default_factory=dict,
        metadata={
            "help": "role -> endpoint (base_url, model, api_key_env, ...) or {serve: PATH}; roles are notes, query, "
            "answer, judge; `policy` plays the roles that are not named"
        },
    )
    replicas: int = field(
        default=1,
        metadata={"help": "servers started for each model that is served, each on the next devices"},
    )
    concurrency: int = field(
        default=64,
        metadata={"help": "questions in flight at once, and requests to a server unless its endpoint says otherwise"},
    )
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
    *("concurrency", "replicas", "port", "cache", "output_dir"),
    *("base_url", "api_key_env", "timeout", "attempts", "patience"),
}
"""Settings that cannot change a result: they may differ when a run goes on.

A model is known by its name: its server may be another one than before, as after a cluster's queue.
"""


def sampling_by_stage(arguments: ModelArguments) -> tuple[Sampling, dict[str, Sampling]]:
    """The sampling for every stage, and the stages that have their own.

    Raises:
        UserError: a stage's sampling has a key that is none, or a number is one that no server takes.
    """
    general = Sampling(arguments.temperature, arguments.top_p, arguments.max_tokens)
    check_sampling(general)
    by_stage = {}
    for stage, changes in arguments.stage_sampling.items():
        try:
            by_stage[stage] = Sampling(**(asdict(general) | changes))
        except TypeError as error:
            known = ", ".join(field.name for field in fields(Sampling))
            raise UserError(f"stage_sampling: {stage}: {changes!r} has other keys than {known}") from error
        check_sampling(by_stage[stage], f"stage_sampling: {stage}: ")
    return general, by_stage


def check_sampling(sampling: Sampling, place: str = "") -> None:
    """Find numbers that every server refuses, which would leave a whole run without a reply.

    Raises:
        UserError: a temperature below 0, a top_p outside (0, 1], or less than one token; begins with `place`.
    """
    bounds = (
        ("temperature", 0.0, math.inf, "a number from 0 on"),
        ("top_p", sys.float_info.min, 1.0, "a number above 0 and at most 1"),
        ("max_tokens", 1, math.inf, "a whole number from 1 on"),
    )
    for key, least, most, words in bounds:
        value = getattr(sampling, key)
        kinds = int if key == "max_tokens" else (int, float)
        if isinstance(value, bool) or not isinstance(value, kinds) or not least <= value <= most:
            raise UserError(f"{place}{key}: {value!r} is not {words}")


@contextlib.contextmanager
def served_models(arguments: ModelArguments, log_dir: Path) -> Iterator[dict[str, tuple[Endpoint, list[Server]]]]:
    """Start the servers that are asked for; yields each role's endpoint, and its servers where we started them.

    Raises:
        UserError: no model is named, one is named twice over, or an endpoint's keys are wrong.
    """
    if arguments.concurrency < 1:
        raise UserError(f"concurrency: {arguments.concurrency} questions at once get nowhere; give at least 1")
    for role, value in arguments.models.items():
        choose("role in models", role, dict.fromkeys(ROLES))
        if not isinstance(value, dict):
            raise UserError(f"models: {role}: {value!r} is no endpoint; give {{serve: PATH}}, or base_url and model")
    if arguments.replicas < 1:
        raise UserError(f"replicas: {arguments.replicas} servers serve nobody; give at least 1")
    if arguments.replicas > 1 and arguments.port:
        raise UserError(f"port: {arguments.replicas} replicas cannot share one; leave it out, and free ones are taken")
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

    with contextlib.ExitStack() as stack:
        roles: dict[str, tuple[Endpoint, list[Server]]] = {}
        for role, specification in specifications.items():
            specification.setdefault("concurrency", arguments.concurrency)
            path = specification.pop("serve", None)
            if path is None:
                roles[role] = (_endpoint(role, specification), [])
                continue
            name = Path(path).name
            first = sum(len(servers) for _, servers in roles.values())
            servers = _serve_replicas(stack, path, name, arguments, log_dir / f"vllm-{role}.log", first)
            identity = f"{fingerprint(path)} {json.dumps(arguments.serve_options, sort_keys=True)}"
            base_url = ",".join(server.base_url for server in servers)
            specification |= {"base_url": base_url, "model": name, "identity": identity}
            roles[role] = (_endpoint(role, specification), servers)
        yield roles


def _serve_replicas(
    stack: contextlib.ExitStack, path: str, name: str, arguments: ModelArguments, log: Path, first: int
) -> list[Server]:
    """Start a model's servers, all at once since each takes minutes; `first` counts those that have devices already."""
    options = arguments.serve_options | {"served_model_name": name}
    if arguments.replicas == 1:
        return [stack.enter_context(serve(path, options, log=log, port=arguments.port))]
    size = math.prod(int(options.get(key, 1)) for key in ("tensor_parallel_size", "pipeline_parallel_size"))
    devices = [visible_devices((first + number) * size, size) for number in range(arguments.replicas)]
    ports = free_ports(arguments.replicas)

    def start(number: int) -> Server:
        own_log = log.with_stem(f"{log.stem}-{number}")
        return stack.enter_context(serve(path, options, log=own_log, port=ports[number], devices=devices[number]))

    with ThreadPoolExecutor(arguments.replicas) as pool:
        return list(pool.map(start, range(arguments.replicas)))


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
    arguments: ModelArguments, roles: dict[str, tuple[Endpoint, list[Server]]], index: Sequence[str] | None
) -> AsyncIterator[Resources]:
    """What rollouts share, with every endpoint checked; connections and cache are closed at the end."""
    check_inputs(arguments, index)
    sampling, stage_sampling = sampling_by_stage(arguments)
    prompts = Prompts(arguments.prompts_dir)
    retriever = open_index(index) if index else None
    cache = ResponseCache(arguments.cache)
    clients = {
        role: Client(endpoint, cache, partial(_revive, servers) if servers else None)
        for role, (endpoint, servers) in roles.items()
    }
    try:
        await asyncio.gather(*(client.check() for client in clients.values()))
        yield Resources(clients, prompts, retriever, sampling, stage_sampling)
    finally:
        await asyncio.gather(*(client.close() for client in clients.values()))
        cache.close()


def _revive(servers: list[Server]) -> None:
    for server in servers:
        server.ensure_alive()


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
        UserError: the folder cannot be made, another process works in it, or it holds a run with other settings
            (names the first that differs) or over questions that were others when it began.
    """
    folder = Path(output_dir)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UserError(f"{folder}: cannot be made a folder ({error.strerror}); choose another output_dir") from error
    with locked(folder):
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


def parse_shard(shard: str | None) -> tuple[int, int]:
    """`"2/4"` as (2, 4); without a shard (1, 1).

    Raises:
        UserError: it is no such text.
    """
    match = re.fullmatch(r"(\d+)/(\d+)", shard or "1/1")
    if match is None or not 1 <= int(match[1]) <= int(match[2]):
        raise UserError(f"shard: {shard!r} is not i/n with 1 <= i <= n, as 2/4 is")
    return int(match[1]), int(match[2])


def shard_of(questions: Sequence[Question], shard: str | None) -> list[Question]:
    """The questions of the shard `i/n`: every n-th one from the i-th on.

    Raises:
        UserError: it is no shard, or has no question.
    """
    number, count = parse_shard(shard)
    if number > len(questions):
        raise UserError(f"shard: {len(questions)} questions leave nothing for {shard}; make fewer shards")
    return list(questions[number - 1 :: count])


def questions_digest(questions: Sequence[Question]) -> str:
    """A hash of the questions' content in their order; it tells that a question file was changed in place."""
    digest = hashlib.sha256()
    for question in questions:
        digest.update(json.dumps(asdict(question), sort_keys=True).encode() + b"\n")
    return digest.hexdigest()


def read_config(folder: Path) -> dict[str, Any]:
    """The resolved configuration of a run.

    Raises:
        UserError: the folder holds none, or something else.
    """
    path = folder / "config.yaml"
    try:
        config = yaml.safe_load(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"{path}: cannot be read ({error.strerror}); give the folder of a run") from error
    except (yaml.YAMLError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: is not YAML; remove {folder} or choose another output_dir") from error
    if not isinstance(config, dict):
        raise UserError(f"{path}: is no run's configuration; remove {folder} or choose another output_dir")
    return config


def difference(one: dict[str, Any], other: dict[str, Any]) -> tuple[str, Any, Any] | None:
    """The first setting with an effect in which two configurations differ, with its two values."""
    one, other = _with_effect(one), _with_effect(other)
    for key in {**one, **other}:
        if one.get(key) != other.get(key):
            return key, one.get(key), other.get(key)
    return None


def _check_config(folder: Path, config: dict[str, Any]) -> None:
    if not (folder / "config.yaml").exists():
        return
    if found := difference(read_config(folder), config):
        key, before, now = found
        raise UserError(
            f"{folder}: holds a run with {key}: {before!r}, not {now!r}; choose another output_dir, or remove this one"
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
    clients: Collection[Client] = (),
    count: Callable[[dict[str, Any]], Mapping[str, int]] = lambda record: {},
) -> None:
    """Run `work` for every question that the journal does not hold yet, and append what it returns.

    Each record must have a `question_id`; None says that there is nothing to do for a question, and leaves no trace.
    What is finished when the run is killed stays finished.
    The first error ends the run, after the calls under way were given up. Beside the progress stand the
    completion tokens that the clients received a second, and the sums of what `count` tells of each record.
    """
    totals: Counter[str] = Counter()
    done = set()
    with jsonl.Journal(journal) as file:
        for _, record in jsonl.read(journal):
            done.add(record["question_id"])
            totals.update(count(record))
        waiting = [question for question in questions if question.id not in done]
        before = len(questions) - len(waiting)
        queue = iter(waiting)
        # The last points in time with the tokens received until then; the first and the last one give the rate.
        points = deque([_received(clients)], maxlen=50)
        # A terminal gets a bar that moves, a log file a line now and then.
        interval = 0.5 if sys.stderr.isatty() else 30.0
        with tqdm(
            total=len(questions),
            initial=before,
            desc=description,
            unit="question",
            smoothing=0.05,
            mininterval=interval,
            maxinterval=max(interval, 10.0),
        ) as bar:

            async def worker() -> None:
                for question in queue:
                    record = await work(question)
                    if record is not None:
                        file.append(record)
                        totals.update(count(record))
                    points.append(_received(clients))
                    seconds, tokens = (last - first for first, last in zip(points[0], points[-1], strict=True))
                    rate = {"tokens/s": round(tokens / max(seconds, 1e-9))} if clients else {}
                    bar.set_postfix({**rate, **totals}, refresh=False)
                    bar.update()

            try:
                async with asyncio.TaskGroup() as workers:
                    for _ in range(min(concurrency, len(waiting))):
                        workers.create_task(worker())
            except BaseExceptionGroup as group:
                raise _first_leaf(group) from None


def run_questions(
    models: ModelArguments,
    index: Sequence[str] | None,
    questions: Sequence[Question],
    work: Callable[[Question, Resources], Awaitable[dict[str, Any] | None]],
    journal: Path,
    *,
    description: str,
    count: Callable[[dict[str, Any]], Mapping[str, int]] = lambda record: {},
) -> None:
    """`for_each_question` with the models that it needs: servers are started, and stopped at the end.

    The servers' logs go beside the journal.
    """

    async def run(roles: dict[str, tuple[Endpoint, list[Server]]]) -> None:
        async with open_resources(models, roles, index) as resources:
            await for_each_question(
                questions,
                lambda question: work(question, resources),
                journal,
                concurrency=models.concurrency,
                description=description,
                clients=resources.clients.values(),
                count=count,
            )

    with served_models(models, journal.parent) as roles:
        asyncio.run(run(roles))


def _received(clients: Collection[Client]) -> tuple[float, int]:
    """The time in seconds, and the completion tokens received until now."""
    return time.monotonic(), sum(client.received for client in clients)


def _first_leaf(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error
