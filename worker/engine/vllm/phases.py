"""What vLLM's log lines say while it starts: how far it is, and why it failed. Pure.

The lines are vLLM's own and change between versions: an unknown one costs an event or a hint, nothing else.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum

_PHASES: tuple[tuple[str, re.Pattern[str]], ...] = (
    ("downloading", re.compile(r"Fetching \d+ files|Downloading |\.(?:safetensors|bin|gguf):\s+\d+%")),
    ("loading weights", re.compile(r"Starting to load model|Loading \w+ checkpoint shards|Loading weights")),
    ("compiling", re.compile(r"Start compiling|Dynamo bytecode transform|Compiling a graph|compiled graph")),
    ("profiling memory", re.compile(r"Memory profiling|Available KV cache memory|KV cache size:")),
    ("capturing graphs", re.compile(r"[Cc]apturing .*graph|Graph capturing")),
    ("warming up", re.compile(r"init engine \(profile|Warming up")),
    ("starting the server", re.compile(r"Starting vLLM(?: API)? server")),
)
_PREFIX = re.compile(r"^(?:\([^)]*\) )?(?:(?P<level>[A-Z]+) \d\d-\d\d \d\d:\d\d:\d\d \[[^\]]*\] ?)?")
_ERROR = re.compile(r"\w*(?:Error|Exception)\b|\berror[:,]|[Ff]ailed|[Kk]illed|No module named")
# Lines of a stack trace, and the one that only points to another.
_NO_NEWS = re.compile(r'raise |File "|\^|.*Engine core initialization failed')
LINES_KEPT, LINES_SHOWN, LINE_CHARS = 300, 3, 300


class Cause(Enum):
    """Why vLLM did not come up, as far as its last lines tell."""

    PORT = "port"
    FLAG = "flag"
    MISSING = "missing"
    MODEL = "model"
    MEMORY = "memory"
    UNKNOWN = "unknown"


_CAUSES: tuple[tuple[Cause, re.Pattern[str]], ...] = (
    (Cause.PORT, re.compile(r"[Aa]ddress already in use")),
    (Cause.MISSING, re.compile(r"No module named '?vllm\b")),
    (
        Cause.MEMORY,
        re.compile(
            r"out of memory|OutOfMemory|No available memory for the cache blocks|Free memory on device"
            r"|larger than the available KV cache memory|DefaultCPUAllocator: can't allocate|MemoryError|bad_alloc"
            r"|Cannot allocate memory|less than requested memory|[Nn]ot enough memory"
        ),
    ),
    (Cause.FLAG, re.compile(r"Value error,|error: (?:argument|unrecognized)")),
    (
        Cause.MODEL,
        re.compile(
            r"not a local folder|not a valid model identifier|[Rr]epository.{0,20}[Nn]ot.{0,5}[Ff]ound|Repo id must"
            r"|Invalid repository ID|GatedRepo|gated repo|Can't load the configuration|does not appear to have a file"
            r"|LocalEntryNotFound|OfflineModeIsEnabled|couldn't connect to '?https?://|Cannot find any model weights"
        ),
    ),
)
HINTS: dict[Cause, str] = {
    Cause.PORT: "Another program took the port; start the worker again.",
    Cause.FLAG: "Correct the flags after `--`; `vllm serve --help=all` lists them.",
    Cause.MISSING: "Name the interpreter that has vLLM with --vllm-python, or run: pip install 'tokenfleet[vllm]'",
    Cause.MODEL: "Check the model's name or folder, and for a closed model the access token in HF_TOKEN.",
    Cause.MEMORY: (
        "Give the engine less to hold: a smaller --max-model-len or --max-num-seqs, a quantised model, or more devices"
        " with --tensor-parallel-size; --gpu-memory-utilization is its share of a device that others use too."
    ),
    Cause.UNKNOWN: "The lines above are vLLM's own; start the command that was logged by hand to see all of them.",
}


@dataclass(frozen=True, slots=True)
class Failure:
    """A failed start."""

    cause: Cause
    message: str
    """What ended it, with vLLM's last error lines."""

    @property
    def hint(self) -> str:
        """What to do."""
        return HINTS[self.cause]


def phase_of(line: str) -> str:
    """The phase that begins with a line; empty for most lines."""
    return next((name for name, pattern in _PHASES if pattern.search(line)), "")


def how_it_ended(code: int) -> str:
    """An exit code in words; 128 and more stand for a signal, as in a shell."""
    if code == 137:
        return "was killed by signal 9, as the system does when memory runs out"
    return f"was ended by signal {code - 128}" if code > 128 else f"ended with code {code}"


def failure_of(code: int, lines: Sequence[str]) -> Failure:
    """What went wrong, from the exit code and the last lines; no request has come yet, so they hold no prompt."""
    errors = _error_lines(lines)
    text = "\n".join(lines)
    cause = next((cause for cause, pattern in _CAUSES if pattern.search(text)), Cause.UNKNOWN)
    if cause is Cause.UNKNOWN:
        cause = {2: Cause.FLAG, 137: Cause.MEMORY}.get(code, cause)
    told = next((line for found, pattern in _CAUSES if found is cause for line in errors if pattern.search(line)), "")
    shown = dict.fromkeys([*([told] if told else []), *errors[-LINES_SHOWN:]])
    return Failure(cause, f"vLLM {how_it_ended(code)}" + "".join(f" / {line}" for line in shown))


def _error_lines(lines: Sequence[str]) -> list[str]:
    """Those that say what went wrong, without vLLM's heads; each once."""
    found: dict[str, None] = {}
    for line in lines:
        head = _PREFIX.match(line)
        rest = line[head.end() :].strip() if head else line.strip()
        if (
            _ERROR.search(rest)
            and not _NO_NEWS.match(rest)
            and (head is None or head["level"] not in ("INFO", "WARNING", "DEBUG"))
        ):
            found[rest[:LINE_CHARS]] = None
    return list(found)
