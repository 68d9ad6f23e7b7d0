"""vLLM: the server, as a child of the worker or one that runs already."""
