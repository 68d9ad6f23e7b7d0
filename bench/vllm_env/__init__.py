"""What the measurements and tests on real vLLM need around them: models, processes on cores, locks."""
