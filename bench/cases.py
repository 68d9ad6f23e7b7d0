"""Batch files to measure with: real ones where they are there, else generated ones that say so."""

import json
import os
import sys
from pathlib import Path

FOLDER_VARIABLE = "CASES"
DEFAULT_FOLDER = "../shared/cases"
PUBLISHED = "github.com/lm-sys/FastChat, fastchat/llm_judge/data/mt_bench/question.jsonl (Apache-2.0)"


def mt_bench(model: str, scratch: Path) -> Path:
    """The 80 prompts of MT-bench as an OpenAI batch file; without it, 80 generated prompts in `scratch`."""
    path = Path(os.environ.get(FOLDER_VARIABLE, DEFAULT_FOLDER)) / "mt-bench-80.jsonl"
    if path.is_file():
        return path
    print(
        f"{path} is not there; {FOLDER_VARIABLE} names its folder. It is made from {PUBLISHED}. "
        "Running on 80 GENERATED prompts instead.",
        file=sys.stderr,
    )
    made = scratch / "generated-80.jsonl"
    with made.open("w", encoding="utf-8") as lines:
        for number in range(80):
            message = {"role": "user", "content": f"Write one sentence about the number {number}."}
            body = {"model": model, "messages": [message], "max_tokens": 64}
            row = {"custom_id": f"g-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            lines.write(json.dumps(row) + "\n")
    return made
