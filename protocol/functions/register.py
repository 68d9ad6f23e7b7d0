"""`register`: adds a model or adapter to `models`."""

from protocol import keys
from protocol.call import Call, fcall
from protocol.messages import ModelRecord


def register(model: str, record: ModelRecord) -> Call[str]:
    """Yields '' when registered, else the other pool that serves this model already."""
    args = (model, record.pool, record.model_dump_json())
    return fcall("register", [keys.MODELS], args, bytes.decode)
