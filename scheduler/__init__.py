"""Hop 2: read what waits and who has room, decide, apply."""
