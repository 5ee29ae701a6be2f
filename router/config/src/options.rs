//! The option catalogue: every key of every file once, with its kind, its built-in default and its
//! meaning. The check reads values by it, and the JSON Schema and the reference in the docs are
//! generated from it.

mod adaptive;
#[cfg(test)]
mod annotated;
mod bodylog;
mod define;
mod effective;
mod health;
mod load;
mod peer;
mod priority;
mod reference;
mod route;
mod rules;
mod server;
mod signals;
mod value;

use std::ops::{Bound, RangeBounds};
use std::time::Duration;

pub use adaptive::AdaptiveOptions;
pub(crate) use adaptive::*;
pub use bodylog::BodylogOptions;
pub(crate) use bodylog::*;
pub use effective::{Effective, effective};
pub use health::HealthOptions;
pub(crate) use health::*;
pub use load::LoadOptions;
pub(crate) use load::*;
pub(crate) use peer::*;
pub use priority::PriorityOptions;
pub(crate) use priority::*;
pub use reference::markdown;
pub use route::RouteOptions;
pub(crate) use route::*;
pub(crate) use rules::*;
pub(crate) use server::*;
pub use signals::SignalOptions;
pub(crate) use signals::*;
use value::OptionValue;
pub use value::number;

pub use super::check::Choice;
use super::check::Reader;
use super::tree::Node;
use super::units::{show_duration, show_size};
use super::yaml;
pub(crate) use router_core::layered::Setting;

/// The catalogue entry of one key.
#[derive(Clone, Copy, Debug)]
pub struct Meta {
    /// The spelling in the file.
    pub key: &'static str,
    /// The heading in listings.
    pub group: &'static str,
    /// The allowed values.
    pub kind: Kind,
    /// The built-in default as written in a file. For keys without a default, the value that
    /// applies instead.
    pub default: &'static str,
    /// The meaning, one or two sentences of Markdown.
    pub doc: &'static str,
    /// The value must never be shown.
    pub secret: bool,
    /// An engine internal: settable, but not intended for operators.
    pub advanced: bool,
}

impl Meta {
    /// Whether the option belongs to a load gate. A gate has a safe reading without the option, so
    /// a wrong value does not take the route down.
    pub(crate) fn is_of_a_gate(&self) -> bool {
        matches!(self.group, "ttft" | "tps" | "adaptive" | "priority")
    }
}

impl Meta {
    /// Whether the default is a value, and not a remark about what applies instead.
    pub(crate) fn has_literal_default(&self) -> bool {
        self.default.starts_with(['[', '{'])
            || !(self.default.contains([' ', '`']) || matches!(self.default, "unset" | "required"))
    }
}

