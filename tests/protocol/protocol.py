"""The storage protocol of dtq as a state machine: every Lua script is one atomic step.

State `S` holds Redis (streams, PEL, live hash, records, leases) and the processes (children, supervisors,
producer, canceller). `steps(s)` yields (label, next state, is_fault). `Broken` is raised where an invariant of a
single step fails; `check(s)` tests the invariants of a state. `Rules` are what the protocol adds to a naive queue: all
on = the protocol, one off = the natural way to do without it.
"""

# Kept dense: it is read beside the rules, and its steps are closures over one loop's variables that are called at once.
# ruff: noqa: B023, C408, RET503, RUF005, RUF059, SIM102, SIM108, SIM905

from collections import namedtuple

RULES = {
    "adopt_checks_owner": "adopt refuses an entry that is no longer in the adopter's own PEL",
    "absorb_spares_live": "an absorber acks an entry only if the live hash does not name it",
    "recover_after_loss": "the turn after a lost reply first returns what its consumer's PEL holds unknown to it",
    "recover_renumbers": "claims returned by that recovery get new seq numbers",
    "repeat_is_known": "an adopting turn that was applied already returns the same claim again",
    "full_token": "fence = (attempt, entry, consumer, seq), not (attempt, worker)",
    "dead_is_final": "the reaper declares a worker dead; renewal never resurrects that id",
    "start_checks_lease": "a child looks at its worker's lease deadline right before each start",
    "slot_watermark": "the slot tells begun claims (watermark), not just the current one",
    "revoke_first": "a hand-back revokes claims in the slot before the script is sent",
    "fresh_ids": "worker and child ids are never reused",
    "kill_connection": "before a repeat or a hand-over the old connection is closed (CLIENT KILL ID)",
    "send_numbers": "every send of a turn has a growing number; the script ignores one that is not above the last",
    "sweep": "hand-over and reaping are repeated while the PEL names consumers that are not alive",
    "cancel_acks": "cancel, expire and purge ack the entry as well as delete it",
    "flag_survives": "hand-back, redelivery and any settle of a task with cancel_requested end it cancelled",
    "producer_seq": "a repeated enqueue chunk is recognised although its tasks are gone",
    "release_compares": "unique lock is deleted only by the task that holds it",
    "give_to_owner": "an entry read as new whose task runs elsewhere goes back to its owner's PEL (group lost)",
    "opt_counts_delivered": "optimistic start: cancel, reaper and hand-over count a delivered entry as running",
}
Rules = namedtuple("Rules", RULES)
ALL = Rules(*[True] * len(RULES))

# Redis:   claim = (task, attempt, entry, seq);  live[t] = (state, attempt, entry, consumer, seq, cancel_flag)
# consumer = (worker, worker_inc, child, child_inc); SHELF is the parking consumer
SHELF = ("shelf",)
FIELDS = """ent pel last nxt live rec uniq nq nr paused lease winc sup stop child grave zombie hb prod canc seen
            crash loss pause ttl op lock group sent expd asked unlocked ghost""".split()
SHRINKING = {"ent", "pel", "live", "rec", "lease"}


class Broken(Exception):
    pass


class Config(
    namedtuple(
        "Config",
        "rules tasks workers kids max_attempts retention unique optimistic batch delayed "
        "crash loss pause cancel ttl op qpause fail lockttl handback group reconcile numbers",
    )
):
    pass


def config(**kw):
    base = dict(
        rules=ALL,
        tasks=1,
        workers=(0, 1),
        kids=(0, 1),
        max_attempts=2,
        retention=0,
        unique=False,
        optimistic=False,
        batch=1,
        delayed=(),
        crash=0,
        loss=0,
        pause=0,
        cancel=0,
        ttl=0,
        op=0,
        qpause=0,
        fail=False,
        lockttl=0,
        handback=False,
        group=0,
        reconcile=False,
        numbers=False,
    )
    base.update(kw)
    return Config(**base)


Child = namedtuple("Child", "alive inc phase msg run holds outs next begun dirty sends")
# phase: I idle, M message under way; msg = (kind, body, done, reply); run = claim or None
FRESH = ("I", None, None, (), (), 1, 1, False, 0)


