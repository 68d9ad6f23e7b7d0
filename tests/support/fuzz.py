"""How many examples the property tests of bad input try: the same few in each run, or as many as one asks for."""

import os

from hypothesis import HealthCheck, settings

EXAMPLES = "TOKENFLEET_EXAMPLES"
"""In the environment: so many examples each, and new ones in each run."""


def examples(count: int) -> settings:
    """Settings of a property that tries `count` examples by default."""
    asked = os.environ.get(EXAMPLES)
    return settings(
        max_examples=int(asked) if asked else count,
        derandomize=not asked,
        database=None,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
