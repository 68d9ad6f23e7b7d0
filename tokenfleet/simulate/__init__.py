"""The scheduler's decision core on a virtual clock: engines step by step, traces, and what came of them."""
