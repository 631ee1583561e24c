"""Models behind OpenAI-compatible endpoints: bounded concurrency, retries, and a cache of every reply."""

import asyncio
import hashlib
import json
import logging
import operator
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from typing import Annotated, Any
from weakref import WeakValueDictionary

import openai
import tenacity
from annotated_types import Interval, MinLen

from notewriter.errors import UserError
from notewriter.models.cache import ResponseCache
from notewriter.models.connection import REMOVED, Unreadable, connect, reason
from notewriter.records import Completion, Message, Sampling
from notewriter.terminal import harmless
from notewriter.text import without_surrogates

logger = logging.getLogger(__name__)

REST = 10.0
"""Seconds in which a replica that failed is passed over where another one is up."""

_UNREADABLE = (ValueError, AttributeError, LookupError, TypeError, OverflowError, RecursionError)
"""What the library raises over a reply that is cut, empty or of another shape."""


class RequestRefused(Exception):
    """The endpoint understood the request and will never serve it, for example a prompt beyond its context."""


@dataclass(frozen=True)
class Endpoint:
    """Where a model is reached and how hard it may be asked.

    `base_url` may name several servers of the same model (replicas), with commas between. `identity` says
    whose replies these are in the response cache; it is the (first) address unless a local checkpoint is
    served, where it is the hash of the weights. `api_key_env` names the environment variable that holds
    the key, so that no key stands in a configuration. `concurrency` is the number of requests in flight a
    server, `timeout` the seconds for the whole of a reply, `attempts` the number of tries for
    a request; a server that cannot be connected to is waited for `patience` seconds all the same.
    """

    base_url: str
    model: str
    identity: str = ""
    api_key_env: Annotated[str, MinLen(1)] = "OPENAI_API_KEY"
    concurrency: Annotated[int, Interval(ge=1, le=65_536)] = 64
    timeout: Annotated[float, Interval(gt=0)] = 600.0
    attempts: Annotated[int, Interval(ge=1)] = 8
    patience: Annotated[float, Interval(ge=0)] = 300.0
    extra_body: dict[str, Any] = field(default_factory=dict)

    @property
    def addresses(self) -> list[str]:
        """The address of each replica."""
        return [address.strip() for address in self.base_url.split(",")]


def cache_key(endpoint: Endpoint, messages: list[Message], sampling: Sampling, sample: int) -> str:
    """A hash of everything that can change the reply, and of the sample's index.

    What cannot change it (concurrency, timeouts, retries, further replicas) stays out, so that tuning them
    loses nothing.
    """
    parts = [
        endpoint.identity or endpoint.addresses[0],
        endpoint.model,
        messages,
        asdict(sampling),
        endpoint.extra_body,
        sample,
    ]
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


@dataclass
class _Replica:
    """One server of an endpoint; it is not asked before `rests_until` (monotonic clock) if another one is up."""

    base_url: str
    api: openai.AsyncOpenAI
    rests_until: float = 0.0


