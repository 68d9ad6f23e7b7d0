"""`batch_create`: a new batch, which a runner will take."""

from protocol import keys
from protocol.batches import MOST_BATCHES, BatchName, BatchSpec
from protocol.call import Call, fcall
from protocol.errors import ConflictingId, QueueFull


def batch_create(name: BatchName, spec: BatchSpec, most: int = MOST_BATCHES) -> Call[bool]:
    """Yields False when it was created before; repeat it freely.

    Raises (when run):
        ConflictingId: the id belongs to a batch with another description.
        QueueFull: the tenant has `most` batches.
        StoreFull: Redis is at its memory limit.
    """
    names = [keys.batch(name), keys.batches(name.tenant), keys.LIVING_BATCHES]
    return fcall("batch_create", names, (name.ref, name.id, _text(spec), most), _parse)


def _text(spec: BatchSpec) -> str:
    """What Redis compares, character by character: what a gateway wrote that had no `order` yet is the same batch."""
    return spec.model_dump_json(exclude={"order"} if spec.order == BatchSpec.model_fields["order"].default else None)


def _parse(reply: int) -> bool:
    if reply == -1:
        raise ConflictingId("this id belongs to another batch")
    if reply < 0:
        raise QueueFull("the tenant has as many batches as it may", "Delete some that have ended.")
    return reply == 1
