"""Offline batches: OpenAI batch files in, one output line for each row out."""

from producer.batch.run import Progress, run_batch
from producer.batch.tally import BatchSummary, FinishedRow, Waits

__all__ = ["BatchSummary", "FinishedRow", "Progress", "Waits", "run_batch"]
