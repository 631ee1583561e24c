"""A client for OpenAI-compatible endpoints: bounded concurrency, retries, replicas, and a cache of every reply."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import logging
import re
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple
from weakref import WeakValueDictionary

import tenacity
from annotated_types import Interval, MinLen

from notewriter.ground.errors import UserError
from notewriter.ground.lazy import Lazy
from notewriter.ground.options import with_effect
from notewriter.ground.records import Completion, Message, Sampling
from notewriter.ground.terminal import escape_controls, say_once
from notewriter.models import continuation
from notewriter.models.cache import ResponseCache
from notewriter.models.completions import (
    CUSTOM_ID,
    UNREADABLE,
    NoAnswer,
    Unfinished,
    ask,
    counts_tokens,
    is_finished,
    kept_apart,
    read,
    stopped,
    tokens_of,
)
from notewriter.models.connection import UnreadableReply, connect, is_gone, is_transient, reason, rejected_key, retrying
from notewriter.models.dialects import NEUTRAL_AT, NOT_TAKEN_BY, PARAMETERS, in_words, known_dialect
from notewriter.models.prices import BYTES_A_TOKEN, Reserve, for_free
from notewriter.models.replicas import Replica, Replicas
from notewriter.models.thoughts import ends_opened_thought, is_unmarked, opens_thought

if TYPE_CHECKING:
    import openai

    from notewriter.models.batches import Batches
    from notewriter.models.completions import Reply
else:
    openai = Lazy("openai")

logger = logging.getLogger(__name__)

TAKE_ALL = ("vllm", "sglang")
"""Owners of listed models whose servers take all sampling parameters."""

REFUSALS = 20
"""The number of refusals in a row, without a reply in between, that ends a run.

Refusals of a prompt for its length or its content do not count.
"""

MOST_OPENINGS = 1024
"""The number of rendered prompts kept for texts that are being continued; a dropped one is requested again."""

TRIAL = "Reply with one word: yes"
"""A prompt that shows whether an endpoint takes requests, and how its replies begin."""

TRIAL_TOKENS = 1024
"""The least `max_tokens` of a reply to `TRIAL` that is to show whether the chat template begins a thought."""

_TOO_LONG = re.compile(
    r"context[ _-](length|window|size|limit)|(too|longer) (long|than)|too large for model|reduce the length"
    r"|exceed(s|ed|ing)? (the |model )*(max|limit|configured limit|token limit)|too many tokens"
    r"|maximum (prompt|input|sequence) length|less than \d+ tokens|inputs` tokens|input length should be",
    re.IGNORECASE,
)
"""In an error's words or code (`context_length_exceeded`): the prompt is too long, as different servers say it."""

_FILTERED = re.compile(
    r"content[ _-]?(filter|policy|management|exists risk)|usage (guideline|polic)|high risk|inappropriate content"
    r"|data_?inspection|moderation|flagged",
    re.IGNORECASE,
)
"""Likewise: the prompt is refused for what it says, by xAI and OpenRouter as if the key gave no permission (403)."""


class RequestRefused(Exception):
    """A request that gets no answer, for example because the prompt exceeds the context or a filter stops the reply."""


@dataclass(frozen=True)
class Endpoint:
    """A model behind an address, with the limits on its use.

    `base_url` may list several servers of the same model (replicas), separated by commas. `identity` identifies the
    model in the response cache: by default the first address, for a local checkpoint the hash of its weights.
    `api_key_env` names the environment variable with the key, so that configurations contain no keys. `concurrency`
    is the number of requests in flight per server, `timeout` the seconds that it may be silent, `attempts` the number
    of tries per request; a server that cannot be reached is retried for at least `patience` seconds. With `batch`,
    calls go through the endpoint's batch API (`batches`): cheaper, and answered within a day. `parameters` renames
    sampling parameters or, with null, leaves them out (`dialects`), before what is known of the model by its name.
    """

    base_url: str = field(metadata={"effect": False})
    model: str
    identity: str = ""
    api_key_env: Annotated[str, MinLen(1)] = field(default="OPENAI_API_KEY", metadata={"effect": False})
    concurrency: Annotated[int, Interval(ge=1, le=65_536)] = field(default=64, metadata={"effect": False})
    timeout: Annotated[float, Interval(gt=0)] = field(default=600.0, metadata={"effect": False})
    attempts: Annotated[int, Interval(ge=1)] = field(default=8, metadata={"effect": False})
    patience: Annotated[float, Interval(ge=0)] = field(default=300.0, metadata={"effect": False})
    extra_body: dict[str, Any] = field(default_factory=dict)
    batch: bool = field(default=False, metadata={"effect": False})
    parameters: dict[str, str | None] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        """The addresses of the replicas."""
        return [address.strip() for address in self.base_url.split(",")]

    @property
    def names(self) -> dict[str, str]:
        """The sampling parameters that are sent -> their names in requests."""
        return {name: other for name in PARAMETERS if (other := self.parameters.get(name, name))}


