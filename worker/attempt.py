"""One attempt of a job: generate, and say how it ended."""

import asyncio
from collections.abc import Callable, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from pathlib import PurePath
from traceback import extract_tb

from protocol import failpoints, wire
from protocol.clock import Clock
from protocol.errors import InvalidRequest
from protocol.log import get_logger, job_lines
from protocol.messages import Frame, Started
from protocol.wire import JsonObject
from worker.backoff import chance
from worker.engine.base import Capacity, Engine, EngineBusy, EngineError, EngineFault, EngineRefused, EngineRequest
from worker.engine.openai_rules import speaks
from worker.engine.token_ids import is_mute, without_ids
from worker.figures import Tempo
from worker.metrics import Metrics
from worker.outbox import Outbox
from worker.outgoing import Outgoing
from worker.refusals import Refusals
from worker.resumption import Resumption, resume
from worker.traces import AttemptTrace
from worker.transcript import Transcript
from worker.verdict import (
    Drop,
    Finish,
    GiveBack,
    Retries,
    Verdict,
    completed,
    malformed,
    timed_out,
    verdict_on,
    with_partial,
)

_log = get_logger("worker")


@dataclass(slots=True, eq=False)
class Attempt:
    """A started attempt.

    Attributes:
        out: what it has to tell Redis.
        started: what `start` handed out.
        begun_s: when it did (monotonic).
        limit_s: how long the attempt may run.
        uncached_tokens: what the engine must compute of its prompt, by estimate.
        tempo: its tokens; None before the first one.
        transcript: what the engine has said.
        on_engine: whether the engine has it, so that its load counts there.
        stopped: how it ends, once somebody has stopped it from outside.
        ended: the engine is done with it, though Redis may not have recorded that yet.
        trace: its spans; None for a job that nothing traces.
    """

    out: Outgoing
    started: Started
    begun_s: float
    limit_s: float
    uncached_tokens: int = 0
    tempo: Tempo | None = None
    transcript: Transcript | None = None
    on_engine: bool = False
    stopped: Verdict | None = None
    ended: bool = False
    task: asyncio.Task[None] | None = None
    trace: AttemptTrace | None = None

    @property
    def waited_s(self) -> float | None:
        """Since its job could run until its start here; None where a hand wrote the job's hash."""
        told = self.started
        return max(0, told.started_ms - told.since_ms) / 1000 if told.since_ms else None

    def stop(self, verdict: Verdict) -> None:
        """End it now with this verdict; closing the engine's generator frees its slot. Once is enough."""
        if self.stopped:
            return
        self.stopped = verdict
        # A task that is cancelled before its first step would never run: it looks at `stopped` itself.
        if self.on_engine and self.task:
            self.task.cancel()

    def overdue(self, now_s: float) -> Verdict | None:
        """What to stop it with when its time is over: at its deadline the scheduler ends the job."""
        age_s = now_s - self.begun_s
        if age_s * 1000 >= self.started.deadline_left_ms:
            return Drop()
        return timed_out(self.limit_s) if age_s >= self.limit_s else None


