//! The classic bucket edges, at most nineteen. They are frozen: another set would be another
//! series.

/// The edges of a family.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edges {
    /// Whole requests and times to the first token, seconds.
    Seconds,
    /// Tokens per second.
    Rate,
    /// Seconds per output token.
    PerToken,
    /// The router's own share of a request, seconds.
    Overhead,
    /// Tokens of a prompt or an answer.
    Tokens,
}

const SECONDS: &[f64] = &[
    0.1, 0.25, 0.5, 1.0, 1.5, 2.0, 3.0, 5.0, 8.0, 12.0, 20.0, 30.0, 50.0, 80.0, 120.0, 300.0,
    600.0, 1800.0,
];

const RATE: &[f64] = &[
    1.0, 2.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 75.0, 100.0, 150.0, 200.0, 300.0,
    500.0,
];

/// An engine that streams 200 to 10 tokens per second lies in the middle.
const PER_TOKEN: &[f64] = &[
    0.002, 0.005, 0.01, 0.015, 0.02, 0.03, 0.04, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.5, 1.0, 2.5,
];

/// From no waiting to a full queue.
const OVERHEAD: &[f64] = &[
    0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
];

/// Powers of two, like context windows.
const TOKENS: &[f64] = &[
    16.0,
    64.0,
    128.0,
    256.0,
    512.0,
    1024.0,
    2048.0,
    4096.0,
    8192.0,
    16384.0,
    32768.0,
    65536.0,
    131_072.0,
    262_144.0,
    524_288.0,
    1_048_576.0,
];

impl Edges {
    /// Upper edges, ascending, inclusive; larger values go to `+Inf`.
    pub fn bounds(self) -> &'static [f64] {
        match self {
            Self::Seconds => SECONDS,
            Self::Rate => RATE,
            Self::PerToken => PER_TOKEN,
            Self::Overhead => OVERHEAD,
            Self::Tokens => TOKENS,
        }
    }
}
