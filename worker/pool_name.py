"""The pool that a model is served from when nobody names one."""

import re
from hashlib import sha256

LONGEST = 64
_DIGEST = 8


def pool_of(model: str) -> str:
    """The model's name as a pool's name: `meta-llama/Llama-3.1-8B` becomes `meta-llama-llama-3-1-8b`.

    Long names end with a digest, so that two of them never share a pool by their beginning.
    """
    slug = re.sub(r"[^a-z0-9_-]+", "-", model.lower()).strip("-") or "model"
    if len(slug) <= LONGEST:
        return slug
    return f"{slug[: LONGEST - _DIGEST - 1]}-{sha256(model.encode()).hexdigest()[:_DIGEST]}"
