"""Load tests whose figures can be trusted.

>>> from outrider.load import LoadPlan, run_load
>>> plan = LoadPlan(
...     url="http://127.0.0.1:8000", model="m", workload="chat",
...     arrivals={"kind": "closed", "concurrency": 4}, requests=16,
... )
>>> outcome = run_load(plan)  # doctest: +SKIP
>>> outcome.result.tpot_s.mean  # doctest: +SKIP
0.0213

Importing this package is cheap; gevent and Locust are only imported in the load process.
"""

from outrider.load.plan import Arrivals, Closed, Constant, Gamma, Labels, LoadPlan, Poisson, Trace
from outrider.load.result import (
    ClientHealth,
    EngineWindow,
    Finding,
    Latency,
    LoadOutcome,
    LoadResult,
    Progress,
    RequestRecord,
)
from outrider.load.run import read_records, run_load

__all__ = [
    "Arrivals",
    "ClientHealth",
    "Closed",
    "Constant",
    "EngineWindow",
    "Finding",
    "Gamma",
    "Labels",
    "Latency",
    "LoadOutcome",
    "LoadPlan",
    "LoadResult",
    "Poisson",
    "Progress",
    "RequestRecord",
    "Trace",
    "read_records",
    "run_load",
]