class S:
    __slots__ = FIELDS

    def copy(self):
        n = S.__new__(S)
        for f in FIELDS:
            v = getattr(self, f)
            setattr(n, f, dict(v) if type(v) is dict else v)
        return n

    def key(self):
        """64-bit hash of the state (dicts that lose keys are sorted, the others keep their order)."""
        return hash(
            tuple(
                [tuple(sorted(d.items())) for d in (self.ent, self.pel, self.live, self.rec, self.lease)]
                + [
                    tuple(v.values()) if type(v) is dict else v
                    for v in [getattr(self, f) for f in FIELDS if f not in SHRINKING]
                ]
            )
        )


def initial(c):
    s = S()
    s.ent, s.pel, s.last, s.nxt = {}, {}, 0, 1
    s.live, s.rec = {}, {}
    s.uniq, s.nq, s.nr, s.paused = None, 0, 0, 0
    s.winc = dict.fromkeys(c.workers_(), 0)
    s.lease = {(w, 0): "V" for w in c.workers_()}
    s.sup = dict.fromkeys(c.workers_(), 1)
    s.stop = dict.fromkeys(c.workers_(), 0)
    s.child = {k: Child(1, 0, *FRESH) for k in range(len(c.kids))}
    s.grave, s.zombie, s.hb = (), (), None
    s.prod = dict.fromkeys(range(c.tasks), 0)  # 0 not sent, 1 sent and unanswered, 2 answered
    s.canc, s.seen = c.cancel, ()
    s.crash, s.loss, s.pause, s.ttl, s.op, s.lock, s.group = c.crash, c.loss, c.pause, c.ttl, c.op, c.lockttl, c.group
    s.sent = ()
    s.expd = s.asked = s.unlocked = ()  # ttl over; cancel answered 409; lock lost to its ttl
    # ghost per task: (accepted lives, finalisations of this life, barred from starting, epoch, started attempts)
    s.ghost = dict.fromkeys(range(c.tasks), (0, 0, 0, 0, ()))
    return s


Config.workers_ = lambda c: tuple(sorted(set(c.workers)))


def consumer(c, s, k):
    w = c.kids[k]
    return (w, s.winc[w] if c.rules.fresh_ids else 0, k, s.child[k].inc if c.rules.fresh_ids else 0)


def wid(c, s, w):
    return (w, s.winc[w] if c.rules.fresh_ids else 0)


# ---------------------------------------------------------------- scripts (each one atomic)


def drop(s, e):
    s.pel.pop(e, None)
    s.ent.pop(e, None)


def absorb(c, s, t, e):
    live = s.live.get(t)
    if c.rules.absorb_spares_live and live and live[2] == e:
        return
    drop(s, e)


def release(c, s, t):
    if c.unique and (s.uniq == t or (not c.rules.release_compares and s.uniq is not None)):
        s.uniq = None


def finish(c, s, t, status, entry):
    """Any end of a task: record, follow-ups, ack and delete."""
    live = s.live.pop(t, None)
    if live:
        if live[0] == "Q":
            s.nq -= 1
        else:
            s.nr -= 1
    s.rec.pop(t, None)
    if status != "S" or c.retention:
        s.rec[t] = (status, 0)
    release(c, s, t)
    if entry:
        drop(s, entry)
    lives, fin, barred, epoch, started = s.ghost[t]
    if t in s.asked and status != "C":
        raise Broken(f"cancel of t{t} was promised (409), yet it ends {status}")
    if fin:
        raise Broken(f"second finalisation of t{t} ({status})")
    s.ghost[t] = (lives, 1, barred or status in "CX", epoch, started)


def queue(s, t, attempt, rec=None):
    e = s.nxt
    s.nxt += 1
    s.ent[e] = t
    s.live[t] = ("Q", attempt, e, None, 0, 0)
    s.nq += 1
    s.rec.pop(t, None)


def enqueue(c, s, t):
    if t in s.live or t in s.rec or (c.rules.producer_seq and t in s.seen):
        return "accepted"  # the script ignores tasks that already exist
    if c.unique:
        if s.uniq is not None and s.uniq != t:
            return "refused"
        s.uniq = t
    s.seen = s.seen + (t,) if c.rules.producer_seq else s.seen
    lives, fin, barred, epoch, started = s.ghost[t]
    if lives:
        raise Broken(f"repeated enqueue of t{t} accepted twice")
    s.ghost[t] = (1, 0, 0, epoch, ())
    if t in c.delayed:
        s.rec[t] = ("P", 1)
    else:
        queue(s, t, 1)
    return "accepted"


