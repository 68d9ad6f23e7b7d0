"""The dispatcher's decisions: pure functions of what waits, who has room, the time and a source of chance."""
