"""What a soak consists of."""

from protocol.settings import Settings

MODEL = "soak"
RATE = 20.0
"""Single jobs a second."""
KEPT = 20
"""Each so manieth job is left to its retention: five minutes for its token log."""
STREAM_EACH_S = 0.5
"""Between two streams over HTTP."""
BATCH_ROWS = 100
BATCH_KEEP_S = 120.0
"""How long the batch service keeps what has ended."""
WORKERS = 2
SCHEDULERS = 2
KEEP_S = 30.0
SAMPLE_S = 1.0


def settings(url: str) -> Settings:
    """Of the clients."""
    return Settings(redis_url=url, keep_s=KEEP_S)
