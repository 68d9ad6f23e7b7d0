"""Hop 1 and the last: submit jobs, follow tokens, run batches."""
