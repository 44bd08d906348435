"""Producers: offers with every option, sent whole, repeated, and told by the model what must be answered."""

from __future__ import annotations

import dataclasses
import itertools
import os
from typing import Any

import hypothesis.strategies as st

from dtq._core import Chunk, new_ids
from dtq.broker import Broker
from dtq.clock import SYSTEM
from tests.broker.driver import QUEUE, head
from tests.model.lifecycle import Life, Lifecycle, Offer
from tests.model.observing import BANDS_IN_USE, Seen

DAY_MS = 86_400_000
REASONS = {"e": "conflict", "f": "full", "p": "full", "u": "unique", "i": "idempotency", "r": "idempotency"}
MOST_LIVE, MOST_SCHEDULED = 5, 2
TYPES = ("noop", "slow")
OVER = "t1;"  # a ttl of one millisecond: over before anything else is done

offers = st.fixed_dictionaries({
    "band": st.sampled_from(BANDS_IN_USE),
    "count": st.sampled_from([1, 1, 2, 3]),
    "retention_ms": st.sampled_from([0, DAY_MS]),
    "max_attempts": st.integers(1, 3),
    "dead_letter": st.sampled_from([True, True, False]),
    "ttl": st.sampled_from(["", "", "", "t3600000;", "t3600000;", OVER]),
    "delayed": st.sampled_from([False, False, True]),
    "given": st.sampled_from(["", "", "", "", "A", "B"]),
    "unique": st.sampled_from(["", "", "ua", "ua", "ub"]),
    "key": st.sampled_from(["", "", "ka", "ka", "kb"]),
    "fingerprint": st.sampled_from(["f1", "f1", "f1", "f2"]),
    "task_type": st.sampled_from(["noop", "noop", "slow"]),
})  # fmt: skip


def plain(**changed: Any) -> dict[str, Any]:
    """An offer without options but these."""
    return {
        "band": 5, "count": 1, "retention_ms": 0, "max_attempts": 2, "dead_letter": True, "ttl": "", "delayed": False,
        "given": "", "unique": "", "key": "", "fingerprint": "", "task_type": "noop", **changed,
    }  # fmt: skip


class Producer:
    """Makes offers, sends them, and lets times run out that a producer has set."""

    _nonces = itertools.count(1)

    def __init__(self, broker: Broker, model: Lifecycle) -> None:
        self.broker = broker
        self.capped = Broker(
            dataclasses.replace(broker.settings, max_queue_depth=MOST_LIVE, max_scheduled=MOST_SCHEDULED)
        )
        self.model = model

    def make(self, options: dict[str, Any]) -> list[Offer]:
        """Tasks in wire form; a chunk of several where no option names something that can be taken once only."""
        single = options["given"] or options["unique"] or options["key"]
        count = 1 if single else options["count"]
        ids = [options["given"]] if options["given"] else new_ids(SYSTEM.now_ms(), os.urandom(10 * count), count)
        place = str(options["band"]) + options["ttl"]
        if options["delayed"]:
            place += "w3600000;"
        if options["unique"]:
            place += f"u{options['unique']},{DAY_MS};"
        if options["key"]:
            place += f"i{options['key']},{options['fingerprint']},{DAY_MS};"
        if options["given"]:
            place += "g;"
        extras = b'{"nonce":"%d"}' % next(self._nonces)
        names = ("band", "retention_ms", "max_attempts", "dead_letter", "task_type")
        made = head(**{name: options[name] for name in names}, extras=extras)
        return [
            Offer(
                task_id, options["band"], made.encode({"i": i}, 1000), place, options["retention_ms"],
                options["max_attempts"], options["dead_letter"], bool(options["given"]), options["unique"],
                options["key"], options["fingerprint"], options["delayed"], options["ttl"] == OVER,
                options["task_type"],
            )
            for i, task_id in enumerate(ids)
        ]  # fmt: skip

    @staticmethod
    def place(offer: Offer) -> str:
        """What a requeue says of a task: its band, a ttl counted anew, its locks."""
        ttl = "t3600000;" if "t3600000;" in offer.place else ""
        unique = f"u{offer.unique},{DAY_MS};" if offer.unique else ""
        key = f"i{offer.key},{offer.fingerprint},{DAY_MS};" if offer.key else ""
        return f"{offer.band}{ttl}{unique}{key}"

    def send(self, offers_made: list[Offer] | Offer, repeat: bool, seen: Seen, capped: bool = False) -> None:
        """Send one chunk, and compare the answers. capped: by a producer that knows a depth limit."""
        room = MOST_LIVE - len(seen.live) if capped else 1 << 30
        scheduled_room = MOST_SCHEDULED - len(seen.schedule) if capped else 1 << 30
        made = offers_made if isinstance(offers_made, list) else [offers_made]
        chunk, expected = Chunk(), []
        for offer in made:
            chunk.add(offer.id, offer.envelope, offer.place.encode())
            code, detail, born = self.model.answer(offer, repeat, seen, room, scheduled_room)
            expected.append((code, detail))
            if code in REASONS:
                self.model.counters[f"rejected:{REASONS[code]}"] += 1
            if born:
                self.model.accept(offer)
                room -= not offer.delayed
                scheduled_room -= offer.delayed
        answers = (self.capped if capped else self.broker).enqueue(QUEUE, chunk, repeat=repeat)
        assert [(answer.code, answer.detail) for answer in answers] == expected, made
        if any(offer.overdue for offer in made):
            self._wait_a_millisecond()

    def _wait_a_millisecond(self) -> None:
        """Until Redis' clock shows a later millisecond than now."""
        seconds, micros = (int(part) for part in self.broker.command("TIME"))
        start = seconds * 1000 + micros // 1000
        while True:
            seconds, micros = (int(part) for part in self.broker.command("TIME"))
            if seconds * 1000 + micros // 1000 > start:
                return

    def waiting(self) -> list[Life]:
        """Tasks whose ttl may run out while they wait."""
        return [
            life
            for life in self.model.lives.values()
            if "t3600000;" in life.offer.place and not life.overdue and life.status in ("queued", "pending", "retrying")
        ]

    def expire(self, pick: int, seen: Seen) -> None:
        """Let the ttl of a task that waits run out: its time is put into the past where it is kept."""
        keys, waiting = self.broker.keys, self.waiting()
        if not waiting:
            return
        life = waiting[pick % len(waiting)]
        task_id = life.offer.id
        life.overdue = True
        if life.status == "queued":
            raw = seen.live[task_id].raw
            self.broker.command("HSET", keys.live(QUEUE), task_id, _past(raw.encode()))
        else:
            record = self.broker.command("GET", keys.task(QUEUE, task_id))
            self.broker.command("SET", keys.task(QUEUE, task_id), _past(record))

    def unlock(self, unique: bool, pick: int) -> None:
        """Delete a unique lock or an idempotency record, as its ttl would."""
        held: dict[str, Any] = self.model.unique if unique else self.model.idempotency
        if not held:
            return
        name = sorted(held)[pick % len(held)]
        del held[name]
        key = self.broker.keys.unique(QUEUE, name) if unique else self.broker.keys.idempotency(QUEUE, name)
        self.broker.command("DEL", key)


def _past(raw: bytes) -> bytes:
    """The same bytes with the ttl's 13 digits of milliseconds replaced by a time long ago."""
    import re

    changed, count = re.subn(rb"([:;])x\d{13};", rb"\1x0000000000001;", raw)
    assert count == 1, raw
    return changed
