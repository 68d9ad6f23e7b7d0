"""The files of a batch that is measured: rows that are made up, and lines that are counted as they are written."""

from pathlib import Path

from protocol import wire

TOPICS = ("birds", "bridges", "clouds", "glass", "islands", "maps", "rivers", "trains")
MAX_TOKENS = 8


def generate(path: Path, model: str, rows: int) -> Path:
    """Write so many chats; a topic's begin alike."""
    with path.open("wb") as lines:
        for number in range(rows):
            topic = TOPICS[number % len(TOPICS)]
            asked = [
                {"role": "system", "content": f"You know all about {topic}. Answer in one short sentence."},
                {"role": "user", "content": f"Tell me fact number {number} about {topic}."},
            ]
            body = {"model": model, "messages": asked, "max_tokens": MAX_TOKENS, "temperature": 0}
            row = {"custom_id": f"row-{number}", "method": "POST", "url": "/v1/chat/completions", "body": body}
            lines.write(wire.dumps(row) + b"\n")
    return path


class LineCount:
    """Counts the lines of a file that others append to."""

    def __init__(self, path: Path) -> None:
        """The file need not be there yet."""
        self._path = path
        self._offset = self._lines = 0

    def now(self) -> int:
        """So many whole lines stand there."""
        if self._path.is_file():
            with self._path.open("rb") as file:
                file.seek(self._offset)
                while data := file.read(1 << 20):
                    self._offset += len(data)
                    self._lines += data.count(b"\n")
        return self._lines
