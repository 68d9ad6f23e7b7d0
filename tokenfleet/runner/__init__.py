"""The batch runner: arq's jobs around `producer/batch/service/`."""
