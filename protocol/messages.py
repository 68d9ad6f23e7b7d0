"""The messages, named by what they say. A new field is added here and where it is used: nowhere else."""

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from protocol.handle import Handle
from protocol.states import Priority, State, WorkerState
from protocol.traceparent import Trace
from protocol.wire import JsonObject

Share = Annotated[float, Field(ge=0.0, le=1.0)]
MOST = 2**53
"""So many tokens or ms are never reached, and no float rounds them."""
Tokens = Annotated[int, Field(ge=0, le=MOST)]
MAX_SHARDS = 1_024
Position = tuple[int, int]
"""A frame's place: attempt and sequence number."""
Endpoint = Literal["/v1/chat/completions", "/v1/completions", "/v1/embeddings"]


class Message(BaseModel):
    """Base: immutable, and unknown fields are ignored so that neighbours may be newer."""

    model_config = ConfigDict(frozen=True, extra="ignore", allow_inf_nan=False)


class ModelRecord(Message):
    """Where a model is served: a member of the `models` hash."""

    pool: Annotated[str, Field(pattern=r"^[a-z0-9_-]{1,64}$")]
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] = 1
    context_tokens: Tokens = 0
    """The longest prompt plus output that the engine takes; 0 when it does not tell."""


class JobSpec(Message):
    """What never changes in a job, stored as one field of its hash; the body stands apart."""

    model: str
    endpoint: Endpoint
    stream: bool = False
    prompt_tokens: Tokens = 0
    """Estimated by the producer."""
    output_tokens: Tokens = 256
    """Expected output: the body's limit, else a guess."""
    prefix: tuple[str, ...] = ()
    """Chained hashes of the prompt's leading blocks, coarse; equal hashes mean a shared prefix."""
    time_limit_s: float | None = None
    """How long one attempt may run on an engine."""
    best_effort: bool = False
    """Never refused for want of time: it waits as long as it must."""
    unfollowed_s: float | None = None
    """It is cancelled once nobody has followed it for so long; None lets it run."""
    followed_s: float | None = None
    """That counts only so long after it could first run: who waits goes then, and it goes on. None: to its end."""
    trace: Trace = ""
    """The span that it was submitted under, as a W3C `traceparent`; empty when nothing traces it."""

    @property
    def cost_tokens(self) -> int:
        """What fair queueing charges the tenant."""
        return self.prompt_tokens + self.output_tokens


class LoadReport(Message):
    """What a worker publishes about itself. Shares are in [0, 1], counts in tokens or requests."""

    load_score: Share = 0.0
    """0.4·memory + 0.3·min(running/capacity, 1) + 0.3·KV; an engine that refuses counts as one that runs all it can."""
    memory: Share = 0.0
    """Device memory used; without a device the engine's resident size over its limit."""
    running: Tokens = 0
    waiting: Tokens = 0
    capacity: Tokens = 1
    """How many requests the engine runs at once."""
    pending_prefill_tokens: Tokens = 0
    prefilling: Tokens = 0
    """Requests without a first token: those whose tokens are pending."""
    step_tokens: Tokens = 0
    """What the engine computes in one step at most; 0 when it does not tell."""
    slow_share: Share = 0.0
    """Of the requests that stream: those whose tokens take longer than the target."""
    firsts: tuple[tuple[int, int], ...] = ()
    """(attempt, ms from its start) of the first tokens of the last second, at most 32: several reports tell each."""
    kv_used_tokens: Tokens = 0
    kv_total_tokens: Tokens = 0
    """0 when the engine does not tell."""
    refusing: bool = False
    """The engine answers 429 or 503: the worker takes no jobs, but for one after each pause that asks."""
    taken: int = 0
    """The highest attempt number whose work is contained in these figures."""
    device_utilisation: Share | None = None
    device_temperature_c: float | None = None
    device_power_w: float | None = None
    prompt_tokens: Tokens = 0
    generated_tokens: Tokens = 0
    prefix_query_tokens: Tokens = 0
    prefix_hit_tokens: Tokens = 0
    preemptions: Tokens = 0
    """These five count since the engine came up; 0 where it does not tell."""
    block_tokens: Tokens = 0
    """Tokens of one block of the KV cache; 0 when the engine does not tell."""
    state_s: dict[str, float] = Field(default_factory=dict)
    """How long the worker's process was in each state so far, in seconds."""
    reserve: bool = False
    """It was started to stand by: who promoted it may put it back."""
    answered: str = ""
    """The inbox entry of the last command that it handled."""
    refusal: str = ""
    """Why it did not do what that command asked; empty when it did."""

    @property
    def kv(self) -> float:
        """Share of the KV cache in use."""
        return min(1.0, self.kv_used_tokens / self.kv_total_tokens) if self.kv_total_tokens else 0.0