def cache_key(endpoint: Endpoint, messages: list[Message], sampling: Sampling, sample: int) -> str:
    """A hash of everything that can change the reply, including the sample's index.

    Concurrency, timeouts, retries and further replicas are left out, so that tuning them keeps the cache valid.
    """
    parts = [
        endpoint.identity or endpoint.addresses[0],
        endpoint.model,
        messages,
        with_effect(asdict(sampling), Sampling),
        endpoint.extra_body,
        sample,
        # Left out where all parameters have their own names: older caches have keys without it.
        *([endpoint.names] if endpoint.parameters else []),
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


class _Call(NamedTuple):
    """A call on its way to the endpoint; `key` is that of its reply in the cache."""

    messages: list[Message]
    sampling: Sampling
    key: str
    reserve: Reserve


class Client:
    """A client for one endpoint, safe to use from many tasks of one event loop.

    `revive` has a function for each server that this process started, which restarts it if it has died; a retry waits
    until one of them is alive. `waiting` names the server that a call waits for, and the reason; it is empty after a
    reply. `received` counts the completion tokens of replies that did not come from the cache. `left_to_server` names
    the sampling parameters for which the server has values of its own that no request can change, as far as `check`
    could see.
    """

    def __init__(
        self, endpoint: Endpoint, cache: ResponseCache | None = None, revive: Sequence[Callable[[], None]] = ()
    ) -> None:
        # A checkpoint served here may have any name.
        dialect = {} if endpoint.identity else known_dialect(endpoint.model)
        parameters = {**dialect, **endpoint.parameters}
        parameters = {name: other for name, other in parameters.items() if other != name}
        if dialect and parameters:
            logger.info("%s: %s: %s", endpoint.base_url, endpoint.model, in_words(parameters))
        self.endpoint = replace(endpoint, parameters=parameters)
        self.received = 0
        self.waiting = ""
        self._refused = 0
        self._is_ours = bool(revive)
        self._owners: set[str] = set()
        self.left_to_server: tuple[str, ...] = ()
        self._cache = cache
        self._batches: Batches | None = None
        if endpoint.batch:
            if cache is None:
                raise ValueError("batches are recorded in a response cache; give one")
            from notewriter.models.batches import MAX_REQUESTS, Batches

            self._batches = Batches(endpoint, cache)
            replicas = [Replica(endpoint.base_url, self._batches.chat)]
            self._slots = asyncio.Semaphore(MAX_REQUESTS)
        else:
            replicas = [
                Replica(address, connect(address, endpoint.timeout, endpoint.api_key_env))
                for address in endpoint.addresses
            ]
            self._slots = asyncio.Semaphore(endpoint.concurrency * len(replicas))
        self._replicas = Replicas(replicas, revive)
        self._supports_schemas = True
        self._openings: dict[str, str] = {}
        self._opens_thoughts: bool | None = None
        self._says_prompts, self._parts_thoughts = True, False
        self._in_flight: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def complete(
        self,
        messages: list[Message],
        sampling: Sampling,
        *,
        sample: int = 0,
        affinity: str = "",
        reserve: Reserve = for_free,
    ) -> Completion:
        """The model's reply to a chat, from the cache if possible.

        `sample` numbers the draws with the same prompt and sampling. Requests with the same `affinity` go to one
        replica, whose prefix cache contains their common prefix, and to another one only if it is down. Each
        request waits for `reserve`, and its reply is paid there even if it is of no use.

        A reply that ended within a thought begun by the chat template has no mark of a thought: all of it is thought.

        Raises:
            RequestRefused: this request cannot be served (HTTP 400, 413, 422), or its reply is no answer.
            UserError: the endpoint cannot be reached after all attempts, or rejects the key or the model, or has
                refused `REFUSALS` requests in a row, or the call could exceed the budget.
        """
        call = _Call(messages, sampling, cache_key(self.endpoint, messages, sampling, sample), reserve)
        completion = await self._cached_or_asked(call, affinity)
        continues = sampling.continues or messages[-1]["role"] == "assistant"
        if sampling.raw or continues or completion.thought:
            return completion
        if ends_opened_thought(completion.text):
            self._opens_thoughts = True
        if messages[-1]["content"] == TRIAL:
            if completion.finish_reason == "stop" and self._opens_thoughts is None:
                self._opens_thoughts = False
            return completion
        # By its limit, or by a stop string that was meant for the reply.
        cut = completion.finish_reason == "length" or (sampling.stop and "stop" in self.endpoint.names)
        if cut and completion.text and is_unmarked(completion.text) and await self._opens(call):
            return replace(completion, text="", thought=completion.text)
        return completion

    async def _cached_or_asked(self, call: _Call, affinity: str) -> Completion:
        # Of identical concurrent calls one is sent; the others wait and find the reply in the cache.
        lock = self._in_flight.setdefault(call.key, asyncio.Lock())
        async with lock:
            if self._cache is not None and (cached := self._cache.get(call.key)) and is_finished(cached):
                return cached
            async with self._slots:
                try:
                    completion = await self._ask_until_answered(call, affinity)
                except RequestRefused as refusal:
                    self._count_refusal(refusal)
                    raise
            self._refused = 0
            self.waiting = ""
            self.received += completion.completion_tokens
            if self._cache is not None:
                self._cache.put(call.key, completion)
            self._forget(call.key)
        return completion

    def _forget(self, key: str) -> None:
        if self._batches is not None:
            self._batches.forget(key)

    def _count_refusal(self, refusal: RequestRefused) -> None:
        # The long prompts among hundreds in flight are refused before the first reply is there.
        cause = refusal.__cause__
        self._refused += not (cause.of_prompt if isinstance(cause, NoAnswer) else _is_of_prompt(cause or refusal))
        if self._refused >= REFUSALS:
            raise UserError(
                f"{self.endpoint.base_url}: refused {self._refused} requests in a row ({refusal}); finished work is "
                "kept: correct what it names, and run the same command again with --retry_errors"
            ) from refusal

    async def _opens(self, call: _Call) -> bool:
        """Whether the chat template begins a thought in the prompt of a call whose reply ended early; found out once.

        vLLM returns its prompt of the chat. Elsewhere the reply to `TRIAL` shows it, which goes through no batch.
        """
        async with self._in_flight.setdefault("opening", asyncio.Lock()):
            if self._opens_thoughts is None:
                prompt = None
                if self._owners == {"vllm"}:
                    trial = call._replace(
                        messages=[Message(role="user", content=TRIAL)], sampling=Sampling(max_tokens=1)
                    )
                    first = await self._ask_first(trial, continuation.FIRST)
                    prompt = continuation.opening_of(first)
                self._opens_thoughts = opens_thought(prompt) if prompt else await self._shows_a_thought(call)
        return self._opens_thoughts

    async def _shows_a_thought(self, call: _Call) -> bool:
        """Whether the reply to `TRIAL` ends a thought that it did not begin."""
        room = max(call.sampling.max_tokens, TRIAL_TOKENS)
        sampling = replace(call.sampling, max_tokens=room, stop=(), json_schema=None, logprobs=False, alternatives=())
        messages = [Message(role="user", content=TRIAL)]
        reply = await self._ask_first(call._replace(messages=messages, sampling=sampling))
        with contextlib.suppress(NoAnswer, UnreadableReply, *UNREADABLE):
            shown = read(reply, messages, sampling, 0.0)
            if shown.finish_reason == "stop" or not is_unmarked(shown.text):
                return ends_opened_thought(shown.text)
        say_once(
            logger,
            f"{self.endpoint.base_url}: replies ended early, and it is unknown whether they are thoughts of "
            f"{self.endpoint.model}; if it thinks, raise --max_tokens, or start the server with a reasoning parser",
        )
        return False

    async def _ask_first(self, call: _Call, extra_body: Mapping[str, Any] = MappingProxyType({})) -> Any:
        """A reply that is not kept; None where there is none."""
        api = self._batches.api if self._batches else self._replicas.of("").api
        with contextlib.suppress(NoAnswer, openai.APIError, UnreadableReply):
            sent: tuple[Reply, float] = await self._retrying()(self._send, api, call, extra_body)
            return sent[0]
        return None

    async def try_out(self, sampling: Sampling, reserve: Reserve = for_free) -> None:
        """Ask for a word, so that refusals are known before other calls are paid.

        Nothing is sent to servers that take all parameters, and in batches, which would take a day. Like any reply it
        is in the cache, so that a run which resumes does not ask again.

        Raises:
            UserError: the endpoint refuses, with its reason; or as `complete`.
        """
        if (self._owners and self._owners <= {*TAKE_ALL}) or self.endpoint.batch:
            return
        try:
            await self.complete([{"role": "user", "content": TRIAL}], sampling, reserve=reserve)
        except RequestRefused as refusal:
            raise UserError(
                f"{self.endpoint.base_url}: refuses a first request to {self.endpoint.model} ({refusal}); correct what "
                "it names (`parameters` of an endpoint renames a parameter or leaves it out)"
            ) from refusal

    async def check(self) -> None:
        """List the models of every replica, so that a wrong address fails before any work is done.

        From here on, requests to a server that this process did not start also name the sampling parameters for which
        it may have values of its own (`dialects.NEUTRAL_AT`).

        Raises:
            UserError: no replica can be reached, or one rejects the key or does not serve the model.
        """
        replicas = self._replicas.all
        outcomes = await asyncio.gather(*map(self._models_at, replicas), return_exceptions=True)
        problems = []
        for replica, outcome in zip(replicas, outcomes, strict=True):
            if isinstance(outcome, openai.APIError | UnreadableReply):
                problems.append(f"{replica.base_url}: cannot be reached ({reason(outcome)})")
            elif isinstance(outcome, BaseException):
                raise outcome
            elif outcome and self.endpoint.model not in outcome:
                served = ", ".join(escape_controls(name)[:100] for name in outcome[:5])
                raise UserError(
                    f"{replica.base_url}: does not serve model {self.endpoint.model!r}; it serves {served}; correct "
                    "model or base_url"
                )
        if len(problems) == len(replicas):
            raise UserError(f"{problems[0]}; start the server, or correct base_url")
        for problem in problems:
            logger.warning("%s; the other replicas take over its requests", problem)
        self._name_all_sampling()

    def _name_all_sampling(self) -> None:
        if self._is_ours or not self._owners:
            return
        if self._owners <= NEUTRAL_AT.keys():
            # A server takes no notice of another one's names. Also part of the key in the cache, as what a server adds
            # was in the replies before.
            neutral = {name: value for owner in sorted(self._owners) for name, value in NEUTRAL_AT[owner].items()}
            self.endpoint = replace(self.endpoint, extra_body={**neutral, **self.endpoint.extra_body})
        elif samplers := [NOT_TAKEN_BY.get(owner, owner) for owner in sorted(self._owners) if self._samples(owner)]:
            self.left_to_server = ("top_k", "min_p", "repetition_penalty")
            say_once(
                logger,
                f"{self.endpoint.base_url}: {' and '.join(samplers)} samples with its own "
                f"{', '.join(self.left_to_server)}, which no option of the run names; set them in the model's "
                "settings there (top_k 0, min_p 0, repeat_penalty 1), or serve the model with vLLM or llama.cpp",
            )

    def _samples(self, owner: str) -> bool:
        """Whether the servers of an owner sample with values of their own that they are not sent others for."""
        return owner in NOT_TAKEN_BY or bool(self._owners & NEUTRAL_AT.keys())

    async def _models_at(self, replica: Replica) -> list[str]:
        """The models that a replica lists; empty if it does not list any."""

        api = self._batches.api if self._batches else replica.api

        async def list_models() -> list[str]:
            try:
                models = [model async for model in api.with_options(timeout=20).models.list()]
                listed = [model.id for model in models]
                # Behind a proxy there may be other models of other servers.
                of_it = (each for each in models if each.id == self.endpoint.model)
                self._owners |= {str(getattr(each, "owned_by", "")) for each in of_it}
            except UNREADABLE as error:
                raise UnreadableReply(f"unreadable reply: {error}") from error
            return [name for name in listed if isinstance(name, str)]

        try:
            return await retrying(3)(list_models)
        except openai.AuthenticationError as error:
            raise UserError(rejected_key(self.endpoint.base_url, self.endpoint.api_key_env, error)) from error
        except (openai.NotFoundError, openai.PermissionDeniedError):
            return []  # Some endpoints do not list their models; the first call will show.

    async def close(self) -> None:
        """Close the connections; a server that is being restarted is not waited for."""
        await self._replicas.close()
        if self._batches is not None:
            await self._batches.close()

    async def _ask_until_answered(self, call: _Call, affinity: str) -> Completion:
        endpoint, tries = self.endpoint, self._retrying()
        try:
            return await tries(self._ask_a_replica, call, affinity)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            if isinstance(error, openai.PermissionDeniedError) and _is_of_prompt(error):
                raise RequestRefused(reason(error)) from error
            raise UserError(rejected_key(endpoint.base_url, endpoint.api_key_env, error)) from error
        except openai.NotFoundError as error:
            if call.sampling.raw:
                raise UserError(
                    f"{endpoint.base_url}: has no /v1/completions (raw completions) for model {endpoint.model!r} "
                    f"({reason(error)}); this method needs a server that has, such as vLLM"
                ) from error
            raise UserError(
                f"{endpoint.base_url}: has no model {endpoint.model!r} or no chat completions; "
                f"correct model or base_url (which usually ends in /v1) (it says: {reason(error)})"
            ) from error
        except openai.APIError as error:
            if isinstance(error, openai.APIStatusError) and not is_transient(error):
                raise RequestRefused(reason(error)) from error
            raise _gave_up(endpoint, tries.statistics["attempt_number"], error) from error
        except (NoAnswer, Unfinished) as error:
            raise RequestRefused(reason(error)) from error
        except UnreadableReply as error:
            raise _gave_up(endpoint, tries.statistics["attempt_number"], error) from error

    def _retrying(self) -> tenacity.AsyncRetrying:
        return retrying(self.endpoint.attempts, self.endpoint.patience, self._before_retry)

    async def _ask_a_replica(self, call: _Call, affinity: str) -> Completion:
        """Send the request to the replica of its affinity, or to the next one while that one is down."""
        replica = self._replicas.of(affinity)
        try:
            return await self._ask(replica.api, call)
        except Exception as error:
            if isinstance(error, NoAnswer | UnreadableReply):
                # It would be read again from the batch that it came with.
                self._forget(call.key)
            if is_transient(error) and not isinstance(error, openai.RateLimitError):
                replica.avoid()
            raise

    async def _before_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        logger.debug("attempt %d failed: %s", state.attempt_number, error)
        if isinstance(error, Exception):
            until = f"for up to {self.endpoint.patience:g} s" if is_gone(error) else f"{self.endpoint.attempts} times"
            self.waiting = f"{self.endpoint.base_url} does not answer ({reason(error)}); it is asked again, {until}"
        if state.attempt_number == self.endpoint.attempts and isinstance(error, Exception):
            logger.warning("%s: %s; waiting for the server", self.endpoint.base_url, reason(error))
        await self._replicas.until_one_is_alive()

    async def _ask(self, api: openai.AsyncOpenAI, call: _Call) -> Completion:
        if call.sampling.continues:
            return await self._continue(api, call)
        without_schema = call._replace(sampling=replace(call.sampling, json_schema=None))
        if call.sampling.json_schema is None or not self._supports_schemas:
            return await self._ask_once(api, without_schema)
        try:
            return await self._ask_once(api, call)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            # Error messages differ by server; if the request succeeds without the schema, the schema was the problem.
            completion = await self._ask_once(api, without_schema)
            if self._supports_schemas:
                self._supports_schemas = False
                logger.warning(
                    "%s: does not support JSON schemas (%s); they are no longer sent",
                    self.endpoint.base_url,
                    reason(error),
                )
            return completion

    async def _continue(self, api: openai.AsyncOpenAI, call: _Call) -> Completion:
        """The next part of a text (see `continuation`)."""
        address = self.endpoint.base_url
        if self.endpoint.batch:
            raise RequestRefused(f"{address}: no batch continues a text; leave out `batch`")
        chat, text = continuation.parts(call.messages)
        key = json.dumps(chat)
        if self._says_prompts and key not in self._openings:
            is_answer = not text and not self._parts_thoughts
            only_opening = replace(call.sampling, max_tokens=1, stop=())
            first = call if is_answer else call._replace(messages=chat, sampling=only_opening)
            # A server that does not know the parameters may refuse them.
            with contextlib.suppress(openai.BadRequestError, openai.UnprocessableEntityError):
                reply, seconds = await self._send(api, first, continuation.FIRST)
                self._keep_opening(key, continuation.opening_of(reply))
                self._parts_thoughts = self._parts_thoughts or kept_apart(reply) is not None
                if is_answer and not self._parts_thoughts:
                    return self._read(reply, call, seconds)
        if opening := self._openings.get(key):
            messages, sampling = continuation.as_raw(opening, text, call.sampling)
            raw = call._replace(messages=messages, sampling=sampling)
            reply, seconds = await self._send(api, raw, continuation.AS_IT_IS)
            return self._read(reply, raw, seconds)
        reply, seconds = await self._send(api, call)
        continuation.check_whole(reply, address)
        self._says_prompts = False
        return continuation.new_part(self._read(reply, call, seconds), text)

    def _keep_opening(self, key: str, opening: str | None) -> None:
        if opening is None:
            self._says_prompts = False
            return
        self._openings[key] = opening
        if len(self._openings) > MOST_OPENINGS:
            del self._openings[next(iter(self._openings))]

    async def _ask_once(self, api: openai.AsyncOpenAI, call: _Call) -> Completion:
        if call.sampling.raw and self.endpoint.batch:
            raise RequestRefused(
                f"{self.endpoint.base_url}: prompts without a chat template are not sent in batches; leave out `batch`"
            )
        reply, seconds = await self._send(api, call)
        return self._read(reply, call, seconds)

    def _read(self, reply: Reply, call: _Call, seconds: float) -> Completion:
        sampling = call.sampling
        try:
            completion = read(reply, call.messages, sampling, seconds)
        except UNREADABLE as error:
            raise UnreadableReply(f"unreadable reply: {error}") from error
        # Some servers leave a stop string in the reply, or take no notice of it. What is continued may be repeated.
        if not sampling.continues or "stop" not in self.endpoint.names:
            completion = stopped(completion, sampling)
        if sampling.logprobs and completion.tokens is None:
            raise RequestRefused(f"{self.endpoint.base_url}: returns no log-probabilities; use vLLM, which does")
        if not counts_tokens(reply):
            if sampling.logprobs:
                # A reply's begin where the prompt ends.
                raise RequestRefused(f"{self.endpoint.base_url}: does not say how many tokens a prompt has; use vLLM")
            say_once(
                logger,
                f"{self.endpoint.base_url}: does not say how many tokens prompts and replies have; they are estimated, "
                f"a token for {BYTES_A_TOKEN} bytes, and so are costs",
            )
        return completion

    async def _send(
        self, api: openai.AsyncOpenAI, call: _Call, extra_body: Mapping[str, Any] = MappingProxyType({})
    ) -> tuple[Reply, float]:
        """The reply to a request, which is paid, and the seconds that it took."""
        endpoint = self.endpoint
        try:
            async with call.reserve(call.messages, call.sampling) as pay:
                start = time.perf_counter()
                reply = await ask(
                    api,
                    endpoint.model,
                    call.messages,
                    call.sampling,
                    endpoint.names,
                    {**endpoint.extra_body, **extra_body},
                    {CUSTOM_ID: call.key} if endpoint.batch else None,
                )
                seconds = time.perf_counter() - start
                pay(*tokens_of(reply, call.messages))
        except UNREADABLE as error:
            raise UnreadableReply(f"unreadable reply: {error}") from error
        return reply, seconds


def _is_of_prompt(error: BaseException) -> bool:
    """Whether a request was refused for its prompt: for its length, or for what it says."""
    said = f"{reason(error)} {getattr(error, 'code', '')} {getattr(error, 'type', '')}"
    return bool(_TOO_LONG.search(said) or _FILTERED.search(said))


def _gave_up(endpoint: Endpoint, attempts: int, error: Exception) -> UserError:
    return UserError(
        f"{endpoint.base_url}: no reply after {attempts} attempts ({reason(error)}); "
        "finished calls are kept; run the same command again when it is up"
    )
