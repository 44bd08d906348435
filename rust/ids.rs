//! Task ids: a UUIDv7 as 22 characters of base62, which sort by time as the UUIDs do.

/// Characters of an id.
pub const ID_LENGTH: usize = 22;
/// Random bytes that go into an id (6 of their 80 bits are not used).
pub const RANDOM_LENGTH: usize = 10;
/// Largest time that fits.
pub const MAX_MS: u64 = (1 << 48) - 1;

const DIGITS: &[u8; 62] = b"0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz";
/// 62 ** 11: an id is two halves of eleven digits (the upper one is small enough for a u64).
const HALF: u128 = 62_u128.pow(11);

/// The id for a time (milliseconds since 1970, cut to 48 bits) and random bytes.
#[must_use]
pub fn new_id(now_ms: u64, random: [u8; RANDOM_LENGTH]) -> [u8; ID_LENGTH] {
    let [a, b, rest @ ..] = random;
    let time_and_version = ((now_ms & MAX_MS) << 16) | 0x7000 | u64::from(u16::from_be_bytes([a, b]) & 0x0fff);
    let variant_and_random = (u64::from_be_bytes(rest) & (u64::MAX >> 2)) | (1 << 63);
    encode((u128::from(time_and_version) << 64) | u128::from(variant_and_random))
}

fn encode(value: u128) -> [u8; ID_LENGTH] {
    let mut text = [0; ID_LENGTH];
    let (upper, lower) = text.split_at_mut(ID_LENGTH / 2);
    for (half, mut rest) in [(upper, value / HALF), (lower, value % HALF)] {
        // The lower half needs 66 bits: one digit is taken before the rest fits a u64.
        let mut places = half.iter_mut().rev();
        if let Some(place) = places.next() {
            *place = DIGITS[(rest % 62) as usize];
            rest /= 62;
        }
        let mut rest = rest as u64;
        for place in places {
            *place = DIGITS[(rest % 62) as usize];
            rest /= 62;
        }
    }
    text
}

/// The digit that a byte stands for; above 63 where it is none.
const DIGIT_OF: [u8; 256] = {
    let mut table = [u8::MAX; 256];
    let mut digit = 0;
    while digit < DIGITS.len() {
        table[DIGITS[digit] as usize] = digit as u8;
        digit += 1;
    }
    table
};

/// Eleven digits as a number; None if one of them is none.
fn half(digits: &[u8]) -> Option<u128> {
    let (mut value, mut seen) = (0_u64, 0_u8);
    let (last, first) = digits.split_last()?;
    for byte in first {
        let digit = DIGIT_OF[usize::from(*byte)];
        seen |= digit;
        value = value * 62 + u64::from(digit); // ten of them fit, also of those that are none
    }
    let digit = DIGIT_OF[usize::from(*last)];
    ((seen | digit) < 64).then(|| u128::from(value) * 62 + u128::from(digit))
}

/// When an id was made; None if it is not one of ours.
#[must_use]
pub fn time_ms(id: &[u8]) -> Option<u64> {
    if id.len() != ID_LENGTH {
        return None;
    }
    let (upper, lower) = id.split_at(ID_LENGTH / 2);
    let value = half(upper)?.checked_mul(HALF)?.checked_add(half(lower)?)?;
    let is_ours = (value >> 76) & 0xf == 7 && (value >> 62) & 0b11 == 0b10;
    is_ours.then_some((value >> 80) as u64)
}

#[cfg(test)]
mod tests {
    use super::{ID_LENGTH, MAX_MS, encode, new_id, time_ms};

    #[test]
    fn the_time_comes_back() {
        for ms in [0, 1, 1_700_000_000_000, MAX_MS] {
            for random in [[0; 10], [255; 10], [7, 1, 9, 200, 4, 3, 2, 99, 1, 0]] {
                assert_eq!(time_ms(&new_id(ms, random)), Some(ms));
            }
        }
    }

    #[test]
    fn ids_sort_by_time() {
        assert!(new_id(1_700_000_000_000, [255; 10]) < new_id(1_700_000_000_001, [0; 10]));
    }

    #[test]
    fn digits_are_those_of_the_number() {
        assert_eq!(&encode(0), b"0000000000000000000000");
        assert_eq!(&encode(62), b"0000000000000000000010");
        assert_eq!(&encode(u128::MAX), b"7n42DGM5Tflk9n8mt7Fhc7");
    }

    #[test]
    fn other_ids_have_no_time() {
        for other in [
            &b""[..],
            b"short",
            &[b'z'; ID_LENGTH],
            &[b'0'; ID_LENGTH],
            &[0xff; ID_LENGTH],
            &[b'-'; 22],
            b"02usyDNX9I-QbdIeUhiZj7",
            b"02usyDNX9I7QbdIeUhiZj-",
            b"-2usyDNX9I7QbdIeUhiZj7",
        ] {
            assert_eq!(time_ms(other), None);
        }
    }
}
