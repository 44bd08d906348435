"""What children do: read, send turns, receive, start handlers, die, lose connections; and what comes late of it."""

from __future__ import annotations

from typing import Any

from tests.protocol.claiming import hand_over, turn
from tests.protocol.rules import Config
from tests.protocol.state import Broken, Child, Claim, Consumer, Message, State, Turn, consumer, fresh, worker_id
from tests.protocol.stepping import Steps


def execute(c: Config, s: State, message: Message, who: Consumer) -> Any:
    """The server applies a child's message; None where a blocking read finds nothing."""
    if message.kind == "turn":
        return turn(c, s, who, message.body, message.recover)
    delivered = []
    for band in s.last:  # one entry of each stream
        entry = min((e for e, t in s.entries.items() if e > s.last[band] and c.bands[t] == band), default=None)
        if entry is not None:
            s.last[band] = entry
            s.pending[entry] = who
            task = s.entries[entry]
            delivered.append((task, entry, s.live[task].attempt))
    return tuple(delivered) or None


def begin(c: Config, s: State, child: int, claim: Claim) -> None:
    """A handler starts: may it?"""
    task, attempt = claim[:2]
    ghost = s.ghosts[task]
    if ghost.barred:
        raise Broken(f"handler of t{task} starts after its cancel was answered, its purge or its expiry")
    if attempt in ghost.started:
        raise Broken(f"attempt {attempt} of t{task} starts twice")
    for number, other in s.children.items():
        runs = number != child and other.alive and other.run and other.run.task == task
        if runs and s.lease.get(worker_id(c, s, c.children[number])) == "V":
            raise Broken(f"t{task} starts in c{child} while c{number}, whose lease is valid, runs it")
    s.ghosts[task] = ghost._replace(started=tuple(sorted((*ghost.started, attempt))))


def bury(c: Config, s: State, child: int) -> None:
    """A child's process ends; what it had written to its socket may still be applied."""
    old = s.children[child]
    if old.message and not old.message.done:
        s.late += ((old.message, consumer(c, s, child)),)
    s.children[child] = old._replace(alive=0, message=None)


def mark_of(c: Config, child: Child) -> tuple:
    """What the slot says after a death: (watermark, entries started before their claim, finished but unsettled)."""
    ended = [claim for claim, _ in child.outcomes]
    early = ([child.run] if child.run else []) + (ended if c.rules.slot_watermark else [])
    undone = () if c.rules.slot_watermark else tuple(claim.seq for claim in ended)
    return (child.begun, tuple(claim.entry for claim in early), undone)


def renumber(c: Config, s: State) -> None:
    """Send numbers matter only while a late copy exists: start again at 0 where there is none (finite state space)."""
    last = dict(s.sent)
    s.late = tuple(
        (message, who) for message, who in s.late if message[0] != "turn" or message.body.send > last.get(who, 0)
    )
    late = {who for message, who in s.late if message[0] == "turn"}
    s.sent = tuple(item for item in s.sent if item[0] in late)
    for number, child in s.children.items():
        if consumer(c, s, number) in late:
            continue
        message = child.message
        if message and message.kind == "turn" and not message.done:
            message = message._replace(body=message.body._replace(send=1))
        sends = 1 if message and message.kind == "turn" else 0
        s.children[number] = child._replace(sends=sends, message=message)


def _turn_of(c: Config, child: Child, outcomes: tuple, adopts: tuple, want: int, held: tuple, recovers: bool) -> Child:
    """The child with its next turn under way."""
    body = Turn(outcomes, adopts, child.next, want, held, child.sends + 1)
    sends = child.sends + 1 if c.numbers else 0
    return child._replace(message=Message("turn", body, 0, recovers, None), sends=sends)


def child_steps(c: Config, s: State, number: int, steps: Steps) -> None:
    """Every step of one child, and its supervisor's when it is dead."""
    child, worker, who = s.children[number], c.children[number], consumer(c, s, number)
    message = child.message
    watched = s.supervised[worker] and not s.stopped[worker]

    if message and not message.done:

        def apply(n: State) -> bool | None:
            reply = execute(c, n, message, who)
            if reply is None:
                return False
            n.children[number] = child._replace(message=message._replace(done=1, reply=reply))
            return None

        steps.add(f"redis applies {message.kind} of c{number}", apply)
    if child.alive and s.crash:

        def die(n: State) -> None:
            n.crash -= 1
            bury(c, n, number)

        steps.add(f"c{number} is killed", die, fault=True)
    if not child.alive and watched:

        def replace(n: State) -> None:
            mark = mark_of(c, child)
            if c.rules.kill_connection:
                n.late = tuple(item for item in n.late if item[1] != who)
            hand_over(c, n, who, mark)
            n.graves += ((who, mark),)
            n.children[number] = fresh(child.incarnation + 1)

        steps.add(f"supervisor w{worker} hands over dead c{number}", replace)
    if not child.alive or s.stopped[worker] == 1:
        return
    if not s.supervised[worker]:
        steps.add(f"orphan c{number} ends itself", lambda n: bury(c, n, number))
    valid = not c.rules.start_checks_lease or s.lease.get(worker_id(c, s, worker)) == "V"
    if message:
        _message_steps(c, s, number, valid, steps)
    if child.run:
        _running_steps(c, s, number, bool(watched), steps)
    elif not message:
        _idle_steps(c, number, child, valid, steps)