def promote(c, s, t):
    status, attempt = s.rec[t]
    if t in s.expd:
        finish(c, s, t, "X", None)  # retrying: by way of queued
    else:
        queue(s, t, attempt + 1 if status == "T" else attempt)


def settle(c, s, who, claim, outcome):
    t, attempt, e, seq = claim
    live = s.live.get(t)
    if not live or live[0] != "R":
        return
    if c.rules.full_token:
        ok = live[1:5] == (attempt, e, who, seq)
    else:
        ok = live[1] == attempt and live[3][:2] == who[:2]
    if not ok:
        return
    if live[1:5] != (attempt, e, who, seq):
        raise Broken(f"stale finaliser of t{t} accepted: claim {claim} by {who}, live {live}")
    if live[5] and c.rules.flag_survives:
        finish(c, s, t, "C", e)
    elif outcome == "ok":
        finish(c, s, t, "S", e)
    elif attempt < c.max_attempts:
        del s.live[t]
        s.nr -= 1
        s.rec[t] = ("T", attempt)
        drop(s, e)
    else:
        finish(c, s, t, "D", e)


def claim_one(c, s, who, e, seq, fresh=False):
    """Claim an entry from the shelf or (`fresh`) the stream; returns the claim or None."""
    t = s.ent[e]
    live = s.live.get(t)
    if not live or live[2] != e:
        drop(s, e)
        return None
    state, attempt, _, owner, _, flag = live
    if fresh and state == "R" and c.rules.give_to_owner:
        s.pel[e] = owner
        return None
    if state == "Q":
        if flag:
            finish(c, s, t, "C", e)
            return None
        if t in s.expd:
            finish(c, s, t, "X", e)
            return None
        s.nq -= 1
        s.nr += 1
    else:
        if flag and c.rules.flag_survives:
            finish(c, s, t, "C", e)
            return None
        attempt += 1
        if attempt > c.max_attempts:
            finish(c, s, t, "D", e)
            return None
        if attempt - 1 not in s.ghost[t][4] and s.lease.get(owner[:2]) == "V":
            raise Broken(f"attempt {attempt - 1} of t{t} spent without a start on a worker that lives")
    if t in s.asked:
        raise Broken(f"cancel of t{t} was promised (409), yet it is claimed again")
    s.live[t] = ("R", attempt, e, who, seq, 0)
    s.pel[e] = who
    return (t, attempt, e, seq)


def adopt(c, s, who, t, e, seq, started):
    """What a plain blocking read delivered. `started`: the optimistic variant runs it already."""
    live = s.live.get(t)
    named = live and live[2] == e
    if c.rules.repeat_is_known and named and live[0] == "R" and live[3:5] == (who, seq):
        return (t, live[1], e, seq)
    if c.rules.adopt_checks_owner and s.pel.get(e) != who:
        return None
    if named and live[0] == "Q":
        if s.paused == 1 and not started:
            s.pel[e] = SHELF
            return None
        if not started and live[5]:
            finish(c, s, t, "C", e)
            return None
        if not started and t in s.expd:
            finish(c, s, t, "X", e)
            return None
        s.nq -= 1
        s.nr += 1
        s.live[t] = ("R", live[1], e, who, seq, live[5])
        return (t, live[1], e, seq)
    if named and live[3] != who and c.rules.give_to_owner and s.pel.get(e) == who:
        s.pel[e] = live[3]
        return None
    absorb(c, s, t, e)
    return None


def shelve(c, s, e, who, begun):
    """Hand one entry of `who` to the shelf. `begun(claim seq)`: did its handler start? Returns nothing."""
    t = s.ent.get(e)
    live = s.live.get(t) if t is not None else None
    if not live or live[2] != e:
        drop(s, e)
        return
    state, attempt, _, owner, seq, flag = live
    if state == "R" and owner != who and c.rules.give_to_owner:
        s.pel[e] = owner
        return
    if state == "R" and owner == who and flag and c.rules.flag_survives:
        finish(c, s, t, "C", e)
        return
    if state == "R" and owner == who and not begun(seq):
        s.live[t] = ("Q", attempt, e, None, 0, 0)
        s.nr -= 1
        s.nq += 1
    elif state == "Q" and begun(None):  # optimistic: delivered counts as begun
        s.live[t] = ("R", attempt, e, who, 0, flag)
        s.nq -= 1
        s.nr += 1
    elif state == "Q" and flag:
        finish(c, s, t, "C", e)
        return
    s.pel[e] = SHELF


