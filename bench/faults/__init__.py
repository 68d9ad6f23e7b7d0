"""The fault matrix as a command."""
