"""Go. `asynq`: one server with 20 goroutines, 10 a CPU (its README's example has 10, its default is the CPUs), 200 for
naps; `asynq-4`: four such servers in one process, since one fetches its tasks one at a time. `TaskCheckInterval`, the
sleep of an idle server, is 10 ms (default 1 s). Payloads are JSON, decoded in the handler.

Results kept: `Retention` of a day, and the handler writes its number with `ResultWriter`. Not kept: the default. It
has no bulk call: `BatchEnqueueContext` is in no release yet.
"""

PROGRAM = "asynq"
RECOVERY = "a lease, 30 s, checked each minute"
ENTRANTS = {"asynq": {"drain": 20_000, "nap": 4_000}, "asynq-4": {"drain": 40_000, "nap": 8_000}}
