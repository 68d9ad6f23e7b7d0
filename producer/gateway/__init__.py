"""The front door: OpenAI's HTTP for whoever does not link the Python client."""
