"""Editing the payload of a dead letter, and queueing its task again."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from nicegui import ui

from dtq.dashboard import text
from dtq.dashboard.page import Page
from dtq.dashboard.parts import answer_of, button, set_text, tag
from dtq.errors import InvalidTask
from dtq.models import Task
from dtq.raw_json import read_object


async def edit_and_requeue(page: Page, queue: str, name: str, task: Task) -> None:
    """Asks for another payload, and a new deadline where there is one; queues the task again once both can be.

    name: the task's id, or the entry of its dead letter.
    """
    with ui.dialog().props("persistent") as dialog, ui.card().classes("dialog-card wide"):
        tag("h2", "Edit and requeue")
        tag(
            "div",
            f"Task {task.id} of queue {queue} runs again, with all its attempts and with this payload.",
            "body data",
        )
        # Sent when the typing pauses; what is typed right before the click on the button is sent by leaving the field.
        area = ui.textarea("Payload (JSON object)", value=text.as_json(task.payload))
        area.props('outlined debounce=300 input-class="mono" spellcheck=false').style("width: 100%")
        area.props('input-style="min-height: 260px"')
        deadline = None
        if task.deadline is not None:
            deadline = ui.input("Deadline (UTC)", value=_as_field(task.deadline))
            deadline.props("outlined dense type=datetime-local stack-label step=1")
        problem = tag("div", "", "banner", role="alert")
        problem.visible = False

        def check() -> None:
            try:
                payload = read_object(str(area.value or "").encode("utf-8", "surrogatepass"))
                until = None if deadline is None else text.read_moment("deadline", deadline.value or "")
            except InvalidTask as error:
                set_text(problem, text.line(error))
                problem.visible = True
                return
            dialog.submit((payload, until))

        with tag("div", classes="buttons"):
            button("Cancel", lambda: dialog.submit(None))
            button("Requeue", check, "main")
    chosen: tuple[dict[str, Any], datetime | None] | None = await answer_of(dialog)
    if chosen is None:
        return
    payload, until = chosen
    changed = None if payload == task.payload else payload

    async def requeue() -> str:
        chosen_queue = page.app.queue(queue, actor=page.actor)
        handle = await chosen_queue.arequeue(name, payload=changed, deadline=until if until != task.deadline else None)
        return f"Task {handle.id} is queued again" + (" with another payload" if changed is not None else "")

    await page.act(requeue)


def _as_field(when: datetime) -> str:
    return when.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%S")
