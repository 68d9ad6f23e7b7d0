"""`python -m tokenfleet`: the same as the command `tokenfleet`."""

from tokenfleet.cli import main

main()
