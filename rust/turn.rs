//! Outcomes in wire form, as the turn script takes them.

use crate::resp::{put_array, put_bulk, put_bulk_length, put_integer};
use crate::wire::parse_entry;
use std::collections::VecDeque;

/// Outcomes of one child that no turn has taken yet, oldest first, in columns: the script hands whole columns on.
#[derive(Debug, Default)]
pub struct OutcomeBuffer {
    /// In wire form, as `entries` and `records`.
    ids: Column,
    /// Live values as claimed, each with a line feed behind it.
    tokens: Column,
    entries: Column,
    records: Column,
    /// The entries as numbers, of outcomes that are plain.
    plain: VecDeque<Option<(u64, u64)>>,
    /// Heads, each with how many outcomes in a row it stands for: most batches have one.
    heads: VecDeque<(Vec<u8>, usize)>,
}

/// What an outcome is made of, besides its record.
#[derive(Clone, Copy, Debug)]
pub struct Outcome<'a> {
    /// The task's id.
    pub id: &'a [u8],
    /// Its live value as claimed.
    pub token: &'a [u8],
    /// Its entry in the stream.
    pub entry: &'a [u8],
    /// What the script does with it: see `head`.
    pub head: &'a [u8],
}

/// Texts, one behind the other in one buffer.
#[derive(Debug, Default)]
struct Column {
    bytes: Vec<u8>,
    ends: Vec<usize>,
}

impl Column {
    fn end(&mut self) {
        self.ends.push(self.bytes.len());
    }

    fn push_bulk(&mut self, item: &[u8]) {
        put_bulk(&mut self.bytes, item);
        self.end();
    }

    fn items(&self) -> impl Iterator<Item = &[u8]> {
        let starts = std::iter::once(0).chain(self.ends.iter().copied());
        starts.zip(&self.ends).map(|(start, end)| &self.bytes[start..*end])
    }

    fn forget(&mut self, count: usize) {
        let start = count.checked_sub(1).map_or(0, |last| self.ends[last]);
        self.bytes.drain(..start);
        self.ends.drain(..count);
        self.ends.iter_mut().for_each(|end| *end -= start);
    }
}

/// Arguments of a turn, besides the outcomes.
#[derive(Debug)]
pub struct Turn<'a> {
    /// Arguments that stand first, in wire form.
    pub prefix: &'a [u8],
    /// How many they are.
    pub prefix_count: usize,
    /// Name of the consumer.
    pub consumer: &'a [u8],
    /// Number of this send.
    pub send: u64,
    /// Claim number of the first claim.
    pub first_seq: u64,
    /// How many claims are wanted.
    pub want: u64,
    /// Most bytes of envelopes that are wanted.
    pub max_bytes: u64,
    /// Bits, by their value. 1: everything else in the consumer's pending list is to be returned. 2: other claims of the
    /// child have not ended, so nothing is wanted that has to be alone. 4: as long as such a task waits, nothing at all is.
    pub flags: u8,
    /// Entries that a blocking read brought: band, entry, id.
    pub adopts: Vec<(u8, &'a [u8], &'a [u8])>,
    /// Claim numbers that the child still holds.
    pub held: Vec<&'a [u8]>,
}

/// Behind each live value; one that holds it is not plain, as the script compares them joined.
const LINE_FEED: u8 = b'\n';
/// An empty record in wire form; any other is longer.
const NOTHING: &[u8] = b"$0\r\n\r\n";

/// The entry of a plain outcome: a success whose live value, as claimed, has no tail but the mark of `adopt.lua`.
fn plain_entry(outcome: &Outcome<'_>) -> Option<(u64, u64)> {
    let token = outcome.token;
    let tailless = token.ends_with(b":") || token.ends_with(b":w;");
    let plain = outcome.head.first() == Some(&b'S') && tailless && !token.contains(&LINE_FEED);
    parse_entry(outcome.entry).filter(|_| plain)
}

/// What the turn script does with an outcome: a letter, the band digit and an amount.
#[must_use]
pub fn head(letter: u8, band: u8, amount: i64) -> Vec<u8> {
    let mut head = vec![letter, b'0' + band.min(9)];
    head.extend_from_slice(itoa::Buffer::new().format(amount).as_bytes());
    head
}

