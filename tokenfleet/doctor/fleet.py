"""What is wrong with a fleet at one moment: leaders, workers, engines, models, jobs that were set aside. Pure."""

from collections.abc import Iterator, Mapping

from producer.overview import Overview, ShardView, WorkerView
from protocol.handle import Shard
from tokenfleet.doctor.finding import Finding, fail, ok, warn
from tokenfleet.terminal import harmless

STANDBY_MS = 5_000
"""A standby asks for the lead twice a second: one that was silent for so long is gone."""
SILENT_MS = 3_000
STANDING_BY = ("warm", "asleep")
COMING = ("starting", "loading")


def of_fleet(seen: Overview, standbys: Mapping[Shard, int]) -> Iterator[Finding]:
    """All checks of it; `standbys` tells when a dispatcher last asked for a shard's lead in vain, 0 for never."""
    if not seen.shards:
        advice = "Start one: tokenfleet worker --model NAME --engine …"
        yield warn("workers", "no worker ever registered a model here", advice)
        return
    for shard in seen.shards:
        yield _leader(shard)
        if shard.led:
            yield _standby(shard, seen.now_ms - standbys.get(shard.shard, 0))
        yield from _workers(shard)
        yield from _models(shard)
    yield _dead(seen)


def _leader(shard: ShardView) -> Finding:
    if shard.led:
        return ok("leader", f"{shard.shard}: a scheduler leads")
    return fail("leader", f"{shard.shard}: no scheduler leads, nothing is assigned", "Start one: tokenfleet scheduler.")


def _standby(shard: ShardView, silent_ms: int) -> Finding:
    if silent_ms <= STANDBY_MS:
        return ok("standby", f"{shard.shard}: another scheduler stands by")
    advice = "Start a second scheduler on another host: it takes over within three seconds."
    return warn("standby", f"{shard.shard}: no scheduler stands by", advice)


def _workers(shard: ShardView) -> Iterator[Finding]:
    waiting = sum(lane.depth for lane in shard.lanes)
    active = [worker for worker in shard.workers if _speaks(worker) and worker.state == "active"]
    if not active:
        said = f"{shard.shard}: no worker takes jobs, and {waiting:,} wait"
        ready = [worker for worker in shard.workers if worker.state in STANDING_BY]
        advice = "Promote one: tokenfleet workers promote ID." if ready else "Start one, or look at its log."
        yield fail("workers", said, advice) if waiting else warn("workers", said, advice)
    else:
        yield ok("workers", f"{shard.shard}: {len(active)} of {len(shard.workers)} take jobs")
    for worker in shard.workers:
        if not _speaks(worker):
            said = f"{shard.shard}: {harmless(worker.label)} is silent for {worker.report_age_ms / 1000:.0f} s"
            yield warn("silent", said, "Look at its host. Its jobs go to others once its lease is over.")
    yield from _engines(shard)


def _speaks(worker: WorkerView) -> bool:
    return worker.state != "lost" and worker.report_age_ms <= SILENT_MS


def _engines(shard: ShardView) -> Iterator[Finding]:
    speaking = [worker for worker in shard.workers if _speaks(worker)]
    for worker in speaking:
        name = f"{shard.shard}: {harmless(worker.label)}"
        if worker.state == "unhealthy":
            yield fail("engine", f"{name} has lost its engine and starts it again", "Look at its log for why it died.")
        elif worker.state in COMING:
            yield warn(
                "engine", f"{name} is {worker.state}: its engine does not answer yet", "Wait, or look at its log."
            )
    well = sum(worker.state not in ("unhealthy", *COMING) for worker in speaking)
    if well:
        yield ok("engine", f"{shard.shard}: {well} {'engine answers' if well == 1 else 'engines answer'}")


def _models(shard: ShardView) -> Iterator[Finding]:
    served = {model for worker in shard.workers if worker.state != "lost" for model in worker.models or shard.models}
    for model in shard.models:
        if model not in served:
            said = f"{shard.shard}: no worker serves {harmless(model)}: its jobs wait"
            yield warn("models", said, "Start a worker for it, or submit no more jobs for it.")
    if served:
        yield ok("models", f"{shard.shard}: {len(served & set(shard.models))} of {len(shard.models)} have a worker")


def _dead(seen: Overview) -> Finding:
    if not seen.dead:
        return ok("dead", "no job was set aside")
    said = f"{seen.dead:,} {'job was' if seen.dead == 1 else 'jobs were'} set aside after three strikes"
    return warn("dead", said, "See why: tokenfleet dead list.")
