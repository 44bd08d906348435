//! What the pure modules do for a batch of tasks, on inputs that never change: timed by `core.rs`, counted in
//! instructions by `instructions.rs`.

use dtq_core::envelope::{self, Head};
use dtq_core::error::CoreError;
use dtq_core::record::{self, Record, status};
use dtq_core::slots::{Row, Slots};
use dtq_core::timings::{Attempt, Timings};
use dtq_core::turn::{Outcome, OutcomeBuffer, Turn, head};
use dtq_core::{claim, delivery, ids, json, resp, schedule, wire};
use std::fs::{self, OpenOptions};
use std::hint::black_box;
use std::os::fd::AsRawFd;

/// Tasks in a batch.
pub const BATCH: usize = 100;

const NOW_MS: u64 = 1_700_000_000_000;
const CONSUMER: &[u8] = b"host-abcdefgh.0.1";
const DETAIL: &[u8] = b"{\"worker_id\":\"host-abcdefgh\",\"result\":null}";
const PREFIX: &[u8] = b"$7\r\nEVALSHA\r\n";

/// Work for `BATCH` tasks, and the number that it must come to.
pub struct Case {
    /// What it is called in the table of counts.
    pub name: &'static str,
    /// Does the work; the number is made of what came out.
    pub run: fn(&Inputs) -> Result<usize, CoreError>,
    /// What `run` must return.
    pub expected: usize,
}

/// Every case, in the order of a task's life.
pub const CASES: [Case; 15] = [
    Case {
        name: "new_ids",
        run: new_ids,
        expected: 2_200,
    },
    Case {
        name: "id_time_ms",
        run: id_time_ms,
        expected: 100,
    },
    Case {
        name: "encode_json",
        run: encode_json,
        expected: 15_600,
    },
    Case {
        name: "encode_envelope",
        run: encode_envelope,
        expected: 3_100,
    },
    Case {
        name: "pack_enqueue",
        run: pack_enqueue,
        expected: 22_419,
    },
    Case {
        name: "parse_envelope",
        run: parse_envelope,
        expected: 1_400,
    },
    Case {
        name: "plain_claim",
        run: plain_claim,
        expected: 5_782,
    },
    Case {
        name: "parse_live",
        run: parse_live,
        expected: 5_050,
    },
    Case {
        name: "parse_delivery",
        run: parse_delivery,
        expected: 500,
    },
    Case {
        name: "begin_and_finish",
        run: begin_and_finish,
        expected: 300,
    },
    Case {
        name: "record_durations",
        run: record_durations,
        expected: 528,
    },
    Case {
        name: "encode_record",
        run: encode_record,
        expected: 33_082,
    },
    Case {
        name: "pack_turn",
        run: pack_turn,
        expected: 45_118,
    },
    Case {
        name: "parse_record",
        run: parse_record,
        expected: 500,
    },
    Case {
        name: "promote",
        run: promote,
        expected: 6_219,
    },
];

/// What the cases work on, made beforehand.
pub struct Inputs {
    randoms: Vec<[u8; ids::RANDOM_LENGTH]>,
    ids: Vec<[u8; ids::ID_LENGTH]>,
    entries: Vec<String>,
    envelope: Vec<u8>,
    live: Vec<Vec<u8>>,
    record: Vec<u8>,
    delivery: Vec<u8>,
    slots: Slots,
}

impl Inputs {
    /// The same at every call, except for the claim numbers in the slots, which only grow.
    pub fn new() -> Result<Self, CoreError> {
        let randoms: Vec<_> = (0..BATCH as u64)
            .map(|number| {
                // Bytes without a pattern that could favour a branch: multiples of the golden ratio.
                let mixed = (number + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15).to_le_bytes();
                let mut random = [0; ids::RANDOM_LENGTH];
                random[..8].copy_from_slice(&mixed);
                random[8..].copy_from_slice(&mixed[..2]);
                random
            })
            .collect();
        let entries: Vec<_> = (0..BATCH).map(|number| format!("{NOW_MS}-{number}")).collect();
        let mut envelope = task_head().encode()?;
        put_payload(&mut envelope);
        let live = entries
            .iter()
            .zip(1..)
            .map(|(entry, seq)| claim::plain_claim(entry.as_bytes(), CONSUMER, seq, b"1700000000000"))
            .collect::<Vec<_>>();
        let mut record = Vec::new();
        task_record(status::RETRYING, &live[0], &envelope).encode(&mut record)?;
        let ids: Vec<_> = randoms.iter().map(|random| ids::new_id(NOW_MS, *random)).collect();
        Ok(Self {
            delivery: delivered(entries[0].as_bytes(), &ids[0], &live[0], &envelope),
            ids,
            randoms,
            entries,
            envelope,
            live,
            record,
            slots: slots()?,
        })
    }
}

