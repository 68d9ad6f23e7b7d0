"""The policies by name: a new one is a file of its own and a line here."""

from scheduler.policy.least_work import LeastWork
from scheduler.policy.load_score import LoadScore
from scheduler.policy.policy import Policy
from scheduler.policy.predictive import Predictive

POLICIES: dict[str, Policy] = {
    "least-work": LeastWork(),
    "load-score": LoadScore(),
    "predictive": Predictive(),
}
