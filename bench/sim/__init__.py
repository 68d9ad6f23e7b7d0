"""A seeded simulation of the protocol: real producers, schedulers and workers on a fake Redis under a virtual clock.

One thread runs everything. Each process of the fleet is an `Actor` with an event loop of its own (`loop.py`), and its
Redis client (`client.py`) hands each command to the `Network`. There a seeded chooser picks what happens next: one
command of one client is carried out, one reply or message arrives, or time passes. So calls of different processes
interleave in every way, also those of a pipeline, and the same seed gives the same run.

What runs is the product's own code: `run_scheduler`, `run_worker` and `Fleet`. Replaced are sockets, time, chance, the
heartbeat's thread and the engine. The `Injector` kills, pauses, cuts off and restarts (`faults.py`); the `Oracle`
checks the rules after each command that wrote (`oracle.py`); `planted.py` has the bugs that it must find.
"""
