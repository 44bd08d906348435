"""An app whose import uses the queue: whatever that has opened in the template must harm no child."""

from __future__ import annotations

import os

import dtq
from tests.process.handlers import app, effect

first = app.enqueue("mark", {"name": f"import-{os.getpid()}"})
assert first.task().status in ("queued", "running", "succeeded")


@app.task(name="nested")
def nested(context: dtq.Context, name: str, looks: int) -> str:
    """Enqueue a task, and ask for its own state again and again."""
    effect("start", name, context.attempt)
    other = app.enqueue("mark", {"name": f"{name}-sub"})
    for _ in range(looks):
        assert app.handle(context.task_id, context.queue).task().id == context.task_id
        assert app.handle(other.id, context.queue).task().id == other.id
    return other.id


@app.task(name="async_nested")
async def async_nested(context: dtq.Context, name: str, looks: int) -> str:
    """The same in the loop."""
    effect("start", name, context.attempt)
    other = await app.aenqueue("mark", {"name": f"{name}-sub"})
    for _ in range(looks):
        assert (await app.handle(other.id, context.queue).atask()).id == other.id
    return other.id