/// The allowed values of a key, with bounds.
#[derive(Clone, Copy, Debug)]
pub enum Kind {
    /// `true` or `false`.
    Bool,
    /// A whole number, bounds included.
    Whole {
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
    },
    /// A whole number with an optional sign, 64 bits.
    Integer,
    /// A number between two bounds.
    Number(Bounds),
    /// A number between two bounds, or `off`: the value is an `Option`.
    NumberOrOff(Bounds),
    /// A whole number, bounds included, or `off`: the value is an `Option`.
    WholeOrOff {
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
    },
    /// A whole number, bounds included, or `auto`.
    WholeOrAuto {
        /// Minimum.
        min: u32,
        /// Maximum.
        max: u32,
    },
    /// `250ms 2s 5m 1h` or bare seconds, bounds included.
    Duration {
        /// Minimum.
        min: Duration,
        /// Maximum.
        max: Duration,
        /// Whether `off` is allowed.
        off: bool,
    },
    /// `512k 10m 1g` or bare bytes, bounds included.
    Size {
        /// Minimum, bytes.
        min: u64,
        /// Maximum, bytes.
        max: u64,
    },
    /// One of a few words.
    Choice(fn() -> Vec<&'static str>),
    /// One of a few HTTP status codes.
    Status(&'static [u16]),
    /// Any text that is not blank.
    Text,
    /// A file system path.
    File,
    /// `ip:port`.
    Listen,
    /// A list of CIDRs.
    Cidrs,
    /// A list of names of routes.
    Routes,
    /// A list of origins of web pages.
    Origins,
    /// The name of a route.
    RouteName,
    /// A path that starts with `/`, with an optional query.
    UrlPath,
    /// A list of path prefixes.
    Prefixes,
    /// A list of places that may have session ids.
    SessionSources,
    /// Key → owner.
    ApiKeys,
    /// Asked-for model → served model.
    Aliases,
    /// Model → threshold.
    Thresholds(Bounds),
    /// A list of metrics with their thresholds, or `off`.
    Metrics,
    /// A list of priority buckets, or `off`.
    Buckets,
    /// The parts of `eject`, or `off`.
    Eject,
    /// The parts of `health_check`, or `off`.
    HealthCheck,
    /// `full`, `truncate(<size>)` or `none`.
    Bodies,
    /// A list of dotted paths into a JSON body.
    BodyPaths,
    /// A list of content rules.
    Rules,
    /// A list of conditions of a rule.
    Conditions,
    /// The value that a rule compares with.
    Literal,
    /// A credential.
    Secret,
    /// `host:port`.
    Address,
    /// An http or https URL.
    Url,
    /// An http or https URL with an optional query.
    PageUrl,
    /// A list of peers.
    Peers,
    /// Model → list of peers.
    PeersByModel,
    /// The source of a route's peers.
    PeersFrom,
    /// Owner of keys → limits.
    Owners,
    /// A mapping with its own keys.
    Section(fn() -> &'static [&'static Meta]),
}

/// The two bounds of a number.
#[derive(Clone, Copy, Debug)]
pub struct Bounds((Bound<f64>, Bound<f64>));

impl Bounds {
    /// Both bounds included.
    pub(crate) const fn within(min: f64, max: f64) -> Self {
        Self((Bound::Included(min), Bound::Included(max)))
    }

    /// Both bounds excluded.
    pub(crate) const fn between(low: f64, high: f64) -> Self {
        Self((Bound::Excluded(low), Bound::Excluded(high)))
    }

    /// Above `low` and at most `max`.
    pub(crate) const fn above(low: f64, max: f64) -> Self {
        Self((Bound::Excluded(low), Bound::Included(max)))
    }

    /// Whether a number lies between the bounds; false for NaN.
    pub fn contain(&self, number: f64) -> bool {
        self.0.contains(&number)
    }

    /// The two ends.
    pub fn ends(&self) -> (Bound<f64>, Bound<f64>) {
        self.0
    }

