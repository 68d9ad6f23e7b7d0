"""Benchmarks: commands that measure, print a table for people, and with `--json` one object for machines."""
