"""The load score that workers publish and the policy `load-score` goes by."""


def load_score(memory: float, running: int, capacity: int, kv: float) -> float:
    """`0.4·memory + 0.3·min(running/capacity, 1) + 0.3·KV`, in [0, 1]; full at 0.9.

    Args:
        memory: share of the device's memory in use; without a device, the engine's resident size over its limit.
        running: requests that the engine runs.
        capacity: requests that it runs at once, at least 1.
        kv: share of the KV cache in use.
    """
    return 0.4 * memory + 0.3 * min(running / capacity, 1.0) + 0.3 * kv
