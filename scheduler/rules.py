"""What the settings mean for dispatch, worked out once."""

from collections.abc import Mapping
from dataclasses import dataclass

from protocol.errors import SetupError
from protocol.functions import NO_QUOTAS, Quotas, TickTimes
from protocol.settings import Settings
from protocol.states import Priority
from scheduler.policy.order import Targets
from scheduler.policy.policy import Policy
from scheduler.policy.registry import POLICIES
from scheduler.policy.scaling import PACE, Pace
from scheduler.policy.window import Window

PASSED_OVER_BEATS = 2
"""A worker that has missed so many beats gets no more jobs while others are heard."""
QUIET_BEATS = 3
"""A worker that has missed so many beats loses what it has not begun."""
SILENT_BEATS = 10
"""A worker that has missed so many beats is silent."""


@dataclass(frozen=True, slots=True)
class Rules:
    """What a dispatcher goes by.

    Attributes:
        policy: chooses among the workers that may take a job.
        policy_name: what `registry.py` calls it.
        targets: how long a job of each priority should wait at most.
        window: how long offline jobs gather.
        times: of the lead and the leases, in Redis's time.
        limits: jobs waiting in each lane.
        quotas: what one tenant may at most.
        tick_s: how often the leader keeps house, and a standby asks for the lead.
        pass_over_ms: from this age of its load report on a worker gets nothing while another one is heard.
        silence_ms: from this age on a load report is worth a line in the log.
        scale: whether standby workers are promoted and put back.
        pace: how fast that reacts.
    """

    policy: Policy
    policy_name: str
    targets: Targets
    window: Window
    times: TickTimes
    limits: Mapping[Priority, int]
    tick_s: float
    pass_over_ms: float
    silence_ms: float
    quotas: Quotas = NO_QUOTAS
    scale: bool = True
    pace: Pace = PACE


def rules_of(settings: Settings) -> Rules:
    """Read the settings.

    Raises:
        SetupError: there is no policy of that name.
    """
    policy = POLICIES.get(settings.policy)
    if policy is None:
        raise SetupError(f"there is no policy {settings.policy!r}", f"Choose one of: {', '.join(sorted(POLICIES))}.")
    admissions = (settings.admission_high, settings.admission_medium, settings.admission_low)
    refuse = (priority for priority, how in zip(Priority, admissions, strict=True) if how == "refuse")
    in_time = (priority for priority, how in zip(Priority, admissions, strict=True) if how == "deadline")
    limits = (settings.limit_high, settings.limit_medium, settings.limit_low)
    # A takeover is no gap: it is over within lead + tick.
    gap_s = settings.lead_s + 2 * settings.tick_s
    times_s = (settings.lead_s, settings.lease_s, gap_s, QUIET_BEATS * settings.beat_s)
    return Rules(
        policy=policy,
        policy_name=settings.policy,
        targets=Targets(
            high_ms=1000 * settings.target_high_s,
            medium_ms=1000 * settings.target_medium_s,
            low_ms=1000 * settings.target_low_s,
            token_ms=settings.target_token_ms,
            refuse=frozenset(refuse),
            in_time=frozenset(in_time),
        ),
        window=Window(offline_ms=1000 * settings.window_s),
        times=TickTimes(*(round(1000 * seconds) for seconds in times_s)),
        limits=dict(zip(Priority, limits, strict=True)),
        tick_s=settings.tick_s,
        pass_over_ms=1000 * PASSED_OVER_BEATS * settings.beat_s,
        silence_ms=1000 * SILENT_BEATS * settings.beat_s,
        quotas=Quotas(settings.quota_jobs, settings.quota_tokens),
        scale=settings.scale == "auto",
    )
