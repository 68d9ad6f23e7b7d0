"""The step machine against hand-worked steps, and under random traffic."""

from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from protocol.cost_model import Profile
from worker.engine.sim.core import SimCore
from worker.engine.sim.records import Limits, SimRequest, Step

PROFILE = Profile(base_ms=10.0, token_ms=1.0, decode_kv_ms=0.1, attention_ms=0.01)


def core(kv_tokens: int = 400, sequences: int = 8, step_tokens: int = 8) -> SimCore:
    return SimCore(PROFILE, Limits(kv_tokens, sequences, step_tokens, block_tokens=4))


def drain(machine: SimCore) -> list[Step]:
    steps: list[Step] = []
    while machine.busy:
        steps.append(machine.step(steps[-1].ends_ms if steps else 0.0))
        assert len(steps) < 10_000
    return steps


@dataclass(frozen=True)
class Case:
    """Requests as (prompt, output) tokens, all there from the start, and the duration of each step."""

    name: str
    requests: tuple[tuple[int, int], ...]
    steps_ms: tuple[float, ...]
    emitted: tuple[int, ...]


CASES = [
    # a + 5b + c·5·2.5, then a + b + κ·5
    Case("prefill, then decode", ((5, 2),), (15.125, 11.5), (1, 1)),
    # 8 tokens fit a step: a + 8b + c·8·4, then a + 4b + c·4·(8+2)
    Case("a long prompt goes in chunks", ((12, 1),), (18.32, 14.4), (0, 1)),
    # 5 + 3 of the second, then 1 decode (κ·5) beside 1 of the second (c·1·(3+0.5)), which ends its prompt
    Case("prefill beside decode", ((5, 2), (4, 1)), (18.17, 12.535), (1, 2)),
    Case("an embedding ends with its prefill", ((5, 0),), (15.125,), (0,)),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_steps_last_as_worked_out_by_hand(case: Case) -> None:
    machine = core()
    for number, (prompt, output) in enumerate(case.requests):
        machine.add(SimRequest(str(number), prompt, output))
    steps = drain(machine)
    assert [step.duration_ms for step in steps] == pytest.approx(list(case.steps_ms))
    assert [sum(step.emitted.values()) for step in steps] == list(case.emitted)


def test_time_goes_on_from_where_the_caller_says() -> None:
    machine = core()
    machine.add(SimRequest("a", 5, 1))
    step = machine.step(1000.0)
    assert (step.starts_ms, step.ends_ms) == (1000.0, 1015.125)
    assert step.finished == ("a",)


def test_an_idle_step_lasts_no_time() -> None:
    assert core().step(5.0) == Step(5.0, 0.0)


def test_a_shared_prefix_is_computed_once() -> None:
    machine = core()
    machine.add(SimRequest("a", 9, 1, ("x", "y")))
    drain(machine)
    machine.add(SimRequest("b", 9, 1, ("x", "y")))
    step = machine.step(0.0)
    assert step.admitted == {"b": 8}
    assert step.duration_ms == pytest.approx(10 + 1 + 0.01 * 8.5)


def test_at_least_one_prompt_token_is_computed() -> None:
    machine = core()
    machine.add(SimRequest("a", 8, 1, ("x", "y")))
    drain(machine)
    machine.add(SimRequest("b", 8, 1, ("x", "y")))
    assert machine.step(0.0).admitted == {"b": 4}


def test_equal_prompts_of_one_step_share_what_the_first_began() -> None:
    machine = core(step_tokens=64)
    machine.add(SimRequest("a", 9, 1, ("x", "y")))
    machine.add(SimRequest("b", 9, 1, ("x", "y")))
    assert machine.step(0.0).admitted == {"a": 0, "b": 8}


def test_sequences_over_the_limit_wait() -> None:
    machine = core(sequences=1)
    machine.add(SimRequest("a", 4, 2))
    machine.add(SimRequest("b", 4, 1))
    first = machine.step(0.0)
    assert (first.emitted, machine.running, machine.waiting) == ({"a": 1}, 1, 1)
    assert machine.step(first.ends_ms).finished == ("a",)
    assert machine.step(0.0).finished == ("b",)


def test_without_kv_room_the_youngest_is_computed_again_later() -> None:
    machine = core(kv_tokens=16, step_tokens=16)
    machine.add(SimRequest("old", 7, 6))
    machine.add(SimRequest("young", 7, 6))
    steps = drain(machine)
    # Both fill two blocks with their eighth token; the third step needs a third block for the old one.
    assert [step.preempted for step in steps[:4]] == [(), (), ("young",), ()]
    assert [sorted(step.emitted) for step in steps[:4]] == [["old", "young"], ["old", "young"], ["old"], ["old"]]
    # Seven prompt and two generated tokens again, in one step.
    again = next(step for step in steps[3:] if "young" in step.admitted)
    assert again.duration_ms == pytest.approx(10 + 9 + 0.01 * 9 * 4.5)
    assert [sum(step.emitted.get(name, 0) for step in steps) for name in ("old", "young")] == [6, 6]


def test_an_abort_frees_what_the_sequence_held() -> None:
    machine = core()
    machine.add(SimRequest("a", 8, 4))
    machine.step(0.0)
    assert machine.kv_used_tokens == 8
    assert machine.abort("a")
    assert (machine.kv_used_tokens, machine.busy, machine.abort("a")) == (0, False, False)


@pytest.mark.parametrize("wrong", [SimRequest("a", 4, 1), SimRequest("b", 400, 1), SimRequest("b", 0, 1)])
def test_what_can_not_run_is_not_taken(wrong: SimRequest) -> None:
    machine = core()
    machine.add(SimRequest("a", 4, 1))
    with pytest.raises(ValueError, match="request"):
        machine.add(wrong)


TRAFFIC = st.lists(
    st.tuples(st.integers(1, 20), st.integers(0, 12), st.integers(0, 5), st.booleans()), min_size=1, max_size=12
)


@given(TRAFFIC, st.integers(8, 20), st.integers(1, 30), st.integers(1, 5))
def test_all_that_is_not_aborted_gets_all_its_tokens(
    traffic: list[tuple[int, int, int, bool]], blocks: int, step_tokens: int, sequences: int
) -> None:
    machine = SimCore(PROFILE, Limits(blocks * 4, sequences, step_tokens, block_tokens=4))
    told = {str(number): 0 for number in range(len(traffic))}
    finished: list[str] = []
    for number, (prompt, output, shared, _) in enumerate(traffic):
        machine.add(SimRequest(str(number), prompt, output, tuple(range(shared))[: prompt // 4]))
    first = machine.step(0.0)
    aborted = {str(n) for n, (*_, leaves) in enumerate(traffic) if leaves and machine.abort(str(n))}
    for step in [first, *drain(machine)]:
        assert step.duration_ms >= PROFILE.base_ms
        finished += step.finished
        for name, tokens in step.emitted.items():
            told[name] += tokens
    assert sorted({*finished} | aborted) == sorted(told)
    assert len(finished) + len(aborted) == len(told)
    assert all(told[name] == traffic[int(name)][1] for name in finished)
    assert machine.kv_used_tokens == 0
