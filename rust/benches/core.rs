//! `cargo bench`: how long the pure modules take for a batch of tasks. Each case is checked before it is timed.

mod cases;

use cases::{BATCH, CASES, Case, Inputs};
use divan::counter::ItemsCount;
use divan::{Bencher, black_box};

fn main() {
    divan::main();
}

impl std::fmt::Display for Case {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str(self.name)
    }
}

#[divan::bench(args = &CASES)]
fn batch(bencher: Bencher<'_, '_>, case: &Case) {
    let inputs = Inputs::new();
    let Ok(inputs) = inputs else {
        assert!(inputs.is_ok(), "the inputs could not be made");
        return;
    };
    assert_eq!((case.run)(&inputs), Ok(case.expected), "{}", case.name);
    bencher
        .counter(ItemsCount::new(BATCH))
        .bench_local(|| (case.run)(black_box(&inputs)));
}
