"""Bodies of answers that this code makes itself, in OpenAI's shape."""

from protocol.wire import JsonObject


def error_body(message: str, code: str, status_code: int = 400) -> JsonObject:
    """An OpenAI error object; `message` must not hold the prompt."""
    kind = "invalid_request_error" if status_code < 500 else "server_error"
    return {"error": {"message": message, "type": kind, "param": None, "code": code}}


def usage(prompt_tokens: int, completion_tokens: int, cached_tokens: int = 0) -> JsonObject:
    """An OpenAI usage object."""
    return {
        "prompt_tokens": prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": prompt_tokens + completion_tokens,
        "prompt_tokens_details": {"cached_tokens": cached_tokens},
    }
