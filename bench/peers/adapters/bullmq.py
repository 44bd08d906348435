"""Node. 2 processes, "the recommended way" of its guide, with concurrency 100 each (default 1, its example has 50).

Results kept: every finished job, its default. Not kept: `removeOnComplete`.
"""

PROGRAM = "bullmq"
RECOVERY = "a lock, 30 s, checked each 30 s"
ENTRANTS = {"bullmq": {"drain": 30_000, "nap": 15_000}}