class WorkerRecord(Message):
    """A worker as the dispatcher and `status` see it."""

    id: str
    label: str
    state: WorkerState
    models: tuple[str, ...] = ()
    """The names that it serves, adapters too."""
    slots: Tokens
    """How many jobs it takes at most."""
    held: Tokens
    solo: bool = False
    """True while it runs a job with two strikes, which runs alone."""
    lease_ms: int = 0
    """When its lease ends; 0 while it is being reclaimed."""
    report_ms: int = 0
    """When it published its report, in Redis's time."""
    report: LoadReport = LoadReport()


class AttemptRecord(Message):
    """An attempt that was given back, in a job's history."""

    attempt: int
    worker: str = ""
    """The worker's label."""
    fault: Literal["none", "try", "strike"] = "none"
    """`try`: the engine failed it; `strike`: its engine or worker died."""
    why: str = ""
    at_ms: int = 0
    """In Redis's time."""


class Why(Message):
    """Why a job went to its worker."""

    policy: str
    predicted_ms: Tokens = 0
    """When its first token should have come, from its assignment on."""
    scores: dict[str, int] = Field(default_factory=dict)
    """The same for the three workers where it would have come soonest, by their labels."""


class JobRecord(Message):
    """A job's hash: what `look at a job` shows. Times are ms of Redis's clock, 0 when not reached."""

    state: State
    priority: Priority
    spec: JobSpec
    member: str = ""
    """Its entry in the lane, from the first time it was queued."""
    attempt: int = 0
    worker: str = ""
    tries: int = 0
    """Attempts that were given back."""
    strikes: int = 0
    """Attempts that ended with their engine or worker dead."""
    error: str = ""
    """Why it has no result, as a stable code; `unreachable`: refused, since its target could not be met."""
    history: tuple[AttemptRecord, ...] = ()
    """The last attempts that were given back, oldest first."""
    why: Why | None = None
    """Of its last assignment."""
    deadline_ms: int = 0
    submitted_ms: int = 0
    ripe_ms: int = 0
    """When its delay ended; 0 also for a job without one."""
    assigned_ms: int = 0
    started_ms: int = 0
    first_token_ms: int = 0
    finished_ms: int = 0

    @property
    def since_ms(self) -> int:
        """Since when it waits, or waited: its submission, or the end of its delay."""
        return max(self.submitted_ms, self.ripe_ms)


class ErrorInfo(Message):
    """Why a job has no response: a stable code and a line for people, never with the prompt in it."""

    code: str
    message: str
    wait_ms: Tokens = 0
    """Of a job that was refused: how long its first token would have taken, since it could run; 0 for others."""


class Outcome(Message):
    """How a job ended. A refusal by the engine (4xx) is a `body` with its status code; `error` means no answer.

    A `body` beside an error, without a status code, is what the engine said before it failed.
    """

    state: State
    attempt: int = 0
    status_code: int | None = None
    body: JsonObject | None = None
    error: ErrorInfo | None = None

    @property
    def text(self) -> str:
        """What the first choice says; empty when there is no answer."""
        return _said(self.body or {}, "message")

    @property
    def usage(self) -> JsonObject:
        """The engine's `usage` object; empty when there is none."""
        usage = (self.body or {}).get("usage")
        return usage if isinstance(usage, dict) else {}

    @property
    def used_tokens(self) -> int | None:
        """Tokens of prompt and output as the engine counted them; 0 for what it refused; None when it did not tell."""
        counts = [self.usage.get(name) for name in ("prompt_tokens", "completion_tokens")]
        known = [count for count in counts if isinstance(count, int) and 0 <= count <= MOST]
        if known:
            return min(sum(known), MOST)
        return 0 if self.status_code is not None and self.status_code >= 400 else None