class Client:
    """One endpoint. Safe to use from many tasks of one event loop.

    `revive` is called before a call is tried again; a server that this process started and that
    died is started again there. `received` counts the completion tokens of the replies that were not cached.
    """

    def __init__(
        self, endpoint: Endpoint, cache: ResponseCache | None = None, revive: Callable[[], None] | None = None
    ) -> None:
        self.endpoint = endpoint
        self.received = 0
        self._cache = cache
        self._revive = revive
        self._replicas = [
            _Replica(address, connect(address, endpoint.timeout, endpoint.api_key_env))
            for address in endpoint.addresses
        ]
        self._places = asyncio.Semaphore(endpoint.concurrency * len(self._replicas))
        self._takes_schemas = True
        self._under_way: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    async def complete(
        self, messages: list[Message], sampling: Sampling, *, sample: int = 0, affinity: str = ""
    ) -> Completion:
        """The model's reply to a chat, from the cache where it was asked before.

        `sample` numbers the draws that share prompt and sampling. Requests of one `affinity` go to one
        replica, whose prefix cache holds what their prompts share, and to another only where that one is down.

        Raises:
            RequestRefused: this one request cannot be served (HTTP 400, 413, 422).
            UserError: the endpoint cannot be reached after all attempts, or refuses the key or the model.
        """
        key = cache_key(self.endpoint, messages, sampling, sample)
        # The same call made twice at once is sent once: the second waits and finds it in the cache.
        lock = self._under_way.setdefault(key, asyncio.Lock())
        async with lock:
            if self._cache is not None and (cached := self._cache.get(key)):
                return cached
            async with self._places:
                completion = await self._ask_until_answered(messages, sampling, affinity)
            self.received += completion.completion_tokens
            if self._cache is not None:
                self._cache.put(key, completion)
        return completion

    async def check(self) -> None:
        """Ask every replica for its models, so that a wrong address fails before any work.

        Raises:
            UserError: none can be reached, or one refuses the key or does not serve the model.
        """
        outcomes = await asyncio.gather(*map(self._models_at, self._replicas), return_exceptions=True)
        for replica, outcome in zip(self._replicas, outcomes, strict=True):
            if isinstance(outcome, BaseException) and not isinstance(outcome, openai.APIError | Unreadable):
                raise outcome
            if isinstance(outcome, list) and outcome and self.endpoint.model not in outcome:
                served = ", ".join(harmless(name)[:100] for name in outcome[:5])
                raise UserError(f"{replica.base_url}: does not serve model {self.endpoint.model!r}; it serves {served}")
        failed = [
            (replica, outcome)
            for replica, outcome in zip(self._replicas, outcomes, strict=True)
            if isinstance(outcome, Exception)
        ]
        for replica, error in failed:
            problem = f"{replica.base_url}: cannot be reached ({reason(error)})"
            if len(failed) == len(self._replicas):
                raise UserError(f"{problem}; start the server, or correct base_url") from error
            logger.warning("%s; the other replicas do its work", problem)

    async def _models_at(self, replica: _Replica) -> list[str]:
        """The models that a replica says it serves; empty where it does not tell."""

        async def ask() -> list[str]:
            try:
                listed = [model.id async for model in replica.api.with_options(timeout=20).models.list()]
            except _UNREADABLE as error:
                raise Unreadable(f"unreadable reply: {error}") from error
            return [name for name in listed if isinstance(name, str)]

        try:
            return await tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(_is_transient),
                wait=_wait,
                stop=tenacity.stop_after_attempt(3),
                reraise=True,
            )(ask)
        except openai.AuthenticationError as error:
            raise UserError(_refused_key(self.endpoint)) from error
        except (openai.NotFoundError, openai.PermissionDeniedError):
            return []  # Some endpoints do not list their models; the first call will tell.

    async def close(self) -> None:
        """Close the connections."""
        await asyncio.gather(*(replica.api.close() for replica in self._replicas))

    async def _ask_until_answered(self, messages: list[Message], sampling: Sampling, affinity: str) -> Completion:
        endpoint = self.endpoint
        attempts = 0
        try:
            async for attempt in tenacity.AsyncRetrying(
                retry=tenacity.retry_if_exception(_is_transient),
                wait=_wait,
                stop=self._gives_up,
                before_sleep=self._before_retry,
                reraise=True,
            ):
                attempts += 1
                with attempt:
                    return await self._ask_a_replica(messages, sampling, affinity)
        except (openai.AuthenticationError, openai.PermissionDeniedError) as error:
            raise UserError(_refused_key(endpoint)) from error
        except openai.NotFoundError as error:
            raise UserError(
                f"{endpoint.base_url}: knows no model {endpoint.model!r} or no chat completions; "
                "correct model or base_url (it usually ends in /v1)"
            ) from error
        except openai.APIError as error:
            if isinstance(error, openai.APIStatusError) and not _is_transient(error):
                raise RequestRefused(reason(error)) from error
            raise _gave_up(endpoint, attempts, error) from error
        except Unreadable as error:
            raise _gave_up(endpoint, attempts, error) from error
        raise AssertionError("tenacity ends in a reply or an exception")

    async def _ask_a_replica(self, messages: list[Message], sampling: Sampling, affinity: str) -> Completion:
        """Ask the affinity's own replica, or its next one while that one rests after a fault."""
        now = time.monotonic()
        # Rendezvous hashing: where a replica is added or lost, no other's questions move.
        replica = min(
            self._replicas,
            key=lambda each: (each.rests_until > now, hashlib.sha256(f"{affinity} {each.base_url}".encode()).digest()),
        )
        try:
            return await self._ask(replica.api, messages, sampling)
        except Exception as error:
            if _is_transient(error) and not isinstance(error, openai.RateLimitError):
                replica.rests_until = time.monotonic() + REST
            raise

    def _gives_up(self, state: tenacity.RetryCallState) -> bool:
        error = state.outcome.exception() if state.outcome else None
        enough = state.attempt_number >= self.endpoint.attempts
        return enough and not (_is_gone(error) and state.idle_for < self.endpoint.patience)

    async def _before_retry(self, state: tenacity.RetryCallState) -> None:
        error = state.outcome.exception() if state.outcome else None
        logger.debug("attempt %d failed: %s", state.attempt_number, error)
        if state.attempt_number == self.endpoint.attempts and isinstance(error, Exception):
            logger.warning("%s: %s; waiting for it", self.endpoint.base_url, reason(error))
        if self._revive:
            await asyncio.to_thread(self._revive)

    async def _ask(self, api: openai.AsyncOpenAI, messages: list[Message], sampling: Sampling) -> Completion:
        if sampling.json_schema is None or not self._takes_schemas:
            return await self._ask_once(api, messages, replace(sampling, json_schema=None))
        try:
            return await self._ask_once(api, messages, sampling)
        except (openai.BadRequestError, openai.UnprocessableEntityError) as error:
            # Servers word it in many ways; if the same request without a schema is served, it was the schema.
            completion = await self._ask_once(api, messages, replace(sampling, json_schema=None))
            if self._takes_schemas:
                self._takes_schemas = False
                logger.warning(
                    "%s: takes no JSON schema (%s); asked without from now on", self.endpoint.base_url, reason(error)
                )
            return completion

    async def _ask_once(self, api: openai.AsyncOpenAI, messages: list[Message], sampling: Sampling) -> Completion:
        start = time.perf_counter()
        try:
            reply = await api.chat.completions.create(
                model=self.endpoint.model,
                messages=messages,  # type: ignore[arg-type]
                temperature=sampling.temperature,
                top_p=sampling.top_p,
                max_tokens=sampling.max_tokens,
                stop=list(sampling.stop) or openai.omit,
                logprobs=sampling.logprobs or openai.omit,
                response_format=_response_format(sampling.json_schema),
                extra_body=self.endpoint.extra_body or None,
            )
            completion = _read(reply, sampling, time.perf_counter() - start)
        except _UNREADABLE as error:
            raise Unreadable(f"unreadable reply: {error}") from error
        if sampling.logprobs and completion.tokens is None:
            raise RequestRefused(f"{self.endpoint.base_url}: gives no log-probabilities; use one that does, as vLLM")
        if completion.tokens and REMOVED in completion.text:
            # Token by token the key would still be there.
            raise RequestRefused(f"{self.endpoint.base_url}: repeats the key in its reply; use another endpoint")
        return completion


