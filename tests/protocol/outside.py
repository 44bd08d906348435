"""What comes from outside: producers and their repeats, cancels, operators, times that run out, a lost group."""

from __future__ import annotations

from typing import Any

from tests.protocol.entering import begin_purge, cancel, enqueue, hear, purge_slice, requeue
from tests.protocol.rules import Config
from tests.protocol.state import State, unended
from tests.protocol.stepping import Steps


def producer_steps(c: Config, s: State, task: int, steps: Steps) -> None:
    """A producer sends its task until it is answered; what it sent before may arrive later still."""
    sent = s.producers[task]
    if sent < 2:

        def send(n: State) -> bool | None:
            answer = enqueue(c, n, task, 0, again=sent == 1)
            if answer[0] == "refused":
                return False  # it is tried again when the lock is free
            hear(n, task, 0, answer)
            n.producers[task] = 2
            return None

        steps.add(f"producer enqueues t{task}", send)
    if s.loss and not sent:

        def send_and_lose(n: State) -> bool | None:
            n.loss -= 1
            n.producers[task] = 1
            return False if enqueue(c, n, task)[0] == "refused" else None

        def lose_and_send(n: State) -> None:
            n.loss -= 1
            n.producers[task] = 1
            n.late += ((("enqueue", task), ("producer",)),)

        steps.add(f"producer enqueues t{task}, reply lost", send_and_lose, fault=True)
        steps.add(f"producer loses its connection before t{task} is applied, repeats", lose_and_send, fault=True)
    if s.reuse and sent == 2:

        def use_again(n: State) -> bool | None:
            n.reuse -= 1
            answer = enqueue(c, n, task, 1)
            if answer[0] == "refused":
                return False
            hear(n, task, 1, answer)
            return None

        steps.add(f"another task is enqueued under the id of t{task}", use_again, fault=True)


def late_copy_steps(c: Config, s: State, steps: Steps) -> None:
    """Chunks and requeues that were sent over a connection which is lost by now."""
    for i, (message, who) in enumerate(s.late):
        if who[0] not in ("producer", "operator"):
            continue

        def vanish(n: State, i: int = i) -> None:
            n.late = n.late[:i] + n.late[i + 1 :]

        def apply(n: State, i: int = i, message: tuple[Any, ...] = message) -> None:
            vanish(n, i)
            if message[0] == "enqueue":
                enqueue(c, n, message[1])
            else:
                requeue(c, n, *message[1:])

        steps.add(f"redis applies a late {message[0]} of t{message[1]}", apply)
        steps.add(f"late {message[0]} vanishes", vanish)


def task_steps(c: Config, s: State, task: int, steps: Steps) -> None:
    """A cancel, and a ttl that runs out."""
    if s.cancel and (task in s.live or task in s.records):

        def stop(n: State) -> None:
            n.cancel -= 1
            if cancel(c, n, task) == "cancelled":
                n.ghosts[task] = n.ghosts[task]._replace(barred=1)

        steps.add(f"cancel t{task}", stop, fault=True)
    if s.ttl and task not in s.expired and s.ghosts[task].lives:

        def expire(n: State) -> None:
            n.ttl -= 1
            n.expired = tuple(sorted((*n.expired, task)))

        steps.add(f"ttl of t{task} runs out", expire, fault=True)


def operator_steps(c: Config, s: State, steps: Steps) -> None:
    """Requeue and discard of dead letters, purge, pause and resume."""
    for letter, task in s.letters.items():
        if s.requeue:

            def again(n: State, task: int = task, letter: int = letter, lost: int = 0) -> bool | None:
                n.requeue -= 1
                n.loss -= lost
                if requeue(c, n, task, letter) != "requeued":
                    return False
                if lost:
                    n.late += ((("requeue", task, letter), ("operator",)),)
                return None

            steps.add(f"operator requeues t{task}", again, fault=True)
            if s.loss:
                steps.add(
                    f"operator requeues t{task}, reply lost, repeats",
                    lambda n, again=again: again(n, lost=1),
                    fault=True,
                )
        if c.discard:
            steps.add(f"operator discards the dead letter of t{task}", lambda n, k=letter: n.letters.pop(k), fault=True)
    if s.purges and not s.purge and any(unended(s, task) for task in s.ghosts):
        steps.add("operator begins a purge", lambda n: begin_purge(c, n), fault=True)
    if s.purge:

        def give_up(n: State) -> None:
            n.purge, n.waiting = None, ()

        steps.add(f"redis applies a slice of the purge ({s.purge.part})", lambda n: purge_slice(c, n))
        steps.add("the purge is given up", give_up, fault=True)
    if c.queue_pause and s.paused < 2:

        def turn_over(n: State) -> None:
            n.paused += 1

        steps.add("queue resumed" if s.paused else "queue paused", turn_over, fault=not s.paused)


def accident_steps(c: Config, s: State, steps: Steps) -> None:
    """The consumer group is lost, or the ttl of a lock or of an idempotency record runs out."""
    if s.group:

        def lose_group(n: State) -> None:
            n.group -= 1
            n.pending, n.last = {}, dict.fromkeys(n.last, 0)

        steps.add("consumer group lost and created anew at 0", lose_group, fault=True)
    if s.lock_ttl and s.unique is not None:

        def unlock(n: State) -> None:
            n.lock_ttl -= 1
            n.unlocked = tuple(sorted((*n.unlocked, n.unique)))
            n.unique = None

        steps.add("unique_ttl runs out", unlock, fault=True)
    if s.key_ttl and s.key is not None:

        def forget(n: State) -> None:
            n.key_ttl -= 1
            n.unkeyed = tuple(sorted({*n.unkeyed, n.key.holder}))
            n.key = None

        steps.add("the ttl of the idempotency key runs out", forget, fault=True)
