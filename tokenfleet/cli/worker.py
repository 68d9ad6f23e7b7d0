"""`tokenfleet worker`: a worker's process."""

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict, Unpack

import click

from protocol.errors import SetupError
from tokenfleet.cli.options import load_settings, metrics_options, shared_options
from tokenfleet.cli.vllm_options import vllm_options

if TYPE_CHECKING:
    from protocol.settings import Settings
    from worker.options import WorkerOptions


class Options(TypedDict):
    """The options of `worker`, as click hands them over."""

    models: tuple[str, ...]
    engine: str
    attach: str
    vllm_python: Path | None
    standby: bool
    pool: str
    shard: int
    shards: int
    label: str
    slots: int
    context_tokens: int
    model_path: Path | None
    threads: int
    sim_profile: str
    sim_speed: float
    vllm_flags: tuple[str, ...]


@click.command("worker")
@click.option("--model", "models", multiple=True, required=True, help="A name that jobs ask for and the engine knows.")
@click.option("--engine", type=click.Choice(["vllm", "openai", "llama", "sim"]), default="openai", show_default=True)
@click.option("--attach", default="", help="openai, vllm: where a running server listens, as http://127.0.0.1:8000.")
@click.option("--standby", is_flag=True, help="Load the model and take no jobs until `workers promote`.")
@click.option("--pool", default="", help="The pool to join.  [default: named after the model]")
@click.option("--shard", type=click.IntRange(0), default=0, show_default=True, help="Which of the pool's shards.")
@click.option("--shards", type=click.IntRange(1, 1024), default=1, show_default=True, help="How many the pool has.")
@click.option("--label", default="", help="What people call this worker.  [default: host and process id]")
@click.option("--slots", type=click.IntRange(0), default=0, help="Jobs at once.  [default: what the engine can hold]")
@click.option(
    "--context", "context_tokens", type=click.IntRange(0), default=0, help="Longest prompt plus output, in tokens."
)
@click.option("--model-path", type=click.Path(exists=True, dir_okay=False, path_type=Path), help="llama: a GGUF file.")
@click.option("--threads", type=click.IntRange(1), default=1, show_default=True, help="llama: how many compute.")
@click.option("--sim-profile", default="h100-8b", show_default=True, help="sim: whose step times; instant has none.")
@click.option("--sim-speed", type=click.FloatRange(0, min_open=True), default=1.0, help="sim: how much faster.")
@vllm_options
@metrics_options
@shared_options
@click.pass_context
def command(context: click.Context, **options: Unpack[Options]) -> None:
    """Run a worker: it takes jobs of one model, runs them on its engine, and streams the tokens.

    \b
    Engines:
      vllm    a vLLM server of the worker's own, with what follows -- as its flags; or a running one, by --attach
      openai  any other OpenAI-compatible server that runs already: SGLang, TGI, llama.cpp
      llama   a llama.cpp child of the worker's own; SmolLM2-135M unless --model-path names another
      sim     a simulated engine with the step times of real hardware, for tests and capacity planning

    \b
    Examples:
      tokenfleet worker --engine vllm --model meta-llama/Llama-3.1-8B-Instruct -- --max-model-len 8192
      tokenfleet worker --engine vllm --model llama-70b --attach http://127.0.0.1:8000
      tokenfleet worker --model smollm2-135m --engine llama
      tokenfleet worker --model demo --engine sim --sim-profile h100-8b

    SIGTERM or Ctrl-C drains: it takes nothing more, finishes what it runs within the time of the setting drain_s, and
    hands the rest back. A second signal stops at once. The server's API key is read from TOKENFLEET_ENGINE_API_KEY, or
    from the file that TOKENFLEET_ENGINE_API_KEY_FILE names.

    \b
    Exit codes: 0 drained, 2 invalid or not installed, 4 Redis did not answer at the start,
    130 stopped at once by a second signal.
    """
    settings = load_settings()
    worker = _worker(options, settings)
    from tokenfleet.cli.parent import end_with_parent
    from worker.process import main

    end_with_parent()
    context.exit(main(settings, worker))


def _worker(options: Options, settings: "Settings") -> "WorkerOptions":
    """The worker that the options describe.

    Raises:
        SetupError: the engine lacks a package or an option.
    """
    if options["vllm_flags"] and options["engine"] != "vllm":
        raise SetupError("only --engine vllm passes flags on", f"Unexpected: {' '.join(options['vllm_flags'])}")
    from worker.engine.options import EngineOptions
    from worker.engine.registry import create_engine
    from worker.options import WorkerOptions

    engine = create_engine(
        options["engine"],
        EngineOptions(
            slots=options["slots"],
            context_tokens=options["context_tokens"],
            model=options["models"][0],
            attach=options["attach"],
            api_key=settings.engine_api_key,
            stall_s=settings.engine_stall_s,
            model_path=options["model_path"],
            threads=options["threads"],
            arguments=options["vllm_flags"],
            python=options["vllm_python"],
            profile=options["sim_profile"],
            speed=options["sim_speed"],
        ),
    )
    return WorkerOptions(
        engine,
        options["models"],
        pool=options["pool"],
        shard=options["shard"],
        shards=options["shards"],
        label=options["label"],
        slots=options["slots"],
        standby=options["standby"],
    )