def turn(c, s, who, body, recover):
    outs, adopts, first, want, known = body[:5]
    if c.numbers and c.rules.send_numbers:
        last = dict(s.sent)
        if body[5] <= last.get(who, 0):
            return (), first
        last[who] = body[5]
        s.sent = tuple(sorted(last.items()))
    got, seq = [], first
    for t, e, started in adopts:
        claim = adopt(c, s, who, t, e, seq, started)
        if claim:
            got.append(claim)
        if claim or started:
            seq += 1
    for claim, outcome in outs:
        settle(c, s, who, claim, outcome)
    if recover and c.rules.recover_after_loss:
        known = known + tuple(g[2] for g in got)
        for e in sorted(e for e, o in s.pel.items() if o == who):
            t = s.ent.get(e)
            live = s.live.get(t)
            if not live or live[2] != e:
                drop(s, e)
            elif live[0] == "R" and live[3] == who and e not in known and live[5] and c.rules.flag_survives:
                finish(c, s, t, "C", e)
            elif live[0] == "R" and live[3] == who and e not in known:
                if not c.rules.recover_renumbers:
                    seq = live[4]
                s.live[t] = live[:4] + (seq, live[5])
                got.append((t, live[1], e, seq))
                seq += 1
            elif live[0] == "Q":
                claim = adopt(c, s, who, t, e, seq, False)
                if claim:
                    got.append(claim)
                    seq += 1
    if s.paused != 1:
        while len(got) < want:
            shelf = sorted(e for e, o in s.pel.items() if o == SHELF)
            if shelf:
                e = shelf[0]
                if e not in s.ent:
                    s.pel.pop(e)
                    continue
            else:
                new = sorted(e for e in s.ent if e > s.last)
                if not new:
                    break
                e = s.last = new[0]
            claim = claim_one(c, s, who, e, seq, not shelf)
            if claim:
                got.append(claim)
                seq += 1
    return tuple(got), seq


def cancel(c, s, t):
    live = s.live.get(t)
    if live:
        state, attempt, e, owner, seq, flag = live
        delivered = s.pel.get(e) not in (None, SHELF)
        taken_over = state == "R" and s.pel.get(e) == SHELF
        if (state == "R" and not taken_over) or (c.optimistic and c.rules.opt_counts_delivered and delivered):
            s.live[t] = (state, attempt, e, owner, seq, 1)
            s.asked += (t,)
            return "409"
        pel = dict(s.pel)
        finish(c, s, t, "C", e)
        if not c.rules.cancel_acks and e in pel:
            s.pel[e] = pel[e]
        return "202"
    if t in s.rec:
        if s.rec[t][0] in "PT":
            finish(c, s, t, "C", None)
            return "202"
        return "410"
    return "404"


def handover(c, s, who, mark):
    """A dead child's whole PEL goes to the shelf. mark: claims with seq < mark had begun."""
    opt = c.optimistic and c.rules.opt_counts_delivered
    for e in sorted(e for e, o in s.pel.items() if o == who):
        shelve(
            c, s, e, who, lambda seq: (opt and (e in mark[1])) if seq is None else seq < mark[0] and seq not in mark[2]
        )


def reap(c, s, w):
    opt = c.optimistic and c.rules.opt_counts_delivered
    for e in sorted(e for e, o in s.pel.items() if o[:2] == w):
        shelve(c, s, e, s.pel[e], lambda seq: opt if seq is None else True)


# ---------------------------------------------------------------- processes


def execute(c, s, msg, who):
    """The server applies a child's message; None where a blocking read finds nothing."""
    kind, body, _, recover = msg[:4]
    if kind == "turn":
        return turn(c, s, who, body, recover)
    new = sorted(e for e in s.ent if e > s.last)
    if not new:
        return None
    e = s.last = new[0]
    s.pel[e] = who
    return (s.ent[e], e, s.live[s.ent[e]][1])  # the entry tells its attempt (amendment)