@dataclass(frozen=True, slots=True)
class Frame:
    """One entry of the token log: OpenAI chunk objects, or the seal."""

    attempt: int
    seq: int
    chunks: tuple[JsonObject, ...] = ()
    seal: State | None = None
    tokens: int = 0
    """How many its chunks are; 0 where that was not said."""
    ids: tuple[int, ...] = ()
    """The tokens themselves, where the engine tells them: some may have no text yet."""
    after: Position | None = None
    """The frame of an older attempt whose text this one goes on with."""

    @property
    def id(self) -> str:
        """`<attempt>-<seq>`: the entry's id in the log, and the SSE id."""
        return f"{self.attempt}-{self.seq}"

    @property
    def position(self) -> Position:
        """Orders frames over attempts."""
        return self.attempt, self.seq

    @property
    def text(self) -> str:
        """What the first choice says in this frame."""
        return "".join(chunk_text(chunk) for chunk in self.chunks)


def chunk_text(chunk: JsonObject) -> str:
    """The text of choice 0 in a chat or completion chunk; empty when it has none."""
    return _said(chunk, "delta")


def _said(answer: JsonObject, member: str) -> str:
    """What choice 0 says in its `member`, or as its text; an engine, or a hand in Redis, may have sent anything."""
    choices = answer.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0:
            inner = choice.get(member)
            text = choice.get("text") if inner is None else inner.get("content") if isinstance(inner, dict) else None
            return text if isinstance(text, str) else ""
    return ""


@dataclass(frozen=True, slots=True)
class InboxEntry:
    """What a worker finds in its inbox."""

    entry_id: str
    kind: Literal["assign", "abort", "command"]
    ref: str = ""
    attempt: int = 0
    command: str = ""


@dataclass(frozen=True, slots=True)
class LostAttempt:
    """An attempt whose worker was silent until its lease ended: nobody else can tell of it. Times as in `JobRecord`."""

    attempt: int
    started_ms: int
    ended_ms: int


@dataclass(frozen=True, slots=True)
class Started:
    """What `start` hands to the worker: all that it needs to run the attempt."""

    spec: JobSpec
    body: bytes
    priority: Priority
    tries: int
    strikes: int
    deadline_left_ms: int
    said: tuple[Frame, ...] = ()
    """The text that the attempts before have left, whole from its first frame on; empty when there is none."""
    waiting_ms: int = 0
    """Since when it has waited: `since_ms`, or when the attempt before was given back. Times as in `JobRecord`."""
    since_ms: int = 0
    """From when on it could run: its submission, or the end of its delay."""
    assigned_ms: int = 0
    started_ms: int = 0
    lost: LostAttempt | None = None
    """The attempt before, where its worker was lost."""


@dataclass(frozen=True, slots=True)
class WaitingJob:
    """A queued job as the dispatcher sees it."""

    spec: JobSpec
    since_ms: int
    """Since when it waits: its submission, or the end of its delay."""
    deadline_ms: int
    strikes: int
    begun: bool = False
    """It ran before, and came back."""


@dataclass(frozen=True, slots=True)
class DeadEntry:
    """A job that was set aside, as the `dead` stream names it. The entry's id begins with the time in ms."""

    entry_id: str
    handle: Handle
    attempt: int

    @property
    def at_ms(self) -> int:
        """When, in Redis's time."""
        return int(self.entry_id.partition("-")[0])


@dataclass(frozen=True, slots=True)
class DeadJob:
    """What is needed, beside its body, to run a job anew that was set aside."""

    priority: Priority
    spec: JobSpec
    digest: str
    keep_ms: int
    deadline_ms: int
    """From its submission."""
    reply_to: str
    once: bool


@dataclass(frozen=True, slots=True)
class DoneNotice:
    """An entry of a `done` stream."""

    entry_id: str
    handle: Handle
    attempt: int
    state: State
