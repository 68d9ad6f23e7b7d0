"""The command lines of an embedded fleet's children."""

import os
import signal
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from tokenfleet.up import guard
from tokenfleet.up.child import Command
from tokenfleet.up.data import DataDir
from tokenfleet.up.ports import LOOPBACK

EngineName = Literal["llama", "sim", "vllm"]
SMALL_MODEL = "smollm2-135m"
PARENT_PIPE = "TOKENFLEET_PARENT_PIPE"
"""Tells our own roles that their stdin closes when their parent dies."""
_PACKAGE_ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True)
class FleetOptions:
    """What an embedded fleet consists of."""

    data: Path | None = None
    """Kept there; None: a temporary directory, removed at a clean end."""
    workers: int = 2
    engine: EngineName = "llama"
    model: str = SMALL_MODEL
    vllm_python: Path | None = None
    """vllm: the interpreter that has it; None: this one."""
    vllm_flags: tuple[str, ...] = ()
    """vllm: what `vllm serve` is started with."""
    slots: int = 4
    """Requests at once on each worker."""
    port: int = 0
    """Where the server listens on loopback; 0 takes a free port."""
    preferred_port: int = 0
    """The first choice for a free one."""
    sim_speed: float = 1.0
    drain_s: float = 3.0
    """How long workers may finish what they run when the fleet is stopped."""
    log_level: str = "info"


def url_of(port: int) -> str:
    """The Redis URL of the fleet's server."""
    return f"redis://{LOOPBACK}:{port}/0"


def server_command(binary: Path, port: int, data: DataDir) -> Command:
    """Valkey, run by a guard that ends it when we die."""
    program = [str(binary), "--port", str(port), "--bind", LOOPBACK, "--dir", str(data.path)]
    program += ["--appendonly", "yes", "--appendfsync", "everysec", "--save", ""]
    # A full server refuses new jobs and finishes what it has; an evicting one would lose them.
    program += ["--maxmemory", "1gb", "--maxmemory-policy", "noeviction"]
    program += ["--client-output-buffer-limit", "pubsub 64mb 16mb 60", "--loglevel", "warning"]
    return Command(
        "valkey",
        _python("tokenfleet.up.guard", "--", *program),
        env=_python_env(),
        # The guard itself kills a server that does not end in time; killed, it could not.
        grace_s=guard.GRACE_S + 5,
        hard_end=signal.SIGTERM,
        inherit=(data.server_lock,),
    )


def scheduler_command(url: str, options: FleetOptions) -> Command:
    """The scheduler of the fleet's only pool."""
    return Command("scheduler", _python("tokenfleet", "scheduler"), env=_role_env(url, options))


def worker_command(url: str, options: FleetOptions, number: int) -> Command:
    """Worker `number`, counted from 1."""
    name = f"worker-{number}"
    arguments = ["worker", "--model", options.model, "--engine", options.engine, "--label", name]
    arguments += ["--slots", str(options.slots)]
    env = _role_env(url, options)
    match options.engine:
        case "llama":
            arguments += ["--threads", "1"]
        case "sim":
            arguments += ["--sim-speed", str(options.sim_speed)]
        case "vllm":
            arguments += ["--vllm-python", str(options.vllm_python)] if options.vllm_python else []
            arguments += ["--", *options.vllm_flags]
            env |= share_of(number)
    return Command(name, _python("tokenfleet", *arguments), env=env, grace_s=options.drain_s + 5)


def share_of(number: int) -> dict[str, str]:
    """What keeps vLLM worker `number` off the others': a GPU of its own, else a core, unless the caller has decided."""
    from worker.device import device_count

    devices = device_count()
    if devices:
        own = {"CUDA_VISIBLE_DEVICES": str((number - 1) % devices)}
    else:
        own = {"VLLM_CPU_OMP_THREADS_BIND": str((number - 1) % (os.cpu_count() or 1))}
    return {name: value for name, value in own.items() if name not in os.environ}


def _python(module: str, *arguments: str) -> tuple[str, ...]:
    # Without -P a `tokenfleet.py` or `worker.py` in the user's directory would run instead.
    return sys.executable, "-P", "-m", module, *arguments


def _python_env() -> dict[str, str]:
    """These very packages, also where they are not installed."""
    inherited = os.environ.get("PYTHONPATH", "")
    return {"PYTHONPATH": os.pathsep.join(filter(None, [str(_PACKAGE_ROOT), inherited])), "PYTHONUNBUFFERED": "1"}


def _role_env(url: str, options: FleetOptions) -> dict[str, str]:
    return _python_env() | {
        PARENT_PIPE: "1",
        "TOKENFLEET_REDIS_URL": url,
        # What opens another Redis is not for ours.
        **dict.fromkeys((f"TOKENFLEET_REDIS_{name}" for name in ("PASSWORD", "CA", "CERT", "KEY")), ""),
        # One port would be taken by the first of them.
        "TOKENFLEET_METRICS_PORT": "0",
        "TOKENFLEET_LOG_LEVEL": options.log_level,
        "TOKENFLEET_LOG_FORMAT": "json",
        "TOKENFLEET_DRAIN_S": str(options.drain_s),
    }
