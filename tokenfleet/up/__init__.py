"""The embedded fleet: a server, a scheduler and workers as children of one process."""
