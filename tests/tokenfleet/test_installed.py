"""Each engine that `up` and `demo` offer is known wherever engines are told apart."""

from typing import get_args

import pytest

from tokenfleet.demo.run import READY_S
from tokenfleet.up.commands import EngineName, FleetOptions, worker_command
from tokenfleet.up.installed import check_engine

ENGINES = get_args(EngineName)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_s_packages_are_looked_for(engine: EngineName) -> None:
    check_engine(engine)


@pytest.mark.parametrize("engine", ENGINES)
def test_an_engine_has_a_command_line_and_a_time_to_come_up(engine: EngineName) -> None:
    command = worker_command("redis://h:1/0", FleetOptions(engine=engine, vllm_flags=("--dtype", "bfloat16")), 2)
    assert engine in command.argv
    assert READY_S[engine] > 0


def test_vllm_s_flags_stand_behind_the_worker_s_and_each_worker_has_a_share_of_its_own() -> None:
    options = FleetOptions(engine="vllm", vllm_flags=("--max-model-len", "2048"))
    one, two = (worker_command("redis://h:1/0", options, number) for number in (1, 2))
    assert one.argv[-3:] == ("--", "--max-model-len", "2048")
    assert one.env != two.env
