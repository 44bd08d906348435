//! The Rust half of dtq: bytes and values in, bytes and values out.
//!
//! No sockets, threads, clocks or randomness, so that everything here may be used before and after a fork. The modules
//! are pure; only those under [`python`] (feature `python`) name PyO3 and turn these types into `dtq._core`, whose
//! documentation is `python/dtq/_core.pyi`. Only [`slots`] contains `unsafe`, and says why.

pub mod claim;
pub mod delivery;
pub mod envelope;
pub mod error;
pub mod ids;
pub mod json;
pub mod raw_json;
pub mod recent;
pub mod record;
pub mod resp;
pub mod schedule;
pub mod slots;
pub mod timings;
pub mod turn;
pub mod wire;

#[cfg(feature = "python")]
pub mod python;
