//! The names of the load gates, and small sets of them.

use std::fmt;

use serde::de::{SeqAccess, Visitor};
use serde::ser::SerializeSeq;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::signal::Signal;

/// A load gate. The variants are in evaluation order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Gate {
    /// Compares in-flight with the pool's limit.
    Concurrency,
    /// Compares time to first token with its threshold.
    Ttft,
    /// Compares the decode rate with its threshold; only without adaptive concurrency.
    Tps,
}

impl Gate {
    /// All gates, in evaluation order.
    pub const ALL: [Self; 3] = [Self::Concurrency, Self::Ttft, Self::Tps];

    /// The name in labels, counters and endpoints.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Concurrency => "concurrency",
            Self::Ttft => "ttft",
            Self::Tps => "tps",
        }
    }
}

impl fmt::Display for Gate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl From<Signal> for Gate {
    fn from(signal: Signal) -> Self {
        match signal {
            Signal::Ttft => Self::Ttft,
            Signal::Tps => Self::Tps,
        }
    }
}

/// A set of gates. Serialized as a list of their names.
#[derive(Clone, Copy, Default, PartialEq, Eq)]
pub struct Gates(u8);

impl Gates {
    /// Adds a gate.
    pub fn insert(&mut self, gate: Gate) {
        self.0 |= 1 << gate as u8;
    }

    /// Whether the set contains the gate.
    pub fn contains(self, gate: Gate) -> bool {
        self.0 & (1 << gate as u8) != 0
    }

    /// Whether the set is empty.
    pub fn is_empty(&self) -> bool {
        self.0 == 0
    }

    /// The gates of the set, in evaluation order.
    pub fn iter(self) -> impl Iterator<Item = Gate> {
        Gate::ALL
            .into_iter()
            .filter(move |gate| self.contains(*gate))
    }
}

impl FromIterator<Gate> for Gates {
    fn from_iter<I: IntoIterator<Item = Gate>>(gates: I) -> Self {
        let mut set = Self::default();
        gates.into_iter().for_each(|gate| set.insert(gate));
        set
    }
}

impl fmt::Debug for Gates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_set().entries(self.iter()).finish()
    }
}

impl Serialize for Gates {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut list = serializer.serialize_seq(None)?;
        for gate in self.iter() {
            list.serialize_element(&gate)?;
        }
        list.end()
    }
}

impl<'de> Deserialize<'de> for Gates {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Names;

        impl<'de> Visitor<'de> for Names {
            type Value = Gates;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of gates")
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Gates, A::Error> {
                let mut gates = Gates::default();
                while let Some(gate) = list.next_element()? {
                    gates.insert(gate);
                }
                Ok(gates)
            }
        }

        deserializer.deserialize_seq(Names)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_set_keeps_the_order_in_which_gates_are_asked() {
        let set: Gates = [Gate::Tps, Gate::Concurrency, Gate::Tps]
            .into_iter()
            .collect();
        assert!(set.contains(Gate::Tps) && !set.contains(Gate::Ttft) && !set.is_empty());
        assert_eq!(
            set.iter().collect::<Vec<_>>(),
            [Gate::Concurrency, Gate::Tps]
        );
        assert_eq!(format!("{set:?}"), "{Concurrency, Tps}");
        assert!(Gates::default().is_empty());
    }
}
