"""What a freshly forked child does before it works: own session and parent, fresh randomness, a word of hello."""

from __future__ import annotations

import os
import random
import sys
from typing import Any

from dtq import side_effects
from dtq._core import Slots
from dtq.broker import Broker
from dtq.clock import SYSTEM
from dtq.registry import Registry
from dtq.settings import Settings
from dtq.worker.channel import Channel, ChannelClosed
from dtq.worker.child import Child
from dtq.worker.processes import Scheduling, die_with_parent, name_process
from dtq.worker.traced import executor_of
from dtq.worker.turns import Identity

_ADOPTION_S = 10.0


class Nursery:
    """Brings one child up. It touches neither slots nor Redis before the supervisor has answered its hello."""

    def __init__(self, channel: Channel, supervisor: int) -> None:
        self._channel = channel
        self._supervisor = supervisor
        self._scheduling = Scheduling()

    def settle_in(self) -> bool:
        """Become the supervisor's own child; False if the supervisor is gone or has given this child up."""
        os.setsid()
        name_process("dtq-child")
        deadline = SYSTEM.monotonic() + _ADOPTION_S
        try:
            while os.getppid() != self._supervisor:
                # A supervisor that is gone adopts nobody: then its end of the channel is closed.
                self._channel.receive()
                if SYSTEM.monotonic() > deadline:
                    return False
                SYSTEM.sleep(0.0005)
            die_with_parent()
            if os.getppid() != self._supervisor:
                return False
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            os.close(null)
            reseed()
            self._channel.send({"say": "hello", "pid": os.getpid()})
            return self._channel.receive(wait=True) is not None
        except ChannelClosed:
            return False

    def failed(self, why: str) -> None:
        """Tell the supervisor why this child cannot work."""
        self._channel.send({"say": "failed", "why": why})

    def work(
        self,
        registry: Registry,
        settings: Settings,
        slots: Slots,
        worker_id: str,
        queues: list[str],
        number: int,
        incarnation: int,
    ) -> int:
        """Work until it is time to leave; the exit code."""
        broker = Broker(settings)
        side_effects.use(broker)
        executor = executor_of(registry, settings, worker_id)
        child = Child(
            Identity(worker_id, number, incarnation),
            queues,
            executor,
            settings,
            slots,
            self._channel,
            broker,
            self._scheduling,
        )
        self._channel.send({"say": "ready"})
        why = child.run()
        executor.close()
        self._channel.send({"say": "bye", "why": why})
        return 0


def reseed() -> None:
    """Siblings are copies: without this their random numbers would be, too."""
    random.seed()
    numpy: Any = sys.modules.get("numpy")
    if numpy is not None:
        numpy.random.seed(int.from_bytes(os.urandom(4), "little"))
