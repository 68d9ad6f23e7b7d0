"""Offline batches: OpenAI batch files in, one output line for each row out."""

from producer.batch.progress import Progress
from producer.batch.retry import retry_failed
from producer.batch.run import run_batch
from producer.batch.tally import BatchEnd, BatchSummary, FinishedRow, Waits

__all__ = ["BatchEnd", "BatchSummary", "FinishedRow", "Progress", "Waits", "retry_failed", "run_batch"]