def begin(c, s, k, claim):
    t, attempt = claim[:2]
    lives, fin, barred, epoch, started = s.ghost[t]
    if barred:
        raise Broken(f"handler of t{t} starts after its cancel was answered 202 or it expired")
    if attempt in started:
        raise Broken(f"attempt {attempt} of t{t} starts twice")
    for j, other in s.child.items():
        if j != k and other.alive and other.run and other.run[0] == t and s.lease.get(wid(c, s, c.kids[j])) == "V":
            raise Broken(f"t{t} starts in c{k} while c{j}, whose lease is valid, runs it")
    s.ghost[t] = (lives, fin, barred, epoch, tuple(sorted(started + (attempt,))))


def bury(c, s, k, keep_message):
    """A child's process ends; what it had written to its socket may still be applied."""
    ch = s.child[k]
    if ch.msg and not ch.msg[2] and keep_message:
        s.zombie += ((ch.msg, consumer(c, s, k)),)
    s.child[k] = ch._replace(alive=0, msg=None, phase="I")


def mark_of(c, ch):
    """What the slot says after a death: (watermark, entry started before its adoption, finished but unsettled)."""
    early = tuple(
        cl[2]
        for cl in ((ch.run,) if ch.run else ()) + (tuple(cl for cl, _ in ch.outs) if c.rules.slot_watermark else ())
    )
    undone = () if c.rules.slot_watermark else tuple(cl[3] for cl, _ in ch.outs)
    return (ch.begun, early, undone)


def number(c, ch):
    return ch.sends + 1 if c.numbers else 0


def renumber(c, s):
    """Send numbers matter only while a late copy exists: start again at 0 where there is none (finite state space)."""
    last = dict(s.sent)
    s.zombie = tuple(z for z in s.zombie if z[0][0] != "turn" or z[0][1][5] > last.get(z[1], 0))
    late = {who for msg, who in s.zombie if msg[0] == "turn"}
    s.sent = tuple(x for x in s.sent if x[0] in late)
    for k, ch in s.child.items():
        if consumer(c, s, k) not in late:
            msg = ch.msg
            if msg and msg[0] == "turn" and not msg[2]:
                msg = (msg[0], msg[1][:5] + (1,)) + msg[2:]
            s.child[k] = ch._replace(sends=1 if msg and msg[0] == "turn" else 0, msg=msg)


