"""Batch files to measure with: real ones where they are there, else generated ones that say so."""

import json
import sys
from collections.abc import Iterable
from itertools import islice
from pathlib import Path

from protocol.wire import JsonObject
from tokenfleet.simulate.traces import found

FOLDER_VARIABLE = "CASES"
DEFAULT_FOLDER = "cases"
PUBLISHED = {
    "mt-bench-80.jsonl": "github.com/lm-sys/FastChat, fastchat/llm_judge/data/mt_bench/question.jsonl (Apache-2.0)",
    "gsm8k-1319.jsonl": "github.com/openai/grade-school-math, grade_school_math/data/test.jsonl (MIT)",
}
SOLVE = {"role": "system", "content": "Solve the problem. End with the number alone on the last line."}


def mt_bench(model: str, scratch: Path) -> Path:
    """The 80 prompts of MT-bench as an OpenAI batch file; without it, 80 generated prompts in `scratch`."""
    if found := _published("mt-bench-80.jsonl"):
        return found
    questions = [f"Write one sentence about the number {number}." for number in range(80)]
    bodies = [{"messages": [_user(question)], "max_tokens": 64} for question in questions]
    return _write(scratch / "generated-80.jsonl", model, bodies)


def gsm8k(model: str, rows: int, scratch: Path) -> Path:
    """The first rows of GSM8K with one system prompt, as an OpenAI batch file; without it, as many generated sums."""
    if found := _published("gsm8k-1319.jsonl"):
        with found.open(encoding="utf-8") as lines:
            bodies = [json.loads(line)["body"] for line in islice(lines, rows)]
    else:
        sums = [
            f"Ann has {n} eggs and sells {n // 3} of them for {n % 7} dollars each. What has she?" for n in range(rows)
        ]
        bodies = [{"messages": [SOLVE, _user(question)], "max_tokens": 48, "temperature": 0} for question in sums]
    return _write(scratch / "gsm8k.jsonl", model, bodies)


def _published(name: str) -> Path | None:
    """The file of this name in the folder of real ones; None, and a word on stderr, where it is not."""
    path = found(FOLDER_VARIABLE, DEFAULT_FOLDER, name)
    if path.is_file():
        return path
    print(
        f"{path} is not there; {FOLDER_VARIABLE} names its folder. It is made from {PUBLISHED[name]}. "
        "Running on GENERATED prompts instead.",
        file=sys.stderr,
    )
    return None


def _user(content: str) -> JsonObject:
    return {"role": "user", "content": content}


def _write(path: Path, model: str, bodies: Iterable[JsonObject]) -> Path:
    with path.open("w", encoding="utf-8") as lines:
        for number, body in enumerate(bodies):
            row = {"custom_id": f"r-{number}", "method": "POST", "url": "/v1/chat/completions"}
            lines.write(json.dumps(row | {"body": body | {"model": model}}) + "\n")
    return path
