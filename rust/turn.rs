//! Outcomes in wire form, as the turn script takes them.

use crate::resp::{put_array, put_bulk, put_bulk_length, put_integer};
use std::collections::VecDeque;

/// Outcomes of one child that no turn has taken yet, oldest first.
#[derive(Debug, Default)]
pub struct OutcomeBuffer {
    bytes: Vec<u8>,
    ends: Vec<usize>,
    /// Heads, each with how many outcomes in a row it stands for: most batches have one.
    heads: VecDeque<(Vec<u8>, usize)>,
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
    /// Entries that the child still holds.
    pub held: Vec<&'a [u8]>,
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
        self.ends.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// Bytes in wire form.
    #[must_use]
    pub fn byte_size(&self) -> usize {
        self.bytes.len()
    }

    /// Appends an outcome whose record `write_record` appends to the buffer; on an error nothing is appended.
    pub fn push<E>(
        &mut self,
        [id, token, head]: [&[u8]; 3],
        record_length: usize,
        write_record: impl FnOnce(&mut Vec<u8>) -> Result<(), E>,
    ) -> Result<(), E> {
        let start = self.bytes.len();
        self.bytes.reserve(id.len() + token.len() + record_length + 36);
        put_bulk(&mut self.bytes, id);
        put_bulk(&mut self.bytes, token);
        put_bulk_length(&mut self.bytes, record_length);
        if let Err(error) = write_record(&mut self.bytes) {
            self.bytes.truncate(start);
            return Err(error);
        }
        self.bytes.extend_from_slice(b"\r\n");
        self.ends.push(self.bytes.len());
        match self.heads.back_mut() {
            Some((last, count)) if last == head => *count += 1,
            _ => self.heads.push_back((head.to_vec(), 1)),
        }
        Ok(())
    }

    /// Forgets the oldest `count` outcomes.
    pub fn forget(&mut self, count: usize) {
        if count >= self.ends.len() {
            self.bytes.clear();
            self.ends.clear();
            self.heads.clear();
        } else if count > 0 {
            let start = self.ends[count - 1];
            self.bytes.drain(..start);
            self.ends.drain(..count);
            self.ends.iter_mut().for_each(|end| *end -= start);
            self.forget_heads(count);
        }
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

    /// The numbers of a turn in one argument: each as an argument of its own costs the script as much as half a command.
    fn numbers(&self, turn: &Turn<'_>) -> Vec<u8> {
        let mut out = turn.first_seq.to_le_bytes().to_vec();
        let counts = [self.len(), turn.adopts.len(), turn.held.len(), self.heads.len()];
        for number in [turn.want, turn.max_bytes]
            .into_iter()
            .chain(counts.map(|count| u64::try_from(count).unwrap_or(u64::MAX)))
        {
            out.extend_from_slice(&u32::try_from(number).unwrap_or(u32::MAX).to_le_bytes());
        }
        out.push(turn.flags);
        out
    }

    /// The whole command: prefix, fixed arguments, counts, heads, outcomes, adopts, held entries.
    #[must_use]
    pub fn pack(&self, turn: &Turn<'_>) -> Vec<u8> {
        let mut out = Vec::with_capacity(turn.prefix.len() + self.bytes.len() + 256 + 64 * turn.held.len());
        let count =
            turn.prefix_count + 3 + 2 * self.heads.len() + 3 * self.len() + 3 * turn.adopts.len() + turn.held.len();
        put_array(&mut out, count);
        out.extend_from_slice(turn.prefix);
        put_bulk(&mut out, turn.consumer);
        put_bulk(&mut out, format!("{:016}", turn.send).as_bytes());
        put_bulk(&mut out, &self.numbers(turn));
        for (head, stands_for) in &self.heads {
            put_bulk(&mut out, head);
            put_integer(&mut out, *stands_for);
        }
        out.extend_from_slice(&self.bytes);
        for (band, entry, id) in &turn.adopts {
            put_integer(&mut out, *band);
            put_bulk(&mut out, entry);
            put_bulk(&mut out, id);
        }
        for entry in &turn.held {
            put_bulk(&mut out, entry);
        }
        out
    }
}

#[cfg(test)]
mod tests {
    use super::{OutcomeBuffer, Turn, head};

    fn push(buffer: &mut OutcomeBuffer, id: &[u8]) -> Result<(), ()> {
        buffer.push([id, b"t", b"S50"], 1, |out| {
            out.push(b'r');
            Ok(())
        })
    }

    #[test]
    fn a_head_is_letter_band_amount() {
        assert_eq!(head(b'S', 5, -1), b"S5-1");
        assert_eq!(head(b'R', 0, 1500), b"R01500");
    }

    #[test]
    fn a_failed_record_leaves_the_buffer_unchanged() {
        let mut buffer = OutcomeBuffer::default();
        assert_eq!(push(&mut buffer, b"a"), Ok(()));
        let size = buffer.byte_size();
        let failed = buffer.push([b"b", b"t", b"h"], 9, |out| {
            out.push(b'x');
            Err(())
        });
        assert_eq!((failed, buffer.len(), buffer.byte_size()), (Err(()), 1, size));
    }

    #[test]
    fn the_oldest_are_forgotten() {
        let mut buffer = OutcomeBuffer::default();
        for id in [b"a", b"b", b"c"] {
            assert_eq!(push(&mut buffer, id), Ok(()));
        }
        buffer.forget(2);
        let mut expected = OutcomeBuffer::default();
        assert_eq!(push(&mut expected, b"c"), Ok(()));
        assert_eq!((&buffer.bytes, &buffer.ends), (&expected.bytes, &expected.ends));
        assert_eq!(buffer.heads, expected.heads);
        buffer.forget(9);
        assert!(buffer.is_empty() && buffer.byte_size() == 0 && buffer.heads.is_empty());
    }

    #[test]
    fn the_count_is_that_of_the_arguments() {
        let mut buffer = OutcomeBuffer::default();
        assert_eq!(push(&mut buffer, b"a"), Ok(()));
        let packed = buffer.pack(&Turn {
            prefix: b"$1\r\nX\r\n",
            prefix_count: 1,
            consumer: b"w.0.1",
            send: 1,
            first_seq: 2,
            want: 3,
            max_bytes: 4,
            flags: 1,
            adopts: vec![(5, b"1-0", b"id")],
            held: vec![b"2-0"],
        });
        let text = String::from_utf8_lossy(&packed);
        assert!(text.starts_with("*13\r\n$1\r\nX\r\n$5\r\nw.0.1\r\n"));
        assert_eq!(text.matches('$').count(), 13);
    }
}