    /// The bounds, phrased to follow "expected".
    pub fn allowed(&self) -> String {
        match self.0 {
            (Bound::Included(low), Bound::Included(high)) => {
                format!("a number from {low} to {high}")
            }
            (low, high) => {
                let low = match low {
                    Bound::Included(low) => format!("of at least {low}"),
                    Bound::Excluded(low) => format!("above {low}"),
                    Bound::Unbounded => String::new(),
                };
                let high = match high {
                    Bound::Included(high) => format!(" and at most {high}"),
                    Bound::Excluded(high) => format!(" and below {high}"),
                    Bound::Unbounded => String::new(),
                };
                format!("a number {low}{high}")
            }
        }
    }
}

impl Kind {
    /// The allowed values, phrased to follow "expected".
    pub fn allowed(&self) -> String {
        match *self {
            Self::Bool => "`true` or `false`".to_owned(),
            Self::Whole { min, max } => format!("a whole number from {min} to {max}"),
            Self::Integer => "a whole number".to_owned(),
            Self::Number(bounds) => bounds.allowed(),
            Self::NumberOrOff(bounds) => format!("{}, or `off`", bounds.allowed()),
            Self::WholeOrAuto { min, max } => {
                format!("a whole number from {min} to {max}, or `auto`")
            }
            Self::WholeOrOff { min, max } => {
                format!("a whole number from {min} to {max}, or `off`")
            }
            Self::Duration { min, max, off } => {
                let off = if off { ", or `off`" } else { "" };
                format!(
                    "a duration such as `250ms`, `2s`, `5m`, `1h` or bare seconds, from {} to {}{off}",
                    show_duration(min),
                    show_duration(max)
                )
            }
            Self::Size { min, max } => format!(
                "a size such as `512k`, `10m`, `1g` or bare bytes, from {} to {}",
                show_size(min),
                show_size(max)
            ),
            Self::Choice(words) => one_of(&words()),
            Self::Status(codes) => one_of(&codes.iter().map(u16::to_string).collect::<Vec<_>>()),
            Self::Text => "a text that is not blank".to_owned(),
            Self::File => "a path".to_owned(),
            Self::Listen => "an address to listen on, `ip:port`".to_owned(),
            Self::Cidrs => "a list of CIDRs such as `[10.0.0.0/8]`".to_owned(),
            Self::Routes => "a list of route names such as `[other-route]`".to_owned(),
            Self::Origins => "a list of origins such as `[https://chat.example]`, or `[\"*\"]`".to_owned(),
            Self::RouteName => {
                "a route name: `a-z`, `0-9`, `.`, `_` and `-`, starting with a letter or digit"
                    .to_owned()
            }
            Self::UrlPath => "a path that starts with `/`".to_owned(),
            Self::Prefixes => "a list of paths such as `[/tokenize]`".to_owned(),
            Self::SessionSources => {
                "a list such as `[\"header:x-session-id\", \"body:user\"]`, or `default`, `openresty`, `vllm-router` or `litellm`".to_owned()
            }
            Self::ApiKeys => "a mapping `key: owner`, or `shared`".to_owned(),
            Self::Aliases => "a mapping from model to model such as `{gpt-4o: qwen3-32b}`".to_owned(),
            Self::Thresholds(bounds) => {
                format!("a mapping from model to {}", bounds.allowed())
            }
            Self::Metrics => {
                "a list such as `[{metric: p95, q: .95, threshold: 3000}]`, or `off`".to_owned()
            }
            Self::Buckets => {
                "a list such as `[{min_turn: 1, share: .85, tol: 1}]`, or `off`".to_owned()
            }
            Self::Eject => {
                "a mapping such as `{consecutive: 5, share: .5, minimum: 10}`, or `off`".to_owned()
            }
            Self::HealthCheck => "a mapping such as `{kind: generate, idle: 60s}`, or `off`".to_owned(),
            Self::Bodies => {
                "`full`, `none` or `truncate(<size>)` such as `truncate(64k)`".to_owned()
            }
            Self::BodyPaths => "a list of paths such as `[messages.*.content]`".to_owned(),
            Self::Rules => "a list of rules".to_owned(),
            Self::Conditions => "a list of conditions".to_owned(),
            Self::Literal => "a text, a number, a boolean or a list of them".to_owned(),
            Self::Secret => "a text that is not blank".to_owned(),
            Self::Address => "`host:port`, an IPv6 host in brackets".to_owned(),
            Self::PageUrl => "an `http://` or `https://` URL".to_owned(),
            Self::Url => "an `http://` or `https://` URL".to_owned(),
            Self::Peers => "a list of peers".to_owned(),
            Self::PeersByModel => "a mapping from model to a list of peers".to_owned(),
            Self::Owners => "a mapping from an owner's name to `{max_concurrency, requests_per_minute}`".to_owned(),
            Self::PeersFrom => "`{file: PATH}` or `{dns: {name: NAME, port: PORT}}`".to_owned(),
            Self::Section(_) => "a mapping".to_owned(),
        }
    }
}

/// Where a misplaced key belongs.
pub(crate) fn home(key: &str) -> Option<String> {
    let is_in = |keys: &[&Meta]| keys.iter().any(|meta| meta.key == key);
    if is_in(&DEFAULTABLE) {
        Some(format!(
            "`{key}` is a route option: it stands in a route file or under `defaults:`"
        ))
    } else if is_in(&ROUTE) {
        Some(format!("`{key}` stands in a route file alone"))
    } else if let Kind::Section(keys) = SERVER.kind
        && is_in(keys())
    {
        Some(format!("`{key}` stands under `server:` in the main file"))
    } else {
        None
    }
}

fn one_of<T: AsRef<str>>(words: &[T]) -> String {
    let quoted: Vec<_> = words
        .iter()
        .map(|word| format!("`{}`", word.as_ref()))
        .collect();
    match quoted.as_slice() {
        [] => "nothing".to_owned(),
        [only] => only.clone(),
        [first @ .., last] => format!("{} or {last}", first.join(", ")),
    }
}

/// Reads a value as a `T` and reports its problems.
type Read<T> = fn(&mut Reader, &Node, &Meta) -> Option<T>;

/// A key of the catalogue with the reader of its type.
pub(crate) struct OptionDef<T> {
    /// The catalogue entry.
    pub(crate) meta: Meta,
    read: Read<T>,
    /// A placeholder for a default that comes from elsewhere.
    inherits: Option<fn() -> T>,
}

impl<T> OptionDef<T> {
    const fn new(group: &'static str, key: &'static str, kind: Kind, read: Read<T>) -> Self {
        Self {
            meta: Meta {
                key,
                group,
                kind,
                default: "",
                doc: "",
                secret: false,
                advanced: false,
            },
            read,
            inherits: None,
        }
    }

