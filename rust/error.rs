//! The one error of the core: what was refused, where, and the way out.

use std::fmt;

/// What a caller may want to tell apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorKind {
    /// The value or the bytes cannot be accepted.
    Invalid,
    /// It would be accepted if it were smaller.
    TooLarge,
}

impl ErrorKind {
    /// The word that Python sees.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Invalid => "invalid",
            Self::TooLarge => "too_large",
        }
    }
}

/// How large something refused is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Size {
    /// So many bytes.
    Exactly(usize),
    /// Counted so far, not to the end.
    MoreThan(usize),
}

impl fmt::Display for Size {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exactly(bytes) => write!(formatter, "{bytes} bytes"),
            Self::MoreThan(bytes) => write!(formatter, "more than {bytes} bytes"),
        }
    }
}

/// Refused input; displayed as `field: problem`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CoreError {
    /// What a caller may want to tell apart.
    pub kind: ErrorKind,
    /// A path such as `payload.items[3].price`, or the name of an argument or of a part of the bytes.
    pub field: String,
    /// What is wrong, and the way out.
    pub problem: String,
}

impl CoreError {
    /// An error of kind `Invalid`.
    pub fn invalid(field: impl Into<String>, problem: impl Into<String>) -> Self {
        Self {
            kind: ErrorKind::Invalid,
            field: field.into(),
            problem: problem.into(),
        }
    }

    /// An error of kind `TooLarge`, for JSON that outgrew its limit.
    pub fn too_large(field: impl Into<String>, max_bytes: usize, size: Size) -> Self {
        Self {
            kind: ErrorKind::TooLarge,
            field: field.into(),
            problem: format!(
                "larger than the limit of {max_bytes} bytes of compact JSON: {size}; store the data elsewhere and pass a \
                 reference"
            ),
        }
    }
}

impl fmt::Display for CoreError {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}: {}", self.field, self.problem)
    }
}

impl std::error::Error for CoreError {}
