"""The Rust half of dtq: bytes and values in, bytes and values out.

Nothing here opens a socket, starts a thread, reads a clock or makes randomness, so all of it may be used before and
after a fork. Times are integers: milliseconds since 1970 (`_ms`) or nanoseconds of CLOCK_BOOTTIME (`_ns`). Everything
that refuses input raises `CoreError`, whatever the bytes; nothing is partly done when it does.

Wire formats (all numbers little endian):

    envelope  u8 version=1, u8 band, u16 max_attempts, u32 timeout_ms, u64 retention_ms, u8 flags (bit 0: dead-lettering
              off), u8 type length, type (UTF-8), u32 extras length, extras (JSON object or empty), payload (the rest)
    record    u8 version=1, u8 status, u16 attempt, u16 released, u64 created_ms, u64 started_ms, u64 ended_ms,
              u8 place length, place, u32 length + token, u32 length + detail, u32 length + envelope, history (the rest)

`SOURCE_FINGERPRINT` tells which sources the extension was built from: FNV-1a 64 (offset basis 0xcbf29ce484222325,
prime 0x100000001b3) over, for `Cargo.toml` and every `rust/**/*.rs`, sorted by the bytes of its path relative to the
repository root with `/` between parts: path, 0x00, content, 0x00; written as 16 lower-case hex digits.
"""

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, Protocol, final

__all__ = [
    "DEBUG_BUILD",
    "FOREVER_MS",
    "SOURCE_FINGERPRINT",
    "TIMING_BOUNDS_NS",
    "WIRE_VERSION",
    "Average",
    "Chunk",
    "Claim",
    "CoreError",
    "DueTask",
    "Envelope",
    "EnvelopeHead",
    "Outcomes",
    "Record",
    "SlotRow",
    "Slots",
    "SyncLoop",
    "TurnReply",
    "check_json",
    "encode_json",
    "encode_promote",
    "encode_record",
    "id_time_ms",
    "new_ids",
    "pack_args",
    "pack_command",
    "parse_claims",
    "parse_delivery",
    "parse_due",
    "parse_envelope",
    "parse_record",
]

WIRE_VERSION: Final[int]
"""The version byte that envelopes and records begin with."""
FOREVER_MS: Final[int]
"""`retention_ms` of a task whose result never expires (2**53 - 1)."""
TIMING_BOUNDS_NS: Final[tuple[int, ...]]
"""Upper bounds of the buckets of `Outcomes.take_timings`."""
SOURCE_FINGERPRINT: Final[str]
"""Which sources this extension was built from; the module docstring says how it is computed."""
DEBUG_BUILD: Final[bool]
"""True in an unoptimised build."""

class CoreError(Exception):
    """Input was refused or bytes are damaged; `str()` names the field and the way out."""

    field: str
    """Where: a path such as `payload.items[3].price`, or the name of an argument or of a part of the bytes."""
    kind: Literal["invalid", "too_large"]

# --- ids ---------------------------------------------------------------------------------------------------------

def new_ids(now_ms: int, random: bytes, count: int) -> list[str]:
    """UUIDv7 ids as 22 characters of base62 (0-9A-Za-z), which sort by time; takes 10 random bytes for each."""

def id_time_ms(id: str) -> int | None:
    """When an id of `new_ids` was made; None for any other id."""

# --- payloads and envelopes --------------------------------------------------------------------------------------

def encode_json(value: object, root: str = "payload", max_bytes: int | None = None) -> bytes:
    """Compact JSON in UTF-8, the bytes that orjson would write, of values that come back exactly as they were.

    Accepts dict, list, str, int, float (and subclasses), tuple (exact; comes back as list), bool and None. Refuses,
    with the path of the offender: NaN and infinities, lone surrogates, keys that are no str, ints outside
    -2**63 ... 2**64-1, nesting deeper than 128, enum members, named tuples and every other type. More than `max_bytes`
    bytes: kind "too_large".
    """

def check_json(text: bytes, root: str = "payload") -> None:
    """Refuses what a JSON reader would change without a word, with the path of the offender; `root` names the whole.

    That is: a key that stands twice in one object, an int outside -2**63 ... 2**64-1, a float beyond the range of a
    double. Text that is no JSON passes; that is for the reader to tell.
    """