class Runner:
    """Runs attempts on an engine.

    Args:
        engine: where.
        outbox: takes what they say and how they end.
        capacity: what the engine holds now.
        max_tries: how often an engine may fail a job.
        clock: for the time to the first token.
        on_first: told of each attempt that has brought its first token.
        refusals: told of each request that the engine refuses for now, and of each that it takes.
        metrics: told of what attempts do; None for nobody.
    """

    def __init__(  # noqa: PLR0913 - whom attempts meet
        self,
        engine: Engine,
        capacity: Callable[[], Capacity],
        outbox: Outbox,
        max_tries: int,
        clock: Clock,
        on_first: Callable[[Attempt], None],
        refusals: Refusals,
        *,
        metrics: Metrics | None = None,
    ) -> None:
        self._engine, self._capacity, self._outbox, self._clock = engine, capacity, outbox, clock
        self._max_tries, self._on_first, self._refusals, self._metrics = max_tries, on_first, refusals, metrics

    async def run(self, attempt: Attempt) -> None:
        """From the engine to the outbox; all failures become verdicts."""
        with job_lines(attempt.out.handle, attempt.out.attempt):
            await self._run(attempt)

    async def _run(self, attempt: Attempt) -> None:
        verdict = attempt.stopped
        if verdict is None:
            attempt.on_engine = True
            if self._metrics:
                self._metrics.started(attempt.started.priority, attempt.waited_s)
            failpoints.reach("worker.before_engine", attempt.out.handle.own_id)
            verdict = await self._verdict(attempt)
            if isinstance(verdict, Finish) and verdict.outcome.error:
                verdict = with_partial(verdict, _partial(attempt))
        attempt.ended = True
        engine_s = self._clock.monotonic() - attempt.begun_s
        if self._metrics:
            self._metrics.ended(attempt.started.priority, verdict, attempt.waited_s, engine_s)
        if attempt.trace:
            attempt.trace.ended(verdict, engine_s)
        if isinstance(verdict, GiveBack):
            self._leave_partial(attempt)
        self._outbox.end(attempt.out, verdict)

    def _leave_partial(self, attempt: Attempt) -> None:
        """Tell what was said of an answer that nobody reads along, so that the next attempt can go on with it."""
        spec = attempt.started.spec
        if attempt.transcript and not spec.stream and spec.endpoint != "/v1/embeddings":
            # Chunks that were merged are no count of their tokens any more: it is told with the first of them.
            tokens = attempt.transcript.tokens
            for chunk in attempt.transcript.own():
                self._outbox.say(attempt.out, chunk, tokens=tokens)
                tokens = 0

    async def _verdict(self, attempt: Attempt) -> Verdict:
        try:
            response = await self._generate(attempt)
            return attempt.stopped or completed(response)
        except asyncio.CancelledError:
            if attempt.stopped is None:
                raise
            return attempt.stopped
        except EngineError as error:
            return attempt.stopped or self._failure(attempt, error)
        except InvalidRequest:
            return malformed()
        except Exception as error:  # noqa: BLE001 - an engine's defect is that engine's fault, not the worker's end
            if attempt.stopped:
                return attempt.stopped
            # Its text may quote the prompt: only kind and place are told.
            _log.error("engine_defect", kind=type(error).__name__, at=_place(error))
            return self._failure(attempt, EngineFault(f"the engine failed with {type(error).__name__}"))

    def _failure(self, attempt: Attempt, error: EngineError) -> Verdict:
        job = attempt.out.handle.ref
        if isinstance(error, EngineBusy):
            error = EngineBusy(self._refusals.refused(job, attempt.begun_s, error.retry_after_s))
        elif isinstance(error, (EngineRefused, EngineFault)):
            self._refusals.answered(job, attempt.begun_s)
        verdict = verdict_on(error, Retries(attempt.started.tries, self._max_tries), chance())
        _log.info("attempt_failed", kind=type(error).__name__, verdict=type(verdict).__name__)
        return verdict

    async def _generate(self, attempt: Attempt) -> JsonObject:
        request = _request(attempt)
        said, chats = attempt.started.said, self._capacity().continues_chats
        if said and (plan := await self._plan(request, said, chats=chats)):
            try:
                return await self._go_on(attempt, request, plan)
            except EngineRefused as refusal:
                if attempt.tempo:
                    raise
                _log.info("attempt_starts_over", why=f"the {refusal}")
                attempt.out.begin(None)
        attempt.transcript = Transcript(request.endpoint)
        await self._listen(attempt, request, lambda chunk: chunk)
        return attempt.transcript.response()

    async def _plan(self, request: EngineRequest, said: Sequence[Frame], *, chats: bool) -> Resumption | None:
        """How to go on; None to start over, as also after what nobody of ours can have said."""
        try:
            return await resume(self._engine, request, said, chats=chats)
        except Exception as error:  # noqa: BLE001 - whatever stands in the log, the job itself can still be done
            _log.warning("resumption_failed", kind=type(error).__name__, at=_place(error))
            return None

    async def _go_on(self, attempt: Attempt, request: EngineRequest, plan: Resumption) -> JsonObject:
        """Bring the rest of a text that earlier attempts have begun; the response is that of the whole."""
        attempt.out.begin(plan.after)
        attempt.transcript = Transcript(request.endpoint, plan.said)
        if plan.request:
            await self._listen(attempt, plan.request, plan.joined, plan.opening)
        for chunk in plan.closing:
            await self._tell(attempt, chunk)
        return attempt.transcript.response()

    async def _listen(
        self,
        attempt: Attempt,
        request: EngineRequest,
        join: Callable[[JsonObject], JsonObject | None],
        opening: Sequence[JsonObject] = (),
    ) -> None:
        asks, heard = bool(request.body.get("return_token_ids")), False
        async with aclosing(self._engine.generate(request)) as chunks:
            async for chunk in chunks:
                if not heard:
                    heard = True
                    self._refusals.answered(attempt.out.handle.ref, attempt.begun_s)
                if attempt.stopped:
                    # The cancellation was swallowed on its way, as `asyncio.wait_for` can before Python 3.12.
                    raise asyncio.CancelledError
                # Not before: an engine that refuses to go on must find nothing told.
                for first in opening:
                    await self._tell(attempt, first)
                opening = ()
                if joined := join(chunk):
                    plain, ids = (joined, []) if asks else without_ids(joined)
                    if ids and is_mute(plain):
                        self._note(attempt, ids)
                    else:
                        await self._tell(attempt, plain, ids)
                    failpoints.reach("worker.mid_stream", attempt.out.handle.own_id)

    def _note(self, attempt: Attempt, ids: Sequence[int]) -> None:
        """Tokens that have no text yet."""
        if attempt.started.spec.stream:
            attempt.out.note(ids)
        elif attempt.transcript:
            attempt.transcript.tokens += len(ids)

    async def _tell(self, attempt: Attempt, chunk: JsonObject, ids: Sequence[int] = ()) -> None:
        spoken = speaks(chunk)
        first = spoken and self._hear(attempt, chunk)
        if attempt.transcript:
            attempt.transcript.add(chunk, len(ids) or spoken)
        if attempt.started.spec.stream:
            self._outbox.say(attempt.out, chunk, ids, tokens=int(spoken))
            if first:
                await self._outbox.hurry(attempt.out)

    def _hear(self, attempt: Attempt, chunk: JsonObject) -> bool:
        """Count a chunk that says something; whether it is the first."""
        # Several choices speak side by side: one tells the tempo of all.
        own = chunk["choices"][0].get("index", 0) == 0
        tempo, first = attempt.tempo, attempt.tempo is None
        if tempo is None:
            tempo = self._begin(attempt)
        elif own and tempo.between:
            now_s = self._clock.monotonic()
            tempo.between.observe(now_s - tempo.last_s)
            tempo.last_s = now_s
        tempo.chunks += own
        return first

    def _begin(self, attempt: Attempt) -> Tempo:
        """It speaks for the first time."""
        now_s = self._clock.monotonic()
        tempo = attempt.tempo = Tempo(now_s, last_s=now_s)
        if self._metrics:
            waited_s = None if attempt.started.said else attempt.waited_s
            engine_s = now_s - attempt.begun_s
            tempo.between = self._metrics.first_token(attempt.started.priority, waited_s, engine_s)
        attempt.out.first_token_after_ms = int(1000 * (now_s - attempt.begun_s))
        self._on_first(attempt)
        return tempo


def _request(attempt: Attempt) -> EngineRequest:
    """What the engine gets.

    Raises:
        InvalidRequest: the stored body is no JSON object.
    """
    out, started = attempt.out, attempt.started
    body = wire.loads(started.body)
    if not isinstance(body, dict):
        raise InvalidRequest("the body is no JSON object")
    spec = started.spec
    return EngineRequest(
        request_id=f"{out.handle}-{out.attempt}",
        endpoint=spec.endpoint,
        body=body,
        priority=started.priority,
        prompt_tokens=spec.prompt_tokens,
        tenant=out.handle.tenant,
        prefix=spec.prefix,
        # A trace that is left out is so in the engine too.
        trace=attempt.trace.header if attempt.trace else spec.trace,
    )


def _partial(attempt: Attempt) -> JsonObject | None:
    """What the engine has said so far; None when that was nothing, or can't be put together."""
    if attempt.transcript is None or not (attempt.tempo or attempt.transcript.goes_on):
        return None
    try:
        return attempt.transcript.partial()
    except Exception:  # noqa: BLE001 - what has broken an answer breaks it once more
        return None


def _place(error: Exception) -> str:
    """File and line where it was raised."""
    frames = extract_tb(error.__traceback__)
    return f"{PurePath(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "unknown"