/// What the server answers to a blocking read and the adoption behind it.
fn delivered(entry: &[u8], id: &[u8], live: &[u8], envelope: &[u8]) -> Vec<u8> {
    let mut out = b"*1\r\n*2\r\n".to_vec();
    resp::put_bulk(&mut out, b"dtq:stream:{default}:p5");
    out.extend_from_slice(b"*1\r\n*2\r\n");
    resp::put_bulk(&mut out, entry);
    resp::put_array(&mut out, 2);
    resp::put_bulk(&mut out, id);
    resp::put_bulk(&mut out, envelope);
    resp::put_array(&mut out, 7);
    for text in [b"", &b"1700000000000"[..], entry, id, live] {
        resp::put_bulk(&mut out, text);
    }
    out.extend_from_slice(b":5\r\n");
    resp::put_bulk(&mut out, envelope);
    out
}

fn slots() -> Result<Slots, CoreError> {
    let failed = |error: std::io::Error| CoreError::invalid("slots", error.to_string());
    let path = std::env::temp_dir().join(format!("dtq-bench-slots-{}", std::process::id()));
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .open(&path)
        .map_err(failed)?;
    fs::remove_file(&path).map_err(failed)?;
    Slots::new(file.as_raw_fd(), 1, 1, true)
}

fn task_head() -> Head<'static> {
    Head {
        task_type: "mail.send",
        band: 5,
        max_attempts: 5,
        timeout_ms: 60_000,
        retention_ms: 86_400_000,
        dead_letter: true,
        extras: b"",
    }
}

fn task_record<'a>(status: u8, token: &'a [u8], envelope: &'a [u8]) -> Record<'a> {
    Record {
        status,
        attempt: 1,
        created_ms: NOW_MS,
        started_ms: NOW_MS,
        ended_ms: NOW_MS,
        token,
        detail: DETAIL,
        envelope,
        ..Record::default()
    }
}

/// About 150 bytes, a value of each kind; the walk over Python objects that calls these is not part of it.
fn put_payload(out: &mut Vec<u8>) {
    out.push(b'{');
    for (name, text) in [
        ("email", "someone@example.com"),
        ("note", "hello world, this is a \"note\"\n"),
        ("address", "1 Example Street, Springfield, 12345"),
    ] {
        json::put_string(out, name);
        out.push(b':');
        json::put_string(out, text);
        out.push(b',');
    }
    json::put_string(out, "user_id");
    out.push(b':');
    json::put_integer(out, 12_345_678_u64);
    out.push(b',');
    json::put_string(out, "amount");
    out.push(b':');
    json::put_float(out, 12.5);
    out.push(b'}');
}

#[inline(never)]
fn new_ids(inputs: &Inputs) -> Result<usize, CoreError> {
    // The length is known to the compiler, which would leave the work out.
    let made = inputs
        .randoms
        .iter()
        .map(|random| black_box(ids::new_id(NOW_MS, *random)));
    Ok(made.map(|id| id.len()).sum())
}

#[inline(never)]
fn id_time_ms(inputs: &Inputs) -> Result<usize, CoreError> {
    Ok(inputs.ids.iter().filter(|id| ids::time_ms(*id) == Some(NOW_MS)).count())
}

#[inline(never)]
fn encode_json(_: &Inputs) -> Result<usize, CoreError> {
    let mut out = Vec::new();
    (0..BATCH).for_each(|_| put_payload(&mut out));
    Ok(out.len())
}

#[inline(never)]
fn encode_envelope(_: &Inputs) -> Result<usize, CoreError> {
    let head = task_head();
    (0..BATCH).map(|_| head.encode().map(|bytes| bytes.len())).sum()
}

#[inline(never)]
fn pack_enqueue(inputs: &Inputs) -> Result<usize, CoreError> {
    let mut out = Vec::new();
    resp::put_array(&mut out, 1 + 2 * BATCH);
    out.extend_from_slice(PREFIX);
    for id in &inputs.ids {
        resp::put_bulk(&mut out, id);
        resp::put_bulk(&mut out, &inputs.envelope);
    }
    Ok(out.len())
}

#[inline(never)]
fn parse_envelope(inputs: &Inputs) -> Result<usize, CoreError> {
    inputs
        .entries
        .iter()
        .map(|_| {
            envelope::parse(&inputs.envelope).map(|parsed| parsed.head.task_type.len() + usize::from(parsed.head.band))
        })
        .sum()
}