@final
class EnvelopeHead:
    """The part of an envelope that tasks enqueued with the same options share.

    task_type: 1-255 bytes of UTF-8; band: 0-9; max_attempts: 1-65535; timeout_ms: 0-2**32-1; retention_ms:
    0 (delete on success) - FOREVER_MS; extras: JSON object bytes or b"".
    """

    def __new__(
        cls,
        task_type: str,
        band: int,
        max_attempts: int,
        timeout_ms: int,
        retention_ms: int,
        dead_letter: bool = True,
        extras: bytes = b"",
    ) -> EnvelopeHead: ...
    def encode(self, payload: object, max_bytes: int) -> bytes:
        """Envelope of a payload, which must be a dict; `max_bytes` bounds its JSON."""

    def pack_task(
        self, prefix: bytes, now_ms: int, random: bytes, payload: object, max_bytes: int
    ) -> tuple[str, bytes]:
        """A new id, made of 10 `random` bytes as by `new_ids`, and `prefix` with id and envelope behind it.

        prefix: the front of the short script's command, with the `*N` of the whole one.
        """

    def encode_raw(self, payload_json: bytes) -> bytes:
        """Envelope of a payload that is JSON already; it is not looked at."""

@final
class Envelope:
    """A parsed envelope."""

    @property
    def version(self) -> int: ...
    @property
    def task_type(self) -> str: ...
    @property
    def band(self) -> int: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def dead_letter(self) -> bool: ...
    @property
    def extras(self) -> bytes: ...
    @property
    def payload(self) -> bytes: ...

def parse_envelope(envelope: bytes) -> Envelope:
    """CoreError if it is damaged or of another version (both versions are named)."""

# --- records -----------------------------------------------------------------------------------------------------

@final
class Record:
    """A parsed task record. 0 in a time means unknown; `place` is the dead-letter entry id, else empty."""

    @property
    def status(self) -> int:
        """0 history only, 1 pending, 2 queued, 3 running, 4 retrying, 5 succeeded, 6 failed, 7 dead_lettered,
        8 cancelled, 9 expired."""

    @property
    def attempt(self) -> int: ...
    @property
    def released(self) -> int: ...
    @property
    def created_ms(self) -> int: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def ended_ms(self) -> int: ...
    @property
    def place(self) -> bytes: ...
    @property
    def token(self) -> bytes: ...
    @property
    def detail(self) -> bytes: ...
    @property
    def envelope(self) -> bytes: ...
    @property
    def history(self) -> bytes: ...

def parse_record(record: bytes) -> Record:
    """CoreError if it is damaged or of another version. The envelope inside is not looked at."""

def encode_record(
    status: int,
    attempt: int,
    released: int,
    created_ms: int,
    started_ms: int,
    ended_ms: int,
    token: bytes,
    detail: bytes,
    envelope: bytes,
    history: bytes = b"",
    place: bytes = b"",
) -> bytes:
    """Bytes of a record; CoreError names a number that does not fit its field."""

# --- Redis commands ----------------------------------------------------------------------------------------------

def pack_command(args: list[bytes | str | int]) -> bytes:
    """One command in RESP, the bytes that redis-py would send."""

def pack_args(args: list[bytes | str | int]) -> bytes:
    """The same without the leading `*N`: a prefix to keep and give to `pack`, `pack_turn`, `encode_promote`."""

@final
class Chunk:
    """Tasks of one enqueue call, already in wire form: (id, envelope, place) each."""

    def __new__(cls) -> Chunk: ...
    def __len__(self) -> int: ...
    @property
    def byte_size(self) -> int:
        """Bytes of the arguments collected so far."""

    @property
    def ids(self) -> list[str]: ...
    def add(self, id: str, envelope: bytes, place: bytes) -> None: ...
    def add_payload(self, id: str, head: EnvelopeHead, payload: object, max_bytes: int, place: bytes) -> None:
        """Encodes the envelope straight into the chunk; on CoreError the chunk is as it was."""

    def extend(
        self, ids: list[str], head: EnvelopeHead, payloads: list[dict[str, object]], max_bytes: int, place: bytes
    ) -> list[tuple[int, CoreError]]:
        """`add_payload` for each pair; a refused payload is left out and reported by its index."""

    def pack(self, prefix: bytes, prefix_count: int) -> bytes:
        """The whole command: the `prefix_count` arguments of `prefix`, the number of places, each place with how many
        tasks in a row it stands for, then id and envelope of each task."""

    def pack_one(self, prefix: bytes, prefix_count: int) -> bytes:
        """For the short script: `prefix`, then place, id and envelope of the only task; CoreError if it has others."""

