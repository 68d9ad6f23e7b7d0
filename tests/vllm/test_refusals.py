"""A worker that can't start ends with code 2 and says what to do."""

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.vllm.roles import CPU_BUILD, DUMMY, vllm_arguments
from tests.vllm.site import START_S, Site

pytestmark = pytest.mark.vllm


async def ended(site: Site, name: str, folder: Path, flags: Sequence[str]) -> tuple[int, str]:
    """Exit code and last words of a worker that does not come up."""
    with site.role(name, vllm_arguments(name, folder, name, [], flags), CPU_BUILD) as role:
        code = await asyncio.to_thread(role.process.wait, START_S)
        return code, role.words()


async def test_no_such_model_and_no_such_flag(site: Site, tiny_folder: Path) -> None:
    wrong_model, wrong_flag = await asyncio.gather(
        ended(site, "nowhere", tiny_folder / "nowhere", DUMMY), ended(site, "odd", tiny_folder, ["--no-such-flag"])
    )
    code, said = wrong_model
    assert code == 2, said
    assert "Check the model's name or folder" in said
    code, said = wrong_flag
    assert code == 2, said
    assert "--no-such-flag" in said
    assert "Correct the flags after `--`" in said


async def test_a_flag_that_is_the_workers_own(site: Site, tiny_folder: Path) -> None:
    code, said = await ended(site, "port", tiny_folder, ["--port", "8000"])
    assert code == 2, said
    assert "Leave --port out" in said