def _read(reply: Any, sampling: Sampling, seconds: float) -> Completion:
    """The completion in a reply, which may be of any shape.

    Raises:
        Any of `_UNREADABLE`: it is no completion.
    """
    choice, usage = reply.choices[0], reply.usage
    scored = choice.logprobs.content if sampling.logprobs and choice.logprobs else None
    if usage is None or choice.finish_reason is None:
        raise ValueError("no finish reason or no usage")
    details = usage.prompt_tokens_details
    return Completion(
        text=without_surrogates(choice.message.content or ""),
        finish_reason=without_surrogates(choice.finish_reason),
        prompt_tokens=operator.index(usage.prompt_tokens),
        completion_tokens=operator.index(usage.completion_tokens),
        cached_tokens=operator.index(details.cached_tokens or 0) if details else 0,
        seconds=round(seconds, 3),
        tokens=[(without_surrogates(each.token), float(each.logprob)) for each in scored]
        if scored is not None
        else None,
    )


def _response_format(schema: dict[str, Any] | None) -> Any:
    """A JSON schema in the form in which OpenAI's API and vLLM take it."""
    if schema is None:
        return openai.omit
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema, "strict": True}}


def _is_gone(error: BaseException | None) -> bool:
    """Whether nobody answers at the address, as when a server is started again."""
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {502, 503, 504}
    return isinstance(error, openai.APIConnectionError) and not isinstance(error, openai.APITimeoutError)


def _is_transient(error: BaseException) -> bool:
    if isinstance(error, openai.APIStatusError):
        return error.status_code in {408, 409, 425, 429} or error.status_code >= 500
    return isinstance(error, openai.APIConnectionError | openai.APIResponseValidationError | Unreadable)


_backoff = tenacity.wait_random_exponential(multiplier=0.5, max=30)


def _wait(state: tenacity.RetryCallState) -> float:
    """Exponential backoff with jitter, or as long as the server asks for (Retry-After in seconds), at most a minute."""
    error = state.outcome.exception() if state.outcome else None
    if isinstance(error, openai.APIStatusError):
        asked = error.response.headers.get("retry-after", "")
        if asked.isdecimal():
            return min(float(asked), 60.0)
    return _backoff(state)


def _refused_key(endpoint: Endpoint) -> str:
    return f"{endpoint.base_url}: refuses the key; put a valid one into the environment variable {endpoint.api_key_env}"


def _gave_up(endpoint: Endpoint, attempts: int, error: Exception) -> UserError:
    return UserError(
        f"{endpoint.base_url}: no reply after {attempts} attempts ({reason(error)}); "
        "finished calls are kept, run the same command again when it is up"
    )
