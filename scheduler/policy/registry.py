"""The policies by name: a new one is a file of its own and a line here."""

from scheduler.policy.cache_aware import CacheAware
from scheduler.policy.kv_cost import KvCost
from scheduler.policy.least_requests import LeastRequests
from scheduler.policy.least_work import LeastWork
from scheduler.policy.lmetric import LMetric
from scheduler.policy.load_score import LoadScore
from scheduler.policy.policy import Policy
from scheduler.policy.power_of_two import PowerOfTwo
from scheduler.policy.predictive import Predictive
from scheduler.policy.round_robin import RoundRobin

POLICIES: dict[str, Policy] = {
    "cache-aware": CacheAware(),
    "kv-cost": KvCost(),
    "least-requests": LeastRequests(),
    "least-work": LeastWork(),
    "lmetric": LMetric(),
    "load-score": LoadScore(),
    "power-of-two": PowerOfTwo(),
    "predictive": Predictive(),
    "round-robin": RoundRobin(),
}
