"""`tokenfleet replay`: what another policy would have done with recorded decisions."""

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from protocol.errors import InvalidRequest
from tokenfleet.cli.options import json_option, wants_json
from tokenfleet.cli.output import print_json

if TYPE_CHECKING:
    from scheduler.policy.policy import Policy
    from scheduler.policy.recording import Round


@click.command("replay")
@click.argument("file", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--policy", "names", required=True, help="One policy, several with commas, or all.")
@click.option("--seed", type=int, default=0, show_default=True, help="Of the chance that decides between equals.")
@json_option
def command(file: Path, names: str, seed: int) -> None:
    """Ask another policy what it would have done with the decisions that a scheduler recorded.

    Each recorded round, with the jobs and workers as they were seen then, goes through each policy.

    \b
    Examples:
      tokenfleet scheduler --record night.jsonl
      tokenfleet replay night.jsonl --policy least-work
      tokenfleet replay night.jsonl --policy least-requests,kv-cost --json

    \b
    In the table:
      starts     jobs given to a worker
      elsewhere  started in the same round, on another worker than recorded
      not then   started by the recorded policy, and not by this one in that round
      sooner     started by this one in a round in which the recorded policy did not
      refused    jobs refused because their target could not be met
      p50, p99   of the predicted first tokens of all starts, from the round on

    Between equal workers chance decides, so the policy that was recorded differs from itself now and then.

    Rounds are judged one by one, on what was seen: what would have come of other decisions later is not known. For
    that, `tokenfleet simulate` runs a policy on a whole trace.

    With --json, one object: `rounds`, `from_ms`, `to_ms`, and `recorded` and `policies`, each with `policy`, `starts`,
    `same`, `elsewhere`, `withheld`, `added`, `refused`, `predicted_p50_ms` and `predicted_p99_ms`.

    \b
    Exit codes: 0 replayed, 2 no such file or policy, or the file is no recording.
    """
    import random

    from scheduler.policy.replay import compare
    from tokenfleet.cli.replay_view import as_json, as_table

    policies = _policies(names)
    comparison = compare(_rounds(file), policies, lambda: random.Random(seed))  # noqa: S311 - breaks ties, guards nothing
    if wants_json():
        print_json(as_json(comparison))
        return
    from tokenfleet.plain import print_drawn

    print_drawn(as_table(comparison))


def _policies(names: str) -> "dict[str, Policy]":
    from scheduler.policy.registry import POLICIES

    wanted = list(POLICIES) if names == "all" else list(dict.fromkeys(name.strip() for name in names.split(",")))
    for name in wanted:
        if name not in POLICIES:
            raise InvalidRequest(f"there is no policy {name!r}", f"Choose among: {', '.join(sorted(POLICIES))}.")
    return {name: POLICIES[name] for name in wanted}


def _rounds(file: Path) -> "Iterator[Round]":
    """The rounds of a file. A last line without an end was being written when its scheduler was killed."""
    from protocol.wire import loads
    from scheduler.policy.recording import Decoder, Unreadable

    decoder = Decoder()
    with file.open("rb") as lines:
        for number, line in enumerate(lines, 1):
            if not line.endswith(b"\n"):
                return
            try:
                value = loads(line)
                found = decoder.take(value) if isinstance(value, dict) else _none_of_ours()
            except (Unreadable, InvalidRequest) as error:
                hint = "Record one with: tokenfleet scheduler --record FILE."
                raise InvalidRequest(f"{file} is no recording: line {number}: {error}", hint) from None
            if found:
                yield found


def _none_of_ours() -> "Round":
    from scheduler.policy.recording import Unreadable

    msg = "it is no object"
    raise Unreadable(msg)