# --- claims ------------------------------------------------------------------------------------------------------

@final
class Claim:
    """One claimed task. `error` is set, and what the envelope would tell is empty, when the envelope is damaged or of
    an unknown version. `payload`, `extras` and `tail` are copied out at each access."""

    @property
    def id(self) -> str:
        """Bytes that are no UTF-8 come as surrogate escapes."""

    @property
    def entry(self) -> bytes:
        """Stream entry id."""

    @property
    def token(self) -> bytes:
        """The whole live value; what settles name."""

    @property
    def envelope(self) -> bytes: ...
    @property
    def band(self) -> int:
        """The band whose stream holds the entry."""

    @property
    def attempt(self) -> int: ...
    @property
    def released(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def started_ms(self) -> int: ...
    @property
    def task_type(self) -> str: ...
    @property
    def payload(self) -> bytes: ...
    @property
    def extras(self) -> bytes: ...
    @property
    def max_attempts(self) -> int: ...
    @property
    def timeout_ms(self) -> int: ...
    @property
    def retention_ms(self) -> int: ...
    @property
    def dead_letter(self) -> bool: ...
    @property
    def error(self) -> str | None: ...
    @property
    def tail(self) -> bytes: ...
    @property
    def deadline_ms(self) -> int:
        """0 = none."""

    def limit_ns(self, now_ns: int, timeout_ns: int, clock_offset_ns: int) -> int:
        """When an attempt that begins at now_ns has to end: after its own time limit, or timeout_ns where it has none,
        or at its deadline. clock_offset_ns: Redis' clock less the one of now_ns."""

    @property
    def history(self) -> bool:
        """A record with the lines of earlier attempts exists."""

    @property
    def solo(self) -> bool: ...
    @property
    def cancel_requested(self) -> bool: ...

@final
class TurnReply:
    """What a turn brought back; `codes` holds d (done), c (cancelled), s (stale) or g (gone) per outcome, in order."""

    @property
    def codes(self) -> bytes: ...
    @property
    def claims(self) -> list[Claim]: ...
    @property
    def late(self) -> bool:
        """The script had seen a newer send of this consumer and did nothing."""
    @property
    def envelope_bytes(self) -> int:
        """Bytes of all claimed envelopes."""

def parse_claims(reply: list[object], consumer: str = "", first_seq: int = 0) -> TurnReply:
    """Reply of the turn script: [codes, ms now, then entry, id, live value, band, envelope of each claim] or [b"late"].

    A plain first attempt comes without its live value: `consumer` and `first_seq` of the turn and the time make it.

    A damaged envelope or live value sets `error` of its claim only; CoreError if the list itself has another shape.
    """

def parse_delivery(answers: bytes) -> Claim | None:
    """The claim in what the server sent to a blocking read with an adoption behind it (adopt.lua), both in one.

    None for anything else, or not yet all of it: an error, several entries, none, or one that was not adopted.
    """

# --- turns -------------------------------------------------------------------------------------------------------

@final
class Outcomes:
    """How the attempts of one child ended, collected until a turn has taken them to Redis."""

    def __new__(cls, worker_id: str) -> Outcomes: ...
    def __len__(self) -> int: ...
    @property
    def ids(self) -> list[str]:
        """In the order of the reply's codes."""

    def clear(self, count: int | None = None) -> None:
        """Forgets the oldest `count` outcomes, all by default."""

    def succeed(self, claim: Claim, result: object, ended_ms: int, max_bytes: int, took_ns: int | None = None) -> None:
        """Adds a success. CoreError (field starts with `result`) leaves the buffer as it was.

        With retention 0 and no history the result is checked and dropped, and the record is empty.
        took_ns: how long the handler ran, for the timings; negative: none has run; None: do not count it.
        """

    def settle(
        self,
        claim: Claim,
        letter: Literal["R", "F", "D", "C", "L"],
        ended_ms: int,
        amount_ms: int,
        detail: bytes,
        history: bytes = b"",
        released: int = 0,
        took_ns: int | None = None,
    ) -> None:
        """Adds another end: R retry after `amount_ms`, F failed, D dead-lettered, C cancelled, L released.

        `detail` is a JSON object, `history` the new lines, each ending in a newline; `released` is added to the
        record's count of attempts that are not charged. took_ns: as for a success.
        """

    def take_timings(self) -> list[tuple[str, bytes]]:
        """By task type, what was counted since the last call.

        Little-endian u64 each: attempts that ended S, R, F, D, C, L; then of wait (queued to start), execution and
        duration (made to ended) the durations in each bucket of TIMING_BOUNDS_NS, the longer ones, and the sum in us.
        """

    def pack_turn(
        self,
        prefix: bytes,
        prefix_count: int,
        consumer: str,
        send: int,
        first_seq: int,
        want: int,
        max_bytes: int,
        flags: int,
        adopts: list[tuple[int, bytes, bytes]],
        held: list[bytes],
    ) -> bytes:
        """The whole turn command; the outcomes stay until `clear`.

        Arguments after the prefix: consumer, send, the numbers packed into one (the last two: `flags`, 1 recover, 2
        beside others, 4 yields, and shape, 1 records follow, 2 plain), each head with how many outcomes it stands
        for; of plain outcomes their live values joined by line feeds, and the greatest entry; then columns: ids;
        entries of plain ones, else live values; records, if any; then band, entry, id of each adopt; each of `held`.
        A head is letter, band digit, amount: S retention in ms (0 none, -1 for ever), R delay in ms, else 0. Plain
        are successes of one band whose live values, as claimed, have no tail but the mark of an adoption.
        """

# --- the schedule ------------------------------------------------------------------------------------------------

@final
class DueTask:
    """A task of the schedule whose time has come. `band` is 0 when `error` says that the record is damaged."""

    @property
    def id(self) -> str: ...
    @property
    def score(self) -> int: ...
    @property
    def band(self) -> int: ...
    @property
    def status(self) -> int: ...
    @property
    def error(self) -> str | None: ...

def parse_due(reply: list[object]) -> list[DueTask]:
    """A flat list [id, score, record, ...]; a missing record is None, False or b""."""

def encode_promote(due: list[DueTask], prefix: bytes, prefix_count: int) -> bytes:
    """The promote command: after the prefix id, score, band, error text (or empty) of each task."""

# --- shared memory -----------------------------------------------------------------------------------------------

@final
class SlotRow:
    """An attempt that is executing."""

    @property
    def place(self) -> int: ...
    @property
    def entry(self) -> bytes: ...
    @property
    def queue(self) -> int: ...
    @property
    def band(self) -> int: ...
    @property
    def seq(self) -> int: ...
    @property
    def attempt(self) -> int: ...
    @property
    def started_ns(self) -> int: ...
    @property
    def limit_ns(self) -> int: ...

@final
class Slots:
    """Shared memory of a supervisor and its children, over a memfd; every access is atomic and takes no lock.

    Per child: the word (watermark, window) of claims that may begin, one row per concurrency place, a state number
    and a counter. `create` sizes the file and writes its header; without it both are checked. The file
    descriptor may be closed afterwards. IndexError for a child or place that is out of range.
    """

    def __new__(cls, fd: int, children: int, places: int, create: bool = False) -> Slots: ...
    @staticmethod
    def byte_size(children: int, places: int) -> int: ...
    @property
    def children(self) -> int: ...
    @property
    def places(self) -> int: ...
    def set_safe_until(self, ns: int) -> None: ...
    def safe_until(self) -> int:
        """Until when (CLOCK_BOOTTIME ns) the lease is safe; 0 at first."""

    def offer(self, child: int, first_seq: int, count: int) -> bool:
        """Lets claims first_seq ... first_seq + count - 1 begin.

        True if the window was empty and first_seq is no earlier than the watermark, or if they follow the window.
        """

    def begin(self, child: int, seq: int) -> bool:
        """Marks a claim as begun; False if it was revoked or is not the next one."""

    def revoke(self, child: int) -> tuple[int, int]:
        """Closes the window; the half-open range of seqs that can no longer begin (empty if from == to)."""

    def watermark(self, child: int) -> int:
        """Seq of the next claim to begin; every claim below it has begun."""

    def window(self, child: int) -> int:
        """How many claims may begin."""

    def reset(self, child: int) -> None:
        """Clears word, rows, state and counter for a new child; only when the old one is dead."""

    def start(
        self,
        child: int,
        place: int,
        entry: bytes,
        queue: int,
        band: int,
        seq: int,
        attempt: int,
        started_ns: int,
        limit_ns: int,
    ) -> None:
        """Writes the row of an attempt that is about to execute; limit_ns 0 = no limit."""

    def enter(
        self,
        child: int,
        place: int,
        claim: Claim,
        queue: int,
        now_ns: int,
        timeout_ns: int,
        clock_offset_ns: int,
    ) -> bool:
        """begin and start in one: the claim executes from now_ns on, to its limit_ns; False if it may not begin."""

    def finish(self, child: int, place: int) -> None:
        """Empties the row."""

    def rows(self, child: int) -> list[SlotRow]:
        """The executing attempts; a row that is being written (the handler is not running yet) is left out."""

@final
class Average:
    """How long the handlers of a child took of late. A slow one counts at once, quick ones slowly."""

    def __new__(cls) -> Average: ...
    @property
    def ns(self) -> float:
        """In nanoseconds; 0 while none has run."""

    def ran(self, took_ns: int) -> None:
        """A handler took so long."""

class _Executor(Protocol):
    def run(self, claim: Claim, route: Any, queue: str, /) -> object: ...
    def context(self, claim: Claim, queue: str, /) -> object: ...
    def raised(self, claim: Claim, route: Any, error: BaseException, /) -> object: ...
    def checked(self, claim: Claim, result: object, /) -> object: ...
    def end_if_forked(self, error: BaseException | None, /) -> None: ...

@final
class SyncLoop:
    """Runs the sync handlers of one child, one after the other, in the thread that calls it.

    executor and routes: an Executor and its routes by task type, of which `names`, `function`, `is_async`,
    `wants_context`, `recent_ns` and `handler.problem` are used. loads: decodes a payload. boottime_ns: the clock of the
    slots. collect: takes what is no plain success, and everything where collects is false: index, claim, result, end
    in ms, ns taken. inlines: handlers are called from here, not by `executor.run`. timeout_ns: limit of tasks without
    one of their own, 0: none. claim_max: so many outcomes are settled before another handler.
    """

    def __new__(
        cls,
        *,
        slots: Slots,
        child: int,
        average: Average,
        executor: _Executor,
        routes: Mapping[str, Any],
        loads: Callable[[bytes], object],
        boottime_ns: Callable[[], int],
        collect: Callable[[int, Claim, object, int, int], None],
        collects: bool,
        inlines: bool,
        timeout_ns: int,
        claim_max: int,
        result_max_bytes: int,
    ) -> SyncLoop: ...
    executing: int
    """Number of the claim whose handler runs, 0 for none. An interruption sets it to 0: it comes once."""
    done: int
    """How many attempts this child has ended."""
    oldest_ns: int
    """When the oldest outcome that is not yet settled ended; 0 for none."""
    leaving: bool
    """Whether nothing more is to begin."""

    def run(
        self,
        claims: deque[Claim],
        index: int,
        queue: str,
        outcomes: Outcomes,
        noted: list[Any] | None,
        clock_offset_ns: int,
        most: int,
    ) -> Literal["used", "settle", "elsewhere", "revoked", "stop"]:
        """Runs claims of one queue from the left, `most` at most, and takes each out before it begins.

        index: the queue's number, for rows and collect. outcomes: takes plain successes. clock_offset_ns: the server's
        clock less that of the rows. most: none if it is negative, as another thread may have ended more than were left.
        noted: takes (place among the outcomes, claim, None, ns taken) of each plain success. What ended it: "used", all
        or `most` have run; "settle", outcomes have waited long enough to be settled before the next handler;
        "elsewhere", the next claim is for no sync handler; "revoked", the one taken out may not begin, nor those behind
        it; "stop", it is leaving, or past the lease. Raises what a callable raises, or a signal's Python handler.
        """