def steps(c, s):
    """Every enabled step as (label, next state, is_fault)."""
    R = c.rules
    out = []

    def do(label, fn, fault=False):
        n = s.copy()
        try:
            if fn(n) is False:
                return
            if c.numbers:
                renumber(c, n)
        except Broken as b:
            out.append((label, b, fault))
            return
        out.append((label, n, fault))

    up = [w for w in s.sup if s.sup[w] and not s.stop[w]]

    for k, ch in s.child.items():
        w = c.kids[k]
        who = consumer(c, s, k)
        if ch.msg and not ch.msg[2]:

            def apply(n, k=k, ch=ch, who=who):
                reply = execute(c, n, ch.msg, who)
                if reply is None:
                    return False
                n.child[k] = ch._replace(msg=ch.msg[:2] + (1, ch.msg[3], reply))

            do(f"redis applies {ch.msg[0]} of c{k}", apply)
        if ch.alive and s.crash:

            def die(n, k=k):
                n.crash -= 1
                bury(c, n, k, True)

            do(f"c{k} is killed", die, True)
        if not ch.alive and w in up:

            def hand(n, k=k, ch=ch, who=who):
                mark = mark_of(c, ch)
                if R.kill_connection:
                    n.zombie = tuple(z for z in n.zombie if z[1] != who)
                handover(c, n, who, mark)
                n.grave += ((who, mark),)
                n.child[k] = Child(1, ch.inc + 1, *FRESH)

            do(f"supervisor w{w} hands over dead c{k}", hand)
        if not ch.alive or s.stop[w] == 1:
            continue
        if not s.sup[w]:
            do(f"orphan c{k} ends itself", lambda n, k=k: bury(c, n, k, True))
        valid = not R.start_checks_lease or s.lease.get(wid(c, s, w)) == "V"
        if ch.msg:
            kind, body, done, recover = ch.msg[:4]
            if done:

                def receive(n, k=k, ch=ch):
                    kind, body, _, _, reply = ch.msg
                    if kind == "turn":
                        got, nxt = reply
                        run, outs, holds = ch.run, ch.outs, got
                        if body[1]:  # an adoption
                            early = [x for x in body[1] if x[2]]
                            if early:
                                mine = [g for g in got if g[2] == early[0][1]]
                                holds = tuple(g for g in got if g not in mine)
                                if not mine:  # refused: the handler is interrupted
                                    run = None if run and run[2] == early[0][1] else run
                                    outs = tuple(o for o in outs if o[0][2] != early[0][1])
                        n.child[k] = ch._replace(
                            phase="I",
                            msg=None,
                            holds=ch.holds + tuple(holds),
                            run=run,
                            outs=outs,
                            next=max(nxt, ch.next),
                            dirty=False,
                        )
                    else:
                        t, e, attempt = reply
                        if c.optimistic and t not in c.delayed and valid:
                            claim = (t, attempt, e, ch.next)
                            begin(c, n, k, claim)
                            body = ((), ((t, e, True),), ch.next, 1, (e,), ch.sends + 1)
                            n.child[k] = ch._replace(
                                msg=("turn", body, 0, False), run=claim, begun=ch.next + 1, sends=number(c, ch)
                            )
                        else:
                            body = ((), ((t, e, False),), ch.next, c.batch, (), ch.sends + 1)
                            n.child[k] = ch._replace(msg=("turn", body, 0, False), sends=number(c, ch))

                do(f"c{k} receives reply of {kind}", receive)
            elif kind == "read":
                do(
                    f"c{k} read times out",
                    lambda n, k=k, ch=ch: n.child.__setitem__(k, ch._replace(phase="I", msg=None)),
                )
            if s.loss:

                def lose(n, k=k, ch=ch, who=who):
                    n.loss -= 1
                    kind, body, done, recover = ch.msg[:4]
                    if not done and not R.kill_connection:
                        n.zombie += ((ch.msg[:4], who),)
                    if kind == "read":
                        n.child[k] = ch._replace(phase="I", msg=None, dirty=True)
                    else:
                        n.child[k] = ch._replace(msg=("turn", body[:5] + (ch.sends + 1,), 0, True), sends=number(c, ch))

                do(
                    f"c{k} loses its connection ({kind} {'applied' if done else 'not yet applied'}), repeats",
                    lose,
                    True,
                )
        if ch.run:
            for outcome in ("ok", "err") if c.fail else ("ok",):

                def end(n, k=k, ch=ch, outcome=outcome):
                    n.child[k] = ch._replace(run=None, outs=ch.outs + ((ch.run, outcome),))

                do(f"handler of t{ch.run[0]} attempt {ch.run[1]} in c{k} ends {outcome}", end)
            if c.handback and ch.holds and s.hb is None and w in up:

                def decide(n, k=k, ch=ch, who=who):
                    n.hb = (k, who, ch.holds, 0)
                    if R.revoke_first:
                        n.child[k] = ch._replace(holds=())

                do(f"supervisor w{w} decides to hand back {[h[0] for h in ch.holds]} of busy c{k}", decide)
        elif ch.phase == "I":
            if ch.holds and valid:

                def start(n, k=k, ch=ch):
                    begin(c, n, k, ch.holds[0])
                    n.child[k] = ch._replace(
                        run=ch.holds[0], holds=ch.holds[1:], begun=max(ch.begun, ch.holds[0][3] + 1)
                    )

                do(f"c{k} starts t{ch.holds[0][0]} attempt {ch.holds[0][1]}", start)
            if ch.outs or (not ch.holds and valid):
                known = tuple(h[2] for h in ch.holds)
                body = (ch.outs, (), ch.next, c.batch - len(ch.holds) if valid else 0, known, ch.sends + 1)
                do(
                    f"c{k} sends turn settling {[o[0][0] for o in ch.outs]}",
                    lambda n, k=k, ch=ch, body=body: n.child.__setitem__(
                        k,
                        ch._replace(
                            phase="M", outs=(), msg=("turn", body, 0, ch.dirty or c.reconcile), sends=number(c, ch)
                        ),
                    ),
                )
            if not ch.outs and not ch.holds and valid and not (ch.dirty and R.recover_after_loss):
                do(
                    f"c{k} blocks in XREADGROUP",
                    lambda n, k=k, ch=ch: n.child.__setitem__(k, ch._replace(phase="M", msg=("read", None, 0, False))),
                )

    for i, (msg, who) in enumerate(s.zombie):

        def late(n, i=i, msg=msg, who=who):
            n.zombie = n.zombie[:i] + n.zombie[i + 1 :]
            if msg[0] == "enqueue":
                enqueue(c, n, msg[1])
            elif execute(c, n, msg, who) is None:
                return False

        do(f"redis applies a late {msg[0]} of {who}", late)
        do(f"late {msg[0]} vanishes", lambda n, i=i: setattr(n, "zombie", n.zombie[:i] + n.zombie[i + 1 :]))

    if s.hb:
        k, who, claims, _ = s.hb
        w = c.kids[k]

        def give_back(n, again):
            for t, attempt, e, seq in claims:
                live = n.live.get(t)
                if not live or live[0] != "R":
                    continue
                match = (
                    (live[1:5] == (attempt, e, who, seq))
                    if R.full_token
                    else (live[1] == attempt and live[3][:2] == who[:2])
                )
                if not match:
                    continue
                if live[5] and R.flag_survives:
                    finish(c, n, t, "C", live[2])
                    continue
                n.live[t] = ("Q", attempt, live[2], None, 0, 0)
                n.pel[live[2]] = SHELF
                n.nr -= 1
                n.nq += 1
            n.hb = s.hb[:3] + (1,) if again else None
            n.loss -= again

        if w in up:
            do(f"redis applies hand-back of c{k}", lambda n: give_back(n, 0))
            if s.loss and not s.hb[3]:
                do(f"redis applies hand-back of c{k}, reply lost", lambda n: give_back(n, 1), True)
        else:
            do("hand-back dies with its supervisor", lambda n: setattr(n, "hb", None))

    for w in s.sup:
        me = wid(c, s, w)
        if s.sup[w] and s.crash:

            def kill_all(n, w=w):
                n.crash -= 1
                n.sup[w] = 0
                for k in n.child:
                    if c.kids[k] == w and n.child[k].alive:
                        bury(c, n, k, True)

            do(f"worker w{w} is killed whole", kill_all, True)

            def kill_sup(n, w=w):
                n.crash -= 1
                n.sup[w] = 0

            do(f"supervisor w{w} is killed", kill_sup, True)
        if s.sup[w] and s.pause and not s.stop[w]:
            for how in (1, 2):

                def pause(n, w=w, how=how):
                    n.pause -= 1
                    n.stop[w] = how

                do(f"SIGSTOP {'worker' if how == 1 else 'supervisor'} w{w}", pause, True)
        if s.stop[w]:
            do(f"SIGCONT w{w}", lambda n, w=w: n.stop.__setitem__(w, 0))
        for old, state in s.lease.items():
            if old[0] == w and state == "V" and (old != me or not s.sup[w] or s.stop[w]):
                do(f"lease of {old} expires", lambda n, old=old: n.lease.__setitem__(old, "E"))
        if w in up and s.lease.get(me) != "V":

            def renew(n, w=w, me=me):
                if n.lease[me] == "D":  # declared dead: end the children, start under a new id
                    for k in n.child:
                        if c.kids[k] == w:
                            bury(c, n, k, True)
                            n.child[k] = Child(1, n.child[k].inc + 1, *FRESH)
                    n.winc[w] += 1
                n.lease[wid(c, n, w)] = "V"

            do(f"w{w} renews its lease", renew)
        if not s.sup[w] and not any(ch.alive for k, ch in s.child.items() if c.kids[k] == w):

            def restart(n, w=w):
                n.winc[w] += 1
                n.sup[w], n.stop[w] = 1, 0
                n.lease[wid(c, n, w)] = "V"
                for k in n.child:
                    if c.kids[k] == w:
                        n.child[k] = Child(1, n.child[k].inc + 1, *FRESH)

            do(f"w{w} starts again", restart)
        if w in up and R.sweep:
            for who, mark in s.grave:
                if who[:2] == me and any(o == who for o in s.pel.values()):

                    def sweep(n, who=who, mark=mark):
                        handover(c, n, who, mark)

                    do(f"w{w} sweeps {who}", sweep)

    if up:
        for me, state in s.lease.items():
            if state == "E" and R.dead_is_final:
                do(f"reaper declares {me} dead", lambda n, me=me: n.lease.__setitem__(me, "D"))
            if state == ("D" if R.dead_is_final else "E"):
                if any(o[:2] == me for o in s.pel.values()) or not R.sweep:

                    def take(n, me=me):
                        reap(c, n, me)
                        if not R.sweep:
                            n.lease[me] = "G"

                    do(f"reaper takes the entries of {me}", take)
        for t, (status, _) in s.rec.items():
            if status in "PT":
                do(f"promote t{t}", lambda n, t=t: promote(c, n, t))

    for t, sent in s.prod.items():
        if sent < 2:

            def send(n, t=t):
                if enqueue(c, n, t) == "accepted":
                    n.prod[t] = 2
                else:
                    return False

            do(f"producer enqueues t{t}", send)
            if s.loss and not sent:

                def send_lost(n, t=t):
                    n.loss -= 1
                    if enqueue(c, n, t) != "accepted":
                        return False
                    n.prod[t] = 1

                do(f"producer enqueues t{t}, reply lost", send_lost, True)

                def send_late(n, t=t):
                    n.loss -= 1
                    n.zombie += ((("enqueue", t), "producer"),)

                do(f"producer loses its connection before t{t} is applied, repeats", send_late, True)
        if s.canc and s.ghost[t][0] and (t in s.live or t in s.rec):

            def stop_it(n, t=t):
                n.canc -= 1
                answer = cancel(c, n, t)
                if answer == "202":
                    g = n.ghost[t]
                    n.ghost[t] = g[:2] + (1,) + g[3:]

            do(f"cancel t{t}", stop_it, True)
        if s.ttl and t not in s.expd and s.ghost[t][0]:

            def expire(n, t=t):
                n.ttl -= 1
                n.expd += (t,)

            do(f"ttl of t{t} runs out", expire, True)
        if s.op and c.op and s.rec.get(t, " ")[0] == "D":

            def requeue(n, t=t):
                n.op -= 1
                if c.unique and n.uniq is not None:
                    return False
                if c.unique:
                    n.uniq = t
                g = n.ghost[t]
                n.ghost[t] = (g[0], 0, 0, g[3] + 1, ())
                n.asked = tuple(a for a in n.asked if a != t)
                queue(n, t, 1)

            do(f"operator requeues t{t}", requeue, True)
    if c.qpause and s.paused < 2:
        do(
            "queue paused" if not s.paused else "queue resumed",
            lambda n: setattr(n, "paused", n.paused + 1),
            not s.paused,
        )
    if s.group:

        def lose_group(n):
            n.group -= 1
            n.pel, n.last = {}, 0

        do("consumer group lost and created anew at 0", lose_group, True)
    if s.lock and s.uniq is not None:

        def lock_ttl(n):
            n.lock -= 1
            n.unlocked += (n.uniq,)
            n.uniq = None

        do("unique_ttl runs out", lock_ttl, True)
    return out


