"""All dashboards."""

from bench.dashboards.dispatcher import DISPATCHER
from bench.dashboards.gpus import GPUS
from bench.dashboards.inference import INFERENCE

DASHBOARDS = (INFERENCE, DISPATCHER, GPUS)