impl OutcomeBuffer {
    /// Number of outcomes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.ids.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ids.ends.is_empty()
    }

    /// Appends an outcome whose record `write_record` appends to the buffer; on an error nothing is appended.
    pub fn push<E>(
        &mut self,
        outcome: Outcome<'_>,
        record_length: usize,
        write_record: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let records = &mut self.records.bytes;
        let start = records.len();
        put_bulk_length(records, record_length);
        if let Err(error) = write_record(records) {
            records.truncate(start);
            return Err(error);
        }
        records.extend_from_slice(b"\r\n");
        self.records.end();
        self.ids.push_bulk(outcome.id);
        self.entries.push_bulk(outcome.entry);
        self.tokens.bytes.extend_from_slice(outcome.token);
        self.tokens.bytes.push(LINE_FEED);
        self.tokens.end();
        self.plain.push_back(plain_entry(&outcome));
        match self.heads.back_mut() {
            Some((last, count)) if last == outcome.head => *count += 1,
            _ => self.heads.push_back((outcome.head.to_vec(), 1)),
        }
        Ok(())
    }

    /// Forgets the oldest `count` outcomes.
    pub fn forget(&mut self, count: usize) {
        let count = count.min(self.len());
        for column in [&mut self.ids, &mut self.tokens, &mut self.entries, &mut self.records] {
            column.forget(count);
        }
        self.plain.drain(..count);
        self.forget_heads(count);
    }

    fn forget_heads(&mut self, mut count: usize) {
        while let Some((_, stands_for)) = self.heads.front_mut() {
            if *stands_for > count {
                *stands_for -= count;
                return;
            }
            count -= *stands_for;
            self.heads.pop_front();
        }
    }

    /// Whether any record is not empty.
    fn has_records(&self) -> bool {
        self.records.bytes.len() > NOTHING.len() * self.len()
    }

    /// The greatest entry, if all are plain and of one band: then the script compares and deletes them in one go.
    fn greatest_if_plain(&self) -> Option<String> {
        let band = self.heads.front()?.0.get(1)?;
        if !self.heads.iter().all(|(head, _)| head.get(1) == Some(band)) {
            return None;
        }
        let mut greatest = (0, 0);
        for entry in &self.plain {
            greatest = greatest.max((*entry)?);
        }
        Some(format!("{}-{}", greatest.0, greatest.1))
    }

    /// The numbers of a turn in one argument: each as an argument of its own costs the script as much as half a command.
    fn numbers(&self, turn: &Turn<'_>, plain: bool) -> Vec<u8> {
        let mut out = turn.first_seq.to_le_bytes().to_vec();
        let counts = [self.len(), turn.adopts.len(), turn.held.len(), self.heads.len()];
        for number in [turn.want, turn.max_bytes]
            .into_iter()
            .chain(counts.map(|count| u64::try_from(count).unwrap_or(u64::MAX)))
        {
            out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        out.push(turn.flags);
        out.push(u8::from(self.has_records()) | u8::from(plain) << 1);
        out
    }

    /// The whole command: prefix, fixed arguments, counts, heads, columns of the outcomes, adopts, held claims.
    #[must_use]
    pub fn pack(&self, turn: &Turn<'_>) -> Vec<u8> {
        let greatest = self.greatest_if_plain();
        let columns = 2 + usize::from(self.has_records());
        let bytes = [&self.ids, &self.tokens, &self.entries, &self.records].map(|column| column.bytes.len());
        let size = bytes.iter().sum::<usize>() + 8 * self.len();
        let mut out = Vec::with_capacity(turn.prefix.len() + size + 256 + 64 * turn.held.len());
        let mut count = turn.prefix_count + 3 + 2 * self.heads.len() + columns * self.len();
        count += 2 * usize::from(greatest.is_some()) + 3 * turn.adopts.len() + turn.held.len();
        put_array(&mut out, count);
        out.extend_from_slice(turn.prefix);
        put_bulk(&mut out, turn.consumer);
        put_bulk(&mut out, format!("{:016}", turn.send).as_bytes());
        put_bulk(&mut out, &self.numbers(turn, greatest.is_some()));
        for (head, stands_for) in &self.heads {
            put_bulk(&mut out, head);
            put_integer(&mut out, *stands_for);
        }
        if let Some(entry) = &greatest {
            put_bulk(
                &mut out,
                self.tokens.bytes.strip_suffix(&[LINE_FEED]).unwrap_or_default(),
            );
            put_bulk(&mut out, entry.as_bytes());
        }
        out.extend_from_slice(&self.ids.bytes);
        if greatest.is_some() {
            out.extend_from_slice(&self.entries.bytes);
        } else {
            let tokens = self.tokens.items();
            tokens.for_each(|token| put_bulk(&mut out, token.strip_suffix(&[LINE_FEED]).unwrap_or_default()));
        }
        if self.has_records() {
            out.extend_from_slice(&self.records.bytes);
        }
        for (band, entry, id) in &turn.adopts {
            put_integer(&mut out, *band);
            put_bulk(&mut out, entry);
            put_bulk(&mut out, id);
        }
        for number in &turn.held {
            put_bulk(&mut out, number);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{Outcome, OutcomeBuffer, Turn, head};

    const TURN: Turn<'_> = Turn {
        prefix: b"$1\r\nX\r\n",
        prefix_count: 1,
        consumer: b"w.0.1",
        send: 1,
        first_seq: 2,
        want: 3,
        max_bytes: 4,
        flags: 1,
        adopts: vec![],
        held: vec![],
    };

    /// Id, entry, live value, head, record.
    type Row = [&'static [u8]; 5];

    const ROWS: [Row; 3] = [
        [b"a", b"9-1", b"r:a:", b"S50", b""],
        [b"b", b"10-2", b"r:b:w;", b"S57", b"rec"],
        [b"c", b"10-1", b"r:c:", b"S57", b""],
    ];

    fn push(buffer: &mut OutcomeBuffer, [id, entry, token, head, record]: Row) {
        let outcome = Outcome { id, token, entry, head };
        let pushed = buffer.push(outcome, record.len(), |out| {
            out.extend_from_slice(record);
            Ok::<(), ()>(())
        });
        assert_eq!(pushed, Ok(()));
    }

    fn buffer_of(rows: &[Row]) -> OutcomeBuffer {
        let mut buffer = OutcomeBuffer::default();
        rows.iter().for_each(|row| push(&mut buffer, *row));
        buffer
    }

    /// The last of the packed numbers, and the arguments behind them.
    fn packed(buffer: &OutcomeBuffer, turn: &Turn<'_>) -> (u8, Vec<String>) {
        let packed = String::from_utf8_lossy(&buffer.pack(turn)).into_owned();
        let arguments: Vec<&str> = packed.split("\r\n").skip(2).step_by(2).collect();
        assert!(packed.starts_with(&format!("*{}\r\n", arguments.len())), "{packed:?}");
        let shape = arguments[3].bytes().last().unwrap_or_default();
        (shape, arguments[4..].iter().map(|&text| text.to_owned()).collect())
    }

    #[test]
    fn a_head_is_letter_band_amount() {
        assert_eq!(head(b'S', 5, -1), b"S5-1");
        assert_eq!(head(b'R', 0, 1500), b"R01500");
    }

    #[test]
    fn plain_outcomes_go_with_their_entries() {
        let (shape, arguments) = packed(&buffer_of(&ROWS), &TURN);
        let expected = "S50|1|S57|2|r:a:\nr:b:w;\nr:c:|10-2|a|b|c|9-1|10-2|10-1||rec|";
        assert_eq!((shape, arguments.join("|").as_str()), (3, expected));
    }

    #[test]
    fn others_go_with_their_live_values() {
        let odd: [Row; 6] = [
            [b"d", b"1-1", b"r:d:h;", b"S50", b""],
            [b"d", b"1-1", b"r:d:c", b"S50", b""],
            [b"d", b"1-1", b"r:\n:", b"S50", b""],
            [b"d", b"1-1", b"r:d:", b"S40", b""],
            [b"d", b"1-1", b"r:d:", b"R50", b""],
            [b"d", b"1x1", b"r:d:", b"S50", b""],
        ];
        for row in odd {
            let mut buffer = buffer_of(&ROWS);
            push(&mut buffer, row);
            let (shape, arguments) = packed(&buffer, &TURN);
            let tokens = &arguments[2 * buffer.heads.len() + 4..][..4];
            assert_eq!((shape, tokens[3].as_bytes()), (1, row[2]));
        }
    }

    #[test]
    fn records_that_are_all_empty_are_left_out() {
        let mut buffer = OutcomeBuffer::default();
        assert_eq!(packed(&buffer, &TURN), (0, vec![]));
        push(&mut buffer, ROWS[0]);
        assert_eq!(
            packed(&buffer, &TURN),
            (2, ["S50", "1", "r:a:", "9-1", "a", "9-1"].map(str::to_owned).to_vec())
        );
    }

    #[test]
    fn a_failed_record_leaves_the_buffer_unchanged() {
        let mut buffer = buffer_of(&ROWS);
        let before = buffer.pack(&TURN);
        let outcome = Outcome {
            id: b"d",
            token: b"t",
            entry: b"1-1",
            head: b"h",
        };
        let failed = buffer.push(outcome, 9, |out| {
            out.push(b'x');
            Err(())
        });
        assert_eq!((failed, buffer.pack(&TURN)), (Err(()), before));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        for count in 0..3 {
            let mut buffer = buffer_of(&ROWS);
            buffer.forget(count);
            assert_eq!(buffer.pack(&TURN), buffer_of(&ROWS[count..]).pack(&TURN));
            let row: Row = [b"d", b"11-1", b"r:d:", b"S57", b"record"];
            push(&mut buffer, row);
            let mut expected = buffer_of(&ROWS[count..]);
            push(&mut expected, row);
            assert_eq!(buffer.pack(&TURN), expected.pack(&TURN));
        }
        let mut buffer = buffer_of(&ROWS);
        buffer.forget(9);
        assert!(buffer.is_empty() && !buffer.has_records() && buffer.heads.is_empty());
    }

    #[test]
    fn adopted_entries_and_held_claims_stand_last() {
        let turn = Turn {
            adopts: vec![(5, b"1-0", b"id")],
            held: vec![b"2"],
            ..TURN
        };
        let (_, arguments) = packed(&buffer_of(&ROWS), &turn);
        assert_eq!(arguments[arguments.len() - 4..], ["5", "1-0", "id", "2"]);
    }
}