    /// Sets the heading.
    const fn group(mut self, group: &'static str) -> Self {
        self.meta.group = group;
        self
    }

    /// Sets a meaning that is written elsewhere, instead of the comment above the option.
    const fn says(mut self, doc: &'static str) -> Self {
        self.meta.doc = doc;
        self
    }

    /// Sets the comment above the option as its meaning, unless [`says`](Self::says) gave another.
    const fn comment(self, comment: &'static str) -> Self {
        if self.meta.doc.is_empty() {
            self.says(comment)
        } else {
            self
        }
    }

    /// Replaces the reader of the type.
    const fn read_by(mut self, read: Read<T>) -> Self {
        self.read = read;
        self
    }

    /// Sets the built-in default, spelled as in the file.
    const fn default(mut self, default: &'static str) -> Self {
        self.meta.default = default;
        self
    }

    /// Sets the meaning.
    const fn doc(mut self, doc: &'static str) -> Self {
        self.meta.doc = doc;
        self
    }

    /// Marks the value as secret: it must never be shown.
    const fn secret(mut self) -> Self {
        self.meta.secret = true;
        self
    }

    /// Marks the option as an engine internal.
    const fn advanced(mut self) -> Self {
        self.meta.advanced = true;
        self
    }

    /// Reads a value of this key.
    pub(crate) fn read(&self, reader: &mut Reader, node: &Node) -> Option<T> {
        (self.read)(reader, node, &self.meta)
    }

    /// The built-in default. `None` for a key without one.
    pub(crate) fn builtin(&self) -> Option<T> {
        if let Some(placeholder) = self.inherits {
            return Some(placeholder());
        }
        let node = yaml::parse(self.meta.default).ok()?;
        self.read(&mut Reader::new(), &node)
    }
}

impl<T: Default> OptionDef<T> {
    /// The default comes from elsewhere, as `words` describe; `check::inherit` inserts it.
    const fn inherits(mut self, words: &'static str) -> Self {
        self.meta.default = words;
        self.inherits = Some(T::default);
        self
    }
}

/// An option of a route whose value is read by its type.
const fn option<T: OptionValue>(key: &'static str, kind: Kind) -> OptionDef<T> {
    OptionDef::new("", key, kind, T::read)
}

/// An option of a route that is on or off.
const fn switch(key: &'static str) -> OptionDef<bool> {
    option(key, Kind::Bool)
}

/// An option of a route with a few words as values.
const fn choice<T: Choice + PartialEq>(key: &'static str) -> OptionDef<T> {
    option(key, Kind::Choice(T::words))
}

/// Bounds of most durations: values that a timer can hold and that make sense to a person.
const fn within(min_ms: u64, max_hours: u64) -> Kind {
    Kind::Duration {
        min: Duration::from_millis(min_ms),
        max: Duration::from_secs(max_hours * 3600),
        off: false,
    }
}
