//! How long handlers took of late: of one task type, and of a whole child.

/// The type's moving mean, a quarter of it new each time; negative: never seen.
#[must_use]
pub fn of_type(recent_ns: i64, took_ns: i64) -> i64 {
    if recent_ns < 0 {
        took_ns
    } else {
        recent_ns.saturating_add(took_ns.saturating_sub(recent_ns) >> 2)
    }
}

/// The child's, which the next claim is sized by. A slow handler counts at once, quick ones slowly: claiming too much is
/// worse than claiming too little.
#[must_use]
pub fn of_child(average_ns: f64, took_ns: f64) -> f64 {
    let weight = if took_ns > average_ns { 0.5 } else { 0.05 };
    average_ns + weight * (took_ns - average_ns)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_of_a_type_is_its_mean() {
        assert_eq!(of_type(-1, 900), 900);
        assert_eq!(of_type(900, 100), 700);
        assert_eq!(of_type(100, 900), 300);
        assert_eq!(of_type(0, i64::MAX), i64::MAX >> 2);
    }

    #[test]
    fn a_slow_one_counts_at_once() {
        assert!((of_child(0.0, 1000.0) - 500.0).abs() < 1e-9);
        assert!((of_child(1000.0, 0.0) - 950.0).abs() < 1e-9);
    }
}
