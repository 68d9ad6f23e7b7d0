"""`make bench-dispatch`: what the default policy is worth, on real traces in virtual time."""
