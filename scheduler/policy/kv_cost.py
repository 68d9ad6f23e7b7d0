"""Policy `kv-cost`: the fewest KV blocks to compute and to read.

Source: NVIDIA Dynamo's KV router, with its defaults: overlap weight 1, temperature 0.
"""

from scheduler.policy.policy import Policy
from scheduler.policy.view import JobView
from scheduler.policy.worker import Worker

BLOCK_TOKENS = 16
"""Of one block; it scales all scores alike."""


class KvCost(Policy):
    """By own counters beside the reports, as Dynamo's router tracks the blocks of its active requests."""

    def score(self, job: JobView, worker: Worker) -> float:
        """`prefill blocks + decode blocks`, both with the job on the worker.

        Prefill: the prompts that wait there, and of the job's own what is not cached. Decode: the KV that its jobs
        hold or will hold, and the job's prompt.
        """
        prefill = worker.pending_tokens + worker.uncached_tokens(job)
        decode = worker.kv_tokens + job.spec.prompt_tokens
        return (prefill + decode) / BLOCK_TOKENS