# ---------------------------------------------------------------- invariants of a state


def check(c, s):
    nq = sum(v[0] == "Q" for v in s.live.values())
    nr = sum(v[0] == "R" for v in s.live.values())
    if (nq, nr) != (s.nq, s.nr):
        raise Broken(f"counters {s.nq},{s.nr} but recount {nq},{nr}")
    for t, v in s.live.items():
        if t in s.rec:
            raise Broken(f"t{t} in the live hash and in a record")
        e = v[2]
        if s.ent.get(e) != t:
            raise Broken(f"t{t} is {v[0]} but its entry is gone")
        if e not in s.pel and e <= s.last:
            raise Broken(f"t{t} is {v[0]}, delivered, and in no PEL: lost")
    for e, t in s.ent.items():
        if t not in s.live or s.live[t][2] != e:
            raise Broken(f"entry {e} of t{t} is not the one the live hash names")
    if c.unique and s.uniq is not None and s.uniq not in s.live and s.rec.get(s.uniq, " ")[0] not in "PT":
        raise Broken(f"unique lock outlives t{s.uniq}")
    if c.unique:
        for t in s.ghost:
            if t not in s.unlocked and (t in s.live or s.rec.get(t, " ")[0] in "PT") and s.uniq != t:
                raise Broken(f"t{t} is not terminal but its unique lock is gone")


def goal(c, s):
    """Everything terminal and nothing left behind."""
    return (
        not s.live
        and not s.ent
        and not s.pel
        and s.uniq is None
        and all(v == 2 for v in s.prod.values())
        and all(r[0] not in "PT" for r in s.rec.values())
    )
