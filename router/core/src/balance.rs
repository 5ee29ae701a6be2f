//! Which peer a request without a home gets: total orders with one winner.

use serde::{Deserialize, Serialize};

/// How requests without a session, and sessions whose home cannot take them, are spread.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Balance {
    /// Smallest in-flight ÷ slots; ties are broken uniformly at random.
    #[default]
    LeastConn,
    /// The next peer in file order; peers at their own maximum are skipped while another has room.
    RoundRobin,
    /// Two distinct peers at random, the one with the smaller in-flight ÷ slots.
    PowerOfTwo,
}
