"""Node. 2 processes with concurrency 100, as its documentation advises for I/O-bound work (default 1).

Results kept: every finished job, its default. Not kept: `removeOnComplete`.
"""

PROGRAM = "bullmq"
ENTRANTS = {"bullmq": {"drain": 30_000, "nap": 15_000}}
