"""`tokenfleet simulate`: the scheduler's own decisions on a trace, in virtual time."""

import math
import re
import sys
from typing import TYPE_CHECKING, Any, TypedDict, Unpack

import click

from protocol.errors import SetupError
from tokenfleet.cli.durations import duration
from tokenfleet.cli.options import json_option, load_settings, logging_options, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from scheduler.policy.policy import Policy
    from tokenfleet.simulate.plan import Plan
    from tokenfleet.simulate.scenario import Scenario
    from tokenfleet.simulate.summary import Summary
    from tokenfleet.simulate.traces import Trace

_SLOW = re.compile(r"(?P<count>[0-9]{1,4}):(?P<speed>[0-9]*\.?[0-9]+)\Z")
LEAST, MOST = 0.001, 1000.0
"""Of loads and speeds: beyond these a run has no end, or no meaning."""


class Options(TypedDict):
    """The options of `simulate`, as click hands them over."""

    trace: str
    limit: int | None
    scale: float
    workers: int
    sim_profile: str
    policies: str
    admission: str
    report_ms: float
    seed: int
    slow: tuple[tuple[int, float], ...]
    kills: tuple[tuple[str, float], ...]
    joins: tuple[tuple[str, float], ...]
    cancel_share: float
    offline: int


def _moment(text: str) -> tuple[str, float]:
    """The type of an option such as `w1@30s`."""
    worker, _, at = text.partition("@")
    if worker and at:
        return worker, duration(at)
    raise click.BadParameter(f"{text!r} is not a worker and a time: write w1@30s")


def _slow(text: str) -> tuple[int, float]:
    """The type of an option such as `2:0.5`."""
    found = _SLOW.match(text)
    if not found or not LEAST <= float(found["speed"]) <= MOST:
        raise click.BadParameter(f"{text!r} is not a number of workers and their speed: write 2:0.5")
    return int(found["count"]), float(found["speed"])


