"""Batches as a service: files from a store, records in Redis, one owner each."""
