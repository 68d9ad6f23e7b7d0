"""`python -m bench.vllm_env`: make both models where they are missing, and print the real one's folder."""

from bench.vllm_env.models import real_model, tiny_model

tiny_model()
print(real_model())