#[inline(never)]
fn plain_claim(inputs: &Inputs) -> Result<usize, CoreError> {
    let made = inputs.entries.iter().zip(1..);
    Ok(made
        .map(|(entry, seq)| claim::plain_claim(entry.as_bytes(), CONSUMER, seq, b"1700000000000").len())
        .sum())
}

#[inline(never)]
fn parse_live(inputs: &Inputs) -> Result<usize, CoreError> {
    Ok(inputs
        .live
        .iter()
        .filter_map(|live| claim::parse_live(live))
        .map(|live| live.seq as usize)
        .sum())
}

#[inline(never)]
fn parse_delivery(inputs: &Inputs) -> Result<usize, CoreError> {
    let found = (0..BATCH).filter_map(|_| delivery::parse(black_box(&inputs.delivery)));
    Ok(found.map(|adopted| usize::from(adopted.band)).sum())
}

/// Offered, begun, its row written, read by the supervisor and emptied: each claim counts three.
#[inline(never)]
fn begin_and_finish(inputs: &Inputs) -> Result<usize, CoreError> {
    let slots = &inputs.slots;
    let mut right = 0;
    for _ in 0..BATCH {
        let seq = slots.watermark(0);
        right += usize::from(slots.offer(0, seq, 1)) + usize::from(slots.begin(0, seq));
        slots.start(
            0,
            0,
            &Row {
                entry: (NOW_MS, seq),
                band: 5,
                seq,
                attempt: 1,
                started_ns: 1,
                ..Row::default()
            },
        );
        right += usize::from(slots.read_row(0, 0).is_some_and(|row| row.seq == seq));
        slots.finish(0, 0);
    }
    Ok(right)
}

#[inline(never)]
fn record_durations(inputs: &Inputs) -> Result<usize, CoreError> {
    let mut timings = Timings::default();
    for number in 1..=inputs.ids.len() as u64 {
        let attempt = Attempt {
            wait_ns: Some(number * 1_234_567),
            execution_ns: Some(number * 12_345),
            duration_ns: Some(number * 2_345_678),
        };
        timings.record("mail.send", b'S', attempt);
    }
    let taken = timings.take();
    Ok(taken.iter().map(|(_, cell)| cell.to_bytes().len()).sum())
}

#[inline(never)]
fn encode_record(inputs: &Inputs) -> Result<usize, CoreError> {
    let mut out = Vec::new();
    for live in &inputs.live {
        task_record(status::SUCCEEDED, live, &inputs.envelope).encode(&mut out)?;
    }
    Ok(out.len())
}

#[inline(never)]
fn pack_turn(inputs: &Inputs) -> Result<usize, CoreError> {
    let mut outcomes = OutcomeBuffer::default();
    let head = head(b'S', 5, 86_400_000);
    for ((id, live), entry) in inputs.ids.iter().zip(&inputs.live).zip(&inputs.entries) {
        let record = task_record(status::SUCCEEDED, live, &inputs.envelope);
        let outcome = Outcome {
            id,
            token: live,
            entry: entry.as_bytes(),
            head: &head,
        };
        outcomes.push(outcome, record.byte_size(), |out| record.encode(out))?;
    }
    let packed = outcomes.pack(&Turn {
        prefix: PREFIX,
        prefix_count: 1,
        consumer: CONSUMER,
        send: 2,
        first_seq: 101,
        want: 100,
        max_bytes: 1_048_576,
        flags: 0,
        adopts: vec![],
        held: vec![],
    });
    outcomes.forget(BATCH);
    Ok(packed.len() + outcomes.len())
}

#[inline(never)]
fn parse_record(inputs: &Inputs) -> Result<usize, CoreError> {
    inputs
        .entries
        .iter()
        .map(|_| record::parse(&inputs.record).map(|parsed| usize::from(parsed.status) + usize::from(parsed.attempt)))
        .sum()
}

#[inline(never)]
fn promote(inputs: &Inputs) -> Result<usize, CoreError> {
    let due: Vec<_> = inputs
        .ids
        .iter()
        .map(|id| (id, schedule::examine(Some(&inputs.record))))
        .collect();
    let score = schedule::parse_score(b"1700000000000").unwrap_or_default();
    let tasks = due.iter().map(|(id, task)| (id.as_slice(), score, task.band, &b""[..]));
    let entry = wire::parse_entry(inputs.entries[0].as_bytes()).unwrap_or_default();
    Ok(schedule::pack_promote(tasks, PREFIX, 1).len() + usize::from(entry.0 != NOW_MS))
}
