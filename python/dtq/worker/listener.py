"""What a worker is told by pub/sub: that a task it executes was cancelled, that one falls due earlier than it knows."""

from __future__ import annotations

import random
import threading
from collections.abc import Callable

from dtq.broker import Broker, DueNote
from dtq.errors import DtqError
from dtq.worker.canceller import CancelInbox
from dtq.worker.journal import LOGGER

_POLL_S = 0.5


class Listener(threading.Thread):
    """Hears notes over a connection of its own. What it misses FlagWatch and Scheduler find, a second or two later.

    on_due: called, in this thread, with a queue whose first due task is a new one.
    """

    def __init__(self, broker: Broker, inbox: CancelInbox, on_due: Callable[[str], None]) -> None:
        super().__init__(name="dtq-listener", daemon=True)
        self.hearing = False
        """Whether the connection stands, as far as is known."""
        self._broker = broker
        self._inbox = inbox
        self._on_due = on_due
        self._worker_id = ""
        self._stopping = threading.Event()
        self._backoff_s = 0.0

    def serve(self, worker_id: str) -> None:
        """Hear what is for this worker id, from now on."""
        self._worker_id = worker_id
        if not self.is_alive():
            self.start()

    def stop(self) -> None:
        """End, within moments, without waiting for it."""
        self._stopping.set()

    def run(self) -> None:
        """Listen until stopped."""
        while not self._stopping.is_set():
            try:
                self._listen(self._worker_id)
                continue
            except DtqError as error:
                if not self._backoff_s:
                    LOGGER.info("cancels are not heard at once, but found within 2 s: %s", error)
            except Exception:
                LOGGER.exception("hearing notes failed; this is a bug in dtq")
            finally:
                self.hearing = False
            self._backoff_s = min(2.0, max(0.05, self._backoff_s * 2))
            self._stopping.wait(self._backoff_s * random.uniform(0.5, 1.0))

    def _listen(self, worker_id: str) -> None:
        """Until stopped, or until the worker has another id."""
        notes = self._broker.hear(worker_id)
        try:
            while not self._stopping.is_set() and worker_id == self._worker_id:
                note = notes.get(_POLL_S)
                self._backoff_s = 0.0
                self.hearing = True
                if isinstance(note, DueNote):
                    self._on_due(note.queue)
                elif note is not None:
                    self._inbox.put(note)
        finally:
            notes.close()
