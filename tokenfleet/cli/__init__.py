"""The command line: one file a command, loaded when it is called."""

from tokenfleet.cli.app import cli as main

__all__ = ["main"]
