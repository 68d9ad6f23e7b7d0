"""All rows of the matrix, in its order."""

from tests.faults import engines, lost, networks, producers, refusing, schedulers, sentinels, stores, workers
from tests.faults.matrix import Fault

ROWS: tuple[Fault, ...] = (
    *producers.ROWS,
    *schedulers.ROWS,
    *workers.ROWS,
    *stores.ROWS,
    *lost.ROWS,
    *sentinels.ROWS,
    *networks.ROWS,
    *engines.ROWS,
    *refusing.ROWS,
)