class _Within(click.FloatRange):
    """A range that infinities and what is no number lie outside of."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401 - click's own signature
        number = super().convert(value, param, ctx)
        if math.isnan(number):
            self.fail(f"{value} is no number", param, ctx)
        return number


@click.command("simulate")
@click.option("--trace", default="generated", show_default=True, help="azure, mooncake, servegen, generated or a file.")
@click.option("--limit", type=click.IntRange(1), help="Take only the first N requests.")
@click.option("--scale", type=_Within(LEAST, MOST), default=1.0, help="How much faster than recorded.")
@click.option("--workers", type=click.IntRange(1, 1000), default=4, show_default=True, help="They are w1, w2, …")
@click.option("--sim-profile", default="h100-8b", show_default=True, help="Whose step times the workers have.")
@click.option("--policy", "policies", default="predictive", show_default=True, help="Several with commas, or all.")
@click.option(
    "--admission",
    type=click.Choice(["refuse", "deadline", "best_effort"]),
    help="Of online requests.  [default: the setting]",
)
@click.option("--report-ms", type=_Within(1, 3_600_000), default=50.0, show_default=True, help="Between load reports.")
@click.option("--seed", type=int, default=0, show_default=True, help="Equal seeds, equal outcomes.")
@click.option("--slow", type=_slow, multiple=True, metavar="N:SPEED", help="The last N workers run at SPEED.")
@click.option("--kill", "kills", type=_moment, multiple=True, metavar="WORKER@TIME", help="This one dies then.")
@click.option("--join", "joins", type=_moment, multiple=True, metavar="WORKER@TIME", help="A further one comes then.")
@click.option("--cancel-share", type=_Within(0, 1), default=0.0, help="How many clients give up.")
@click.option("--offline", type=click.IntRange(0), default=0, help="Offline requests that wait from the start.")
@logging_options
@json_option
def command(**options: Unpack[Options]) -> None:
    """Try a fleet, a load or a policy out: the scheduler's own decisions on simulated engines, in virtual time.

    A trace is a file of Mooncake's, Azure's or ServeGen's format; azure, mooncake and servegen stand for published
    ones in the folder that the variable TRACES names, by default traces here or in a folder beside this one, and where
    one is missing a generated one stands in for it. Runs of several policies get the same requests and the same chance.

    \b
    Examples:
      tokenfleet simulate --trace azure --scale 12 --policy predictive,least-requests
      TRACES=/data/traces tokenfleet simulate --trace mooncake
      tokenfleet simulate --trace calls.csv --workers 8 --slow 2:0.5 --kill w1@30s --join w9@60s
      tokenfleet simulate --scale 4 --offline 2000 --cancel-share 0.02 --admission refuse

    A request is good when its first token comes within the setting target_high_s, or three times its prompt's own
    time where that is longer, and its tokens within target_token_ms each (twice that behind a long prompt). Refused
    requests are not. Where a load is more than the fleet can carry, predictive serves those well that it can and lets
    the others come after them, however late; with --admission refuse it refuses them.

    A worker is busy while its engine computes a step, however small: that is no measure of its load.

    With --json, one object: trace, missing, requests, scale, workers, report_ms, seed, and runs: for each policy
    goodput, refused, cancelled, unfinished, offline_tokens, first_ms and token_ms (p50, p99), reruns, hits, seconds
    and the utilisation of each worker.

    \b
    Exit codes: 0 done, 2 there is no such trace, policy or worker.
    """
    settings = load_settings(admission_high=options["admission"])
    from scheduler.rules import rules_of
    from tokenfleet.cli.simulate_view import as_json, as_tables
    from tokenfleet.simulate.traces import load

    trace, targets = load(options["trace"], options["seed"]).first(options["limit"]), rules_of(settings).targets
    if trace.missing:
        click.secho(f"{trace.missing}. Running on a GENERATED trace instead.", fg="yellow", err=True)
    plan, policies = _plan(options, trace), _policies(options["policies"])
    runs = {name: _run(name, plan.scenario(policy, targets)) for name, policy in policies.items()}
    if wants_json():
        print_json(as_json(plan, runs))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_tables(plan, runs))


def _policies(names: str) -> "dict[str, Policy]":
    """The policies of these names.

    Raises:
        SetupError: there is none of a name.
    """
    from scheduler.policy.registry import POLICIES

    wanted = list(POLICIES) if names == "all" else [name.strip() for name in names.split(",")]
    if strangers := [name for name in wanted if name not in POLICIES]:
        raise SetupError(f"there is no policy {strangers[0]!r}", f"Choose of: {', '.join(sorted(POLICIES))}.")
    return {name: POLICIES[name] for name in wanted}


def _plan(options: Options, trace: "Trace") -> "Plan":
    """What the options describe.

    Raises:
        SetupError: there is no such profile, or a worker joins or dies twice.
    """
    from protocol.cost_model import PROFILES
    from tokenfleet.simulate.plan import Plan

    profile = PROFILES.get(options["sim_profile"])
    if profile is None or profile.instant:
        raise SetupError(f"no engine is simulated as {options['sim_profile']!r}", f"Profiles: {', '.join(PROFILES)}.")
    for option, given in (("--kill", options["kills"]), ("--join", options["joins"])):
        names = [name for name, _ in given]
        if len(set(names)) < len(names):
            raise SetupError(f"{option} names a worker twice", "A worker joins once and dies once.")
    return Plan(
        trace,
        options["scale"],
        options["workers"],
        profile,
        options["slow"],
        dict(options["kills"]),
        dict(options["joins"]),
        cancel_share=options["cancel_share"],
        offline=options["offline"],
        report_ms=options["report_ms"],
        seed=options["seed"],
    )


def _run(name: str, scenario: "Scenario") -> "Summary":
    """Run it, with a bar on stderr."""
    from tokenfleet.simulate.summary import summary
    from tokenfleet.simulate.world import World

    world = World(scenario)
    with click.progressbar(length=1000, label=name, file=sys.stderr, show_pos=False) as bar:
        world.run(lambda share: bar.update(max(0, round(share * 1000) - bar.pos)))
        bar.update(1000 - bar.pos)
    return summary(world, scenario.targets)