def _message_steps(c: Config, s: State, number: int, valid: bool, steps: Steps) -> None:
    child, who = s.children[number], consumer(c, s, number)
    message = child.message
    if message.done:
        receive = _receive_turn if message.kind == "turn" else _receive_read
        steps.add(f"c{number} receives reply of {message.kind}", lambda n: receive(c, n, number, valid))
    elif message.kind == "read":

        def give_up(n: State) -> None:
            n.children[number] = child._replace(message=None)

        steps.add(f"c{number} read times out", give_up)
    if s.loss:

        def lose(n: State) -> None:
            n.loss -= 1
            if not message.done and not c.rules.kill_connection:
                n.late += ((message, who),)
            if message.kind == "read":
                n.children[number] = child._replace(message=None, dirty=True)
            else:
                again = Message("turn", message.body._replace(send=child.sends + 1), 0, True, None)
                n.children[number] = child._replace(message=again, sends=child.sends + 1 if c.numbers else 0)

        applied = "applied" if message.done else "not yet applied"
        steps.add(f"c{number} loses its connection ({message.kind} {applied}), repeats", lose, fault=True)


def _receive_turn(c: Config, n: State, number: int, valid: bool) -> None:
    child = n.children[number]
    got, following = child.message.reply
    run, outcomes, holds = child.run, child.outcomes, got
    early = [entry for _, entry, started in child.message.body.adopts if started]
    if early:
        mine = [claim for claim in got if claim.entry == early[0]]
        holds = tuple(claim for claim in got if claim not in mine)
        if not mine:  # refused: the handler is interrupted
            run = None if run and run.entry == early[0] else run
            outcomes = tuple(item for item in outcomes if item[0].entry != early[0])
    n.children[number] = child._replace(
        message=None,
        holds=child.holds + holds,
        run=run,
        outcomes=outcomes,
        next=max(following, child.next),
        dirty=False,
    )


def _receive_read(c: Config, n: State, number: int, valid: bool) -> None:
    child = n.children[number]
    read = child.message.reply
    task, entry, attempt = read[0]
    if c.optimistic and task not in c.delayed and valid:
        claim = Claim(task, attempt, entry, child.next)
        begin(c, n, number, claim)
        sent = _turn_of(c, child, (), ((task, entry, True),), 1, (entry,), False)
        n.children[number] = sent._replace(run=claim, begun=child.next + 1)
    else:
        adopts = tuple((task, entry, False) for task, entry, _ in read)
        n.children[number] = _turn_of(c, child, (), adopts, c.batch, (), False)


def _running_steps(c: Config, s: State, number: int, watched: bool, steps: Steps) -> None:
    child, who = s.children[number], consumer(c, s, number)
    for outcome in ("ok", "err") if c.fail else ("ok",):

        def finish(n: State, outcome: str = outcome) -> None:
            n.children[number] = child._replace(run=None, outcomes=(*child.outcomes, (child.run, outcome)))

        steps.add(f"handler of t{child.run.task} attempt {child.run.attempt} in c{number} ends {outcome}", finish)
    if c.hand_back and child.holds and s.hand_back is None and watched:

        def decide(n: State) -> None:
            n.hand_back = (number, who, child.holds, 0)
            if c.rules.revoke_first:
                n.children[number] = child._replace(holds=())

        tasks = [claim.task for claim in child.holds]
        steps.add(f"supervisor w{c.children[number]} decides to hand back {tasks} of busy c{number}", decide)


def _idle_steps(c: Config, number: int, child: Child, valid: bool, steps: Steps) -> None:
    if child.holds and valid:
        claim = child.holds[0]

        def start(n: State) -> None:
            begin(c, n, number, claim)
            begun = max(child.begun, claim.seq + 1)
            n.children[number] = child._replace(run=claim, holds=child.holds[1:], begun=begun)

        steps.add(f"c{number} starts t{claim.task} attempt {claim.attempt}", start)
    if child.outcomes or (not child.holds and valid):

        def send(n: State) -> None:
            held = tuple(claim.entry for claim in child.holds)
            want = c.batch - len(child.holds) if valid else 0
            sent = _turn_of(c, child, child.outcomes, (), want, held, child.dirty or c.recover_always)
            n.children[number] = sent._replace(outcomes=())

        steps.add(f"c{number} sends turn settling {[claim.task for claim, _ in child.outcomes]}", send)
    if not child.outcomes and not child.holds and valid and not (child.dirty and c.rules.recover_after_loss):

        def block(n: State) -> None:
            n.children[number] = child._replace(message=Message("read", None, 0, False, None))

        steps.add(f"c{number} blocks in XREADGROUP", block)


def late_steps(c: Config, s: State, steps: Steps) -> None:
    """What children had written to a socket is applied after all, or never."""
    for i, (message, who) in enumerate(s.late):
        if who[0] in ("producer", "operator"):
            continue

        def vanish(n: State, i: int = i) -> None:
            n.late = n.late[:i] + n.late[i + 1 :]

        def apply(n: State, i: int = i, message: Message = message, who: Consumer = who) -> bool | None:
            vanish(n, i)
            return False if execute(c, n, message, who) is None else None

        steps.add(f"redis applies a late {message.kind} of {who}", apply)
        steps.add(f"late {message.kind} vanishes", vanish)
