"""The live page: one reader of the fleet, a stream of what it sees for each who looks, and the page itself."""
