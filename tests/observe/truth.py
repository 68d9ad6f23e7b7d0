"""Which test compares which metric with what happened. Each of them holds that it asks for what stands here."""


def _named(prefix: str, names: str) -> set[str]:
    return {f"{prefix}{name}" for name in names.split()}


BY_JOURNEY = frozenset(
    {
        *_named(
            "tokenfleet_scheduler_",
            "assignments_total leader leads_total retries_total step_seconds wait_seconds window_jobs "
            "windows_closed_total",
        ),
        *_named(
            "tokenfleet_worker_",
            "attempts_total between_tokens_seconds engine_first_token_seconds engine_seconds "
            "first_token_seconds job_seconds output_tokens_total prompt_tokens_total queue_seconds",
        ),
        *_named(
            "tokenfleet_gateway_",
            "first_token_seconds limited_total open_streams requests_total sent_bytes_total tokens_total",
        ),
        *_named(
            "tokenfleet_batch_",
            "ends_total output_tokens_total prompt_tokens_total row_seconds rows_total takes_total",
        ),
        *_named("tokenfleet_", "batches_owned"),
    }
)
"""test_metrics.py: a fleet at work."""
BY_REPORT = frozenset(
    {
        *_named(
            "tokenfleet_worker_",
            "capacity_requests kv_capacity_tokens kv_ratio kv_used_tokens leases_lost_total load_score "
            "memory_ratio pending_prefill_tokens prefilling_requests refusing running_requests slow_streams_ratio "
            "state state_seconds_total waiting_requests",
        ),
        *_named(
            "tokenfleet_engine_",
            "generated_tokens_total prefix_hit_tokens_total prefix_query_tokens_total prompt_tokens_total",
        ),
    }
)
"""test_worker_truth.py: what a worker has reported to Redis."""
BY_HAND = frozenset(
    {
        *_named("tokenfleet_scheduler_", "failed_rounds_total info parked_total refusals_total"),
        *_named("tokenfleet_redis_", "append_only append_only_ok memory_bytes memory_limit_bytes"),
        *_named(
            "tokenfleet_",
            "dead_letters delayed_jobs failed_tries_total jobs_ended_total jobs_taken_back_total lane_jobs "
            "lane_oldest_seconds lane_target_seconds leases_lost_total set_aside_total strikes_total workers",
        ),
    }
)
"""test_scheduler_truth.py: what seldom happens, made to happen."""

BY_UNITS = {
    **dict.fromkeys(
        [
            "tokenfleet_batches",
            "tokenfleet_batches_late",
            *_named("tokenfleet_batch_", "rows_in_redis rows_left rows_per_second"),
        ],
        "what they say of a batch lasts for a moment: tests/runner/test_metrics.py gives it",
    ),
    "tokenfleet_engine_preemptions_total": "takes a full KV cache: tests/worker/test_metrics.py gives the report",
    "tokenfleet_engine_restarts_total": "a simulated engine dies with its worker: the same",
}
"""What no process is brought to tell, and why. Those of GPUs, `DCGM_…`, need NVML: unit tests stand in for it."""
