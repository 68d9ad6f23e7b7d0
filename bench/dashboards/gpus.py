"""The GPUs, under DCGM's names."""

from bench.dashboards.grafana import Dashboard, Panel, Query

_GPU = "{{instance}} GPU {{gpu}}"

GPUS = Dashboard(
    "tokenfleet-gpus",
    "tokenfleet: GPUs",
    (),
    (
        (
            "Use",
            [
                Panel("Utilisation", "percent", [Query("DCGM_FI_DEV_GPU_UTIL", _GPU)]),
                Panel(
                    "Memory",
                    "percentunit",
                    [Query("DCGM_FI_DEV_FB_USED / (DCGM_FI_DEV_FB_USED + DCGM_FI_DEV_FB_FREE)", _GPU)],
                ),
                Panel("Memory in use", "mbytes", [Query("DCGM_FI_DEV_FB_USED", _GPU)]),
            ],
        ),
        (
            "Health",
            [
                Panel("Temperature", "celsius", [Query("DCGM_FI_DEV_GPU_TEMP", _GPU)]),
                Panel("Power", "watt", [Query("DCGM_FI_DEV_POWER_USAGE", _GPU)]),
                Panel("Memory bus", "percent", [Query("DCGM_FI_DEV_MEM_COPY_UTIL", _GPU)]),
            ],
        ),
    ),
)
