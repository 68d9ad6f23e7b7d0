"""Times as the live page writes them, by its own module in Node.js."""

import json
import shutil
import subprocess
from pathlib import Path

from tests.page.conftest import needed
from tests.support.nursery import ROOT

FORMAT = ROOT / "producer" / "gateway" / "page" / "format.js"
SECONDS = {
    0: "0.0 s",
    9.94: "9.9 s",
    9.97: "10 s",
    59.4: "59 s",
    59.6: "1 min 0 s",
    119.4: "1 min 59 s",
    119.6: "2 min 0 s",
    3_599.4: "59 min 59 s",
    3_599.6: "1 h 0 min",
    47 * 3_600: "47 h 0 min",
    50 * 3_600: "2 days",
}
MILLISECONDS = {0.4: "0 ms", 999.4: "999 ms", 999.6: "1.0 s", 59_700: "1 min 0 s"}


def test_times_are_rounded_before_they_are_split(tmp_path: Path) -> None:
    node = shutil.which("node")
    needed(node, "node on the path: apt-get install nodejs")
    # By this name every version of Node.js takes it for a module.
    (tmp_path / "format.mjs").write_bytes(FORMAT.read_bytes())
    asked = {"seconds": list(SECONDS), "milliseconds": list(MILLISECONDS)}
    (tmp_path / "main.mjs").write_text(
        'import * as format from "./format.mjs";\n'
        f"const asked = {json.dumps(asked)};\n"
        "const told = Object.entries(asked).map(([name, values]) => [name, values.map(format[name])]);\n"
        "console.log(JSON.stringify(Object.fromEntries(told)));\n"
    )
    told = subprocess.run([str(node), "main.mjs"], cwd=tmp_path, capture_output=True, check=True, timeout=60).stdout
    assert json.loads(told) == {"seconds": list(SECONDS.values()), "milliseconds": list(MILLISECONDS.values())}
