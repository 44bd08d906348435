//! Runs every case once, for callgrind to count; fails where one does not come to its number.

mod cases;

use cases::{CASES, Inputs};
use std::process::ExitCode;

fn main() -> ExitCode {
    let inputs = match Inputs::new() {
        Ok(inputs) => inputs,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::FAILURE;
        }
    };
    let mut code = ExitCode::SUCCESS;
    for case in &CASES {
        let came_to = (case.run)(&inputs);
        if came_to != Ok(case.expected) {
            eprintln!("{} came to {came_to:?}, expected {}", case.name, case.expected);
            code = ExitCode::FAILURE;
        }
    }
    code
}
