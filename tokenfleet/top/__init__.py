"""A fleet that is watched live in a terminal."""
