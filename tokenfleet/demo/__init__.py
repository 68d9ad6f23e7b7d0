"""A newcomer's first sight: a whole fleet, a batch, and a chat that overtakes it."""
