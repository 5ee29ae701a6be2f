//! The three layers of every switch, and the layer that supplied the value: runtime override, else
//! the route's option, else the global default (`defaults:` in the main file), else the built-in
//! default.

use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};

/// The layer that an effective value came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Source {
    /// A toggle or limit set on the running router.
    #[serde(rename = "runtime")]
    Runtime,
    /// The route's own file.
    #[serde(rename = "route")]
    Route,
    /// `defaults:` of the main file.
    #[serde(rename = "global")]
    Global,
    /// No layer set it.
    #[serde(rename = "default")]
    Default,
    /// A file has an unusable value, so the built-in default is in force.
    #[serde(rename = "default (invalid)")]
    DefaultInvalid,
}

impl Source {
    /// The text for every endpoint.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Runtime => "runtime",
            Self::Route => "route",
            Self::Global => "global",
            Self::Default => "default",
            Self::DefaultInvalid => "default (invalid)",
        }
    }
}

/// A value with the layer it came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Setting<T> {
    /// The value in force.
    pub value: T,
    /// The layer that supplied it.
    pub source: Source,
}

impl<T> Setting<T> {
    /// A built-in default.
    pub fn default_of(value: T) -> Self {
        Self {
            value,
            source: Source::Default,
        }
    }

    /// Applies an optional runtime override.
    pub fn under(self, runtime: Option<T>) -> Self {
        match runtime {
            Some(value) => Self {
                value,
                source: Source::Runtime,
            },
            None => self,
        }
    }
}

/// The value of an option in one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Layer<T> {
    /// The file does not set it.
    #[default]
    Unset,
    /// The file sets this value.
    Set(T),
    /// The file has an unusable value that must not take the route down.
    Invalid,
}

impl<T> From<Option<T>> for Layer<T> {
    fn from(value: Option<T>) -> Self {
        value.map_or(Self::Unset, Self::Set)
    }
}

/// An option's layers below the runtime override.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layered<T> {
    /// The route's own file.
    pub route: Layer<T>,
    /// `defaults:` of the main file.
    pub global: Layer<T>,
    /// The built-in default.
    pub default: T,
}

impl<T> Layered<T> {
    /// The value in force without an override. An unusable value does not fall through to the next
    /// file, because only the built-in default is predictable for the operator.
    pub fn resolve(self) -> Setting<T> {
        let (layer, source) = match self.route {
            Layer::Unset => (self.global, Source::Global),
            route => (route, Source::Route),
        };
        match layer {
            Layer::Set(value) => Setting { value, source },
            Layer::Invalid => Setting {
                value: self.default,
                source: Source::DefaultInvalid,
            },
            Layer::Unset => Setting::default_of(self.default),
        }
    }
}

/// The runtime layer of one option: set and reset on the running router. With a time to live it
/// expires by itself. Lost on restart, kept across a reload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Override<T> {
    held: Option<Held<T>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Held<T> {
    value: T,
    since: Instant,
    until: Option<Instant>,
}

impl<T> Default for Override<T> {
    fn default() -> Self {
        Self { held: None }
    }
}

impl<T: Clone> Override<T> {
    /// Puts `value` in force for `ttl`, or until it is reset.
    pub fn set(&mut self, value: T, ttl: Option<Duration>, now: Instant) {
        // A time beyond the range of the clock means for ever.
        self.held = Some(Held {
            value,
            since: now,
            until: ttl.and_then(|ttl| now.checked_add(ttl)),
        });
    }

    /// Removes the override.
    pub fn reset(&mut self) {
        self.held = None;
    }

    /// The value in force at `now`.
    pub fn get(&self, now: Instant) -> Option<T> {
        let held = self.held.as_ref()?;
        held.until
            .is_none_or(|until| now < until)
            .then(|| held.value.clone())
    }

    /// Time since it was set; `None` when there is none at `now`.
    pub fn age(&self, now: Instant) -> Option<Duration> {
        self.get(now)?;
        let held = self.held.as_ref()?;
        Some(now.saturating_duration_since(held.since))
    }

    /// Remaining lifetime; `None` when there is none at `now`, or it does not expire.
    pub fn left(&self, now: Instant) -> Option<Duration> {
        let held = self.held.as_ref()?;
        held.until
            .and_then(|until| until.checked_duration_since(now))
            .filter(|left| !left.is_zero())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::start;

    fn resolve(route: Layer<u32>, global: Layer<u32>) -> (u32, &'static str) {
        let setting = Layered {
            route,
            global,
            default: 1,
        }
        .resolve();
        (setting.value, setting.source.as_str())
    }

    #[test]
    fn the_nearest_layer_that_speaks_wins() {
        assert_eq!(resolve(Layer::Set(3), Layer::Set(2)), (3, "route"));
        assert_eq!(resolve(Layer::Unset, Layer::Set(2)), (2, "global"));
        assert_eq!(resolve(Layer::Unset, None.into()), (1, "default"));
        let set = Layered {
            route: Layer::Set(3),
            global: Layer::Unset,
            default: 1,
        }
        .resolve();
        assert_eq!(
            set.under(Some(4)),
            Setting {
                value: 4,
                source: Source::Runtime
            }
        );
        assert_eq!(set.under(None), set);
    }

    #[test]
    fn an_unusable_value_means_the_built_in_default_and_says_so() {
        assert_eq!(
            resolve(Layer::Invalid, Layer::Set(2)),
            (1, "default (invalid)")
        );
        assert_eq!(
            resolve(Layer::Unset, Layer::Invalid),
            (1, "default (invalid)")
        );
        assert_eq!(resolve(Layer::Set(3), Layer::Invalid), (3, "route"));
    }

    #[test]
    fn an_override_ends_with_its_time_or_its_reset() {
        let now = start();
        let second = Duration::from_secs(1);
        let mut limit = Override::default();
        assert_eq!(limit.get(now), None);
        limit.set(7, Some(second), now);
        assert_eq!((limit.get(now), limit.left(now)), (Some(7), Some(second)));
        assert_eq!(limit.age(now + second / 2), Some(second / 2));
        assert_eq!(limit.age(now + second), None);
        assert_eq!(
            (limit.get(now + second), limit.left(now + second)),
            (None, None)
        );
        limit.set(8, None, now);
        assert_eq!(
            (limit.get(now + second * 1_000_000), limit.left(now)),
            (Some(8), None)
        );
        limit.set(9, Some(Duration::MAX), now);
        assert_eq!(limit.get(now + second), Some(9));
        limit.reset();
        assert_eq!(limit.get(now), None);
    }
}
