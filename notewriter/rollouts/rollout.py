"""Rollouts: a method can retrieve and generate, and everything it does is recorded in a trace."""

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from typing import Any

from notewriter.artifacts.traces import ControlReply, FoundPassage, Generation, Retrieval, Trace
from notewriter.ground.errors import UserError
from notewriter.ground.plugins import Misreturn, awaited, faults_of
from notewriter.ground.records import MAX_TOKENS, Completion, Message, Passage, Question, Sampling
from notewriter.ground.text import places_of, without_surrogates, words_in
from notewriter.ground.typed import shown
from notewriter.models.client import RequestRefused
from notewriter.models.thoughts import after_thinking, without_thinking
from notewriter.retrieval.chain import find
from notewriter.rollouts.controls import Control, empty
from notewriter.rollouts.method import Method, Stage
from notewriter.rollouts.resources import Resources


class MethodEnded(Exception):
    """Raised by a rollout that ends its method before the answer; no fault of the method."""


class Rollout:
    """One run of a method on one question.

    A method acts only through `retrieve` and `generate`; everything it does is recorded in `trace`.
    """

    def __init__(self, question: Question, method: str, resources: Resources) -> None:
        self.question = question
        self.resources = resources
        self.trace = Trace(question.id, method)
        self._read: dict[str, Passage] = {}

    async def follow(self, method: Method, options: Mapping[str, Any]) -> str:
        """The answer of a method that acts in this rollout.

        Raises:
            UserError: the method, somebody else's, raised an error or returned no text.
            RequestRefused: the endpoint refuses a request.
            MethodEnded: the rollout needs no more of the method.
        """

        def whose() -> str:
            last = self.trace.steps[-1:]
            after = "".join(f" after {'a search' if isinstance(s, Retrieval) else s.stage}" for s in last)
            return f"question {self.question.id}: method {method.name}{after}"

        with faults_of(whose, method.run, RequestRefused, MethodEnded):
            answer = await awaited(method.run(self.question.question, self, **options))
            if not isinstance(answer, str):
                raise Misreturn(f"returned {shown(answer)}, which is no text")
            return answer

    def keep_note(self, note: str) -> None:
        """Record the best note so far; the last one recorded is the note the answer is written from.

        Methods that write notes record an empty one first, so that a run that ends early is scored too.
        """
        self.trace.note = note

    def count(self, event: str) -> None:
        """Count an event for later analysis, for example an action that could not be parsed."""
        self.trace.counts[event] = self.trace.counts.get(event, 0) + 1

    async def retrieve(self, query: str, top_k: int) -> list[Passage]:
        """The `top_k` best passages for the query, best first."""
        if self.resources.retriever is None:
            raise ValueError(f"method {self.trace.method} retrieves, but no index was given")
        start = time.perf_counter()
        passages, parts = await find(self.resources.retriever, query, top_k, self.question)
        results = [FoundPassage(id=passage.id, title=passage.title) for passage in passages]
        seconds = round(time.perf_counter() - start, 4)
        words = sum(len(words_in(passage.text)) for passage in passages)
        facts = places_of(self.question.supporting_facts, [passage.text for passage in passages])
        self.trace.steps.append(Retrieval(query, top_k, results, seconds, words, facts, parts or None))
        return passages

    async def generate(
        self,
        stage: Stage,
        *,
        stop: tuple[str, ...] = (),
        json_schema: dict[str, Any] | None = None,
        sample: int = 0,
        **variables: Any,
    ) -> str:
        """One completion of a stage's prompt, without surrounding white space and thinking (see `reply_of`).

        `stop` and `json_schema` are those of `Sampling`; `sample` numbers the draws of one prompt; `variables` are
        passed to the prompt. Among them, `turns` are the messages that follow the prompt in a chat to be continued; if
        the assistant's is the last, the completion continues that message.
        """
        messages = self.resources.prompts.render(stage.name, **variables)
        if control := self.resources.control(stage.role):
            return self._controlled(control, stage, messages, variables)
        sampling = replace(self.sampling(stage), stop=stop, json_schema=json_schema)
        reply = reply_of(stage, await self.complete(stage, messages, sampling, sample))
        return self.resources.prompts.note_of(stage.name, reply, variables)

    def _controlled(self, control: Control, stage: Stage, messages: list[Message], variables: Mapping[str, Any]) -> str:
        """The reply of the control that plays a role, recorded as a step that is no call."""
        text = self.played(control, stage, variables)
        self.trace.steps.append(ControlReply(stage.name, stage.role, messages, text))
        return text

    def played(self, control: Control, stage: Stage, variables: Mapping[str, Any]) -> str:
        """The reply of the control that plays a role.

        It writes from the passages in the prompt; an updated note, since it has no memory, from all that it has read.
        """
        if "passages" not in variables and control.write is not empty:
            raise UserError(f"models: {stage.role}: {stage.name} has no passages for a control; let a model play it")
        passages = self.read(variables)
        source = [*self._read.values()] if stage.kind == "updated note" else passages
        asked = variables.get("query") or variables.get("question") or self.question.question
        number = sum(isinstance(step, ControlReply) and step.stage == stage.name for step in self.trace.steps)
        return control.reply(stage, replace(self.question, question=asked), source, number)

    def read(self, variables: Mapping[str, Any]) -> Sequence[Passage]:
        """The passages in a prompt, which a control remembers for later notes."""
        passages: Sequence[Passage] = variables.get("passages", ())
        self._read.update((passage.id, passage) for passage in passages)
        return passages

    def text(self, name: str, **variables: Any) -> str:
        """A text that a method puts into a chat itself, from `<name>.jinja` in its folder or in `prompts_dir`."""
        return self.resources.prompts.render(name, **variables)[0]["content"]

    async def generate_tokens(self, stage: Stage, *, max_tokens: int, **variables: Any) -> list[tuple[str, float]]:
        """The tokens of one completion of a stage's prompt without thinking, each with its natural log-probability.

        At most `max_tokens`, or the stage's own limit if that is lower. `variables` are as for `generate`.
        """
        completion = await self.generate_scored(stage, max_tokens=max_tokens, **variables)
        tokens = list(completion.tokens or [])
        # Servers may also return the end-of-turn token (vLLM does), which is not part of the text. The space is for
        # tokenizers whose first token starts with one that the text lacks.
        while tokens and not f" {completion.text}".endswith(tokens[-1][0]):
            tokens.pop()
        reply = after_thinking(completion.text)
        # A server's reasoning parser takes the thought out of the text alone.
        return _spelling(reply, tokens) if completion.thought or reply != completion.text else tokens

    async def generate_scored(
        self, stage: Stage, *, max_tokens: int = MAX_TOKENS, alternatives: tuple[str, ...] = (), **variables: Any
    ) -> Completion:
        """One completion of a stage's prompt as the server sent it, with the log-probabilities of its tokens.

        At most `max_tokens`, or the stage's own limit if that is lower. `alternatives` are those of `Sampling`;
        `variables` are as for `generate`.
        """
        messages = self.resources.prompts.render(stage.name, **variables)
        sampling = self.sampling(stage)
        sampling = replace(sampling, max_tokens=min(max_tokens, sampling.max_tokens), logprobs=True)
        return await self.complete(stage, messages, replace(sampling, alternatives=alternatives))

    async def score(
        self,
        stage: Stage,
        reply: str,
        *,
        prompt_tokens: int | None = None,
        alternatives: tuple[str, ...] = (),
        **variables: Any,
    ) -> Completion:
        """The log-probabilities of a reply to a stage's prompt: `tokens` are the reply's, not those of a completion.

        `prompt_tokens` is the length of the prompt, as a completion of it reported; without it, the reply's tokens are
        the last ones that spell it. `alternatives` are looked up at the position after the reply. `variables` are as
        for `generate`. Needs vLLM, which scores prompts.
        """
        messages = self.resources.prompts.render(stage.name, **variables)
        messages.append({"role": "assistant", "content": without_surrogates(reply)})
        sampling = replace(self.sampling(stage), max_tokens=1, logprobs=True)
        # No token is shorter than a byte.
        start = -len(reply.encode(errors="replace")) if prompt_tokens is None else prompt_tokens
        sampling = replace(sampling, alternatives=alternatives, score_from=start)
        completion = await self.complete(stage, messages, sampling)
        return replace(completion, tokens=_spelling(reply, completion.tokens or [])) if start < 0 else completion

    def sampling(self, stage: Stage) -> Sampling:
        """The sampling parameters of a stage: the run's own for it, or else the run's with what the stage declares."""
        sampling = self.resources.stage_sampling.get(stage.name)
        if sampling is None:
            sampling = self.resources.sampling
            if stage.temperature is not None:
                sampling = replace(sampling, temperature=stage.temperature)
            if stage.max_tokens is not None:
                sampling = replace(sampling, max_tokens=min(stage.max_tokens, sampling.max_tokens))
        return replace(sampling, raw=stage.raw, continues=stage.continues)

    async def complete(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion of a chat, recorded with the cost of all that were drawn for it."""
        drawn = await self._draws(stage, messages, sampling, sample)
        self.record(stage, messages, sampling, _with_all_costs(drawn))
        return drawn[-1]

    async def draw(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int = 0) -> Completion:
        """One completion, not recorded."""
        return (await self._draws(stage, messages, sampling, sample))[-1]

    async def _draws(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int) -> list[Completion]:
        """One completion, which is the last, and any that was discarded for it.

        Stop strings are meant for the reply, and a server also applies them to a reasoning model's thinking. A reply
        that was stopped before it began is drawn again without them, and cut here, after the thinking; counted as
        `stopped_in_thinking`.
        """
        first = await self.call(stage, messages, sampling, sample)
        if not sampling.stop or stage.stops_thinking or not _stopped_in_thinking(first):
            return [first]
        self.count("stopped_in_thinking")
        second = await self.call(stage, messages, replace(sampling, stop=()), sample)
        return [first, _stopped(second, sampling.stop)]

    async def call(self, stage: Stage, messages: list[Message], sampling: Sampling, sample: int) -> Completion:
        """A call of the stage's model; every one of a rollout goes through here."""
        return await self.resources.complete(stage, messages, sampling, sample, self.question.id)

    def record(self, stage: Stage, messages: list[Message], sampling: Sampling, completion: Completion) -> None:
        """Add a completion to the trace."""
        self.trace.steps.append(Generation(stage.name, stage.role, messages, sampling, completion))


def reply_of(stage: Stage, completion: Completion) -> str:
    """The text of a completion at a stage: empty if it was cut before its thinking ended.

    A stage that continues a text keeps everything, one that acts while it thinks the thought that it was stopped in.
    """
    if stage.continues:
        return completion.text
    stopped = stage.stops_thinking and completion.finish_reason == "stop"
    return (without_thinking if stopped else after_thinking)(completion.text).strip()


def _with_all_costs(drawn: Sequence[Completion]) -> Completion:
    """The last of some completions, with the tokens and seconds of all."""
    return replace(
        drawn[-1],
        prompt_tokens=sum(each.prompt_tokens for each in drawn),
        completion_tokens=sum(each.completion_tokens for each in drawn),
        cached_tokens=sum(each.cached_tokens for each in drawn),
        seconds=sum(each.seconds for each in drawn),
    )


def _stopped_in_thinking(completion: Completion) -> bool:
    """Whether a stop string ended a completion before its reply: it thought, and nothing comes after the thinking.

    A server that separates the thinking returns an empty text for several tokens.
    """
    thought = bool(completion.text.strip()) or completion.completion_tokens > 1
    return completion.finish_reason == "stop" and thought and not after_thinking(completion.text).strip()


def _spelling(text: str, tokens: list[tuple[str, float]]) -> list[tuple[str, float]]:
    """The last tokens that together spell a text."""
    lengths = accumulate(len(token) for token, _ in reversed(tokens))
    wanted = len(text.strip())
    count = next((number for number, length in enumerate(lengths, start=1) if length >= wanted), len(tokens))
    return tokens[len(tokens) - count :] if wanted else []


def _stopped(completion: Completion, stop: tuple[str, ...]) -> Completion:
    """A completion up to the first stop string after the thinking; one that has it is whole, wherever it was cut."""
    text = completion.text
    reply = without_thinking(text)
    thinking, reply = text[: text.rfind(reply)] if reply else text, reply.lstrip()
    kept = reply
    for mark in stop:
        kept = kept.partition(mark)[0]
    is_whole = kept != reply and after_thinking(text)
    return replace(completion, text=thinking + kept, finish_reason="stop" if is_whole else completion.finish_reason)
