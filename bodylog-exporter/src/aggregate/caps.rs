//! How many values a label may have. Values that clients invent must not grow memory or the page.

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::labels::{NO_BACKEND, OTHER, UNKNOWN};

/// A capped label.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Label {
    /// `route` (and `service` where it repeats it).
    Route,
    /// `service`, from the cluster.
    Service,
    /// `backend`.
    Backend,
    /// `model`.
    Model,
    /// `finish_reason`.
    FinishReason,
    /// `tenant`.
    Tenant,
    /// `reason` of a refusal.
    Reason,
    /// Combinations of route, backend and model.
    Series,
}

impl Label {
    /// Its name, as the label of the counter of capped rows.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Route => "route",
            Self::Service => "service",
            Self::Backend => "backend",
            Self::Model => "model",
            Self::FinishReason => "finish_reason",
            Self::Tenant => "tenant",
            Self::Reason => "reason",
            Self::Series => "series",
        }
    }

    /// Every one.
    pub const ALL: [Self; 8] = [
        Self::Route,
        Self::Service,
        Self::Backend,
        Self::Model,
        Self::FinishReason,
        Self::Tenant,
        Self::Reason,
        Self::Series,
    ];

    /// Most values, without the stand-ins `unknown`, `(none)` and `other`.
    pub fn values_max(self) -> usize {
        match self {
            Self::Route | Self::Service | Self::Backend => 512,
            Self::Model => 64,
            Self::FinishReason => 16,
            Self::Tenant => 200,
            Self::Reason => 32,
            Self::Series => 4096,
        }
    }
}

/// The values that labels have, and how many rows were turned away.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Caps {
    values: BTreeMap<Label, BTreeSet<Box<str>>>,
    capped: BTreeMap<Label, u64>,
}

impl Caps {
    /// Returns the value if there is a place for it, else `other`, which is counted.
    pub fn admit<'a>(&mut self, label: Label, value: &'a str) -> &'a str {
        if matches!(value, UNKNOWN | NO_BACKEND | OTHER) {
            return value;
        }
        let known = self.values.entry(label).or_default();
        if known.contains(value) {
            return value;
        }
        if known.len() < label.values_max() {
            known.insert(value.into());
            return value;
        }
        self.count(label);
        OTHER
    }

    /// Counts a row whose value had no place.
    pub fn count(&mut self, label: Label) {
        *self.capped.entry(label).or_default() += 1;
    }

    /// Rows that had to share `other`.
    pub fn capped(&self, label: Label) -> u64 {
        self.capped.get(&label).copied().unwrap_or(0)
    }

    /// Frees the places of values that no series has any more.
    pub fn keep(&mut self, label: Label, in_use: BTreeSet<Box<str>>) {
        self.values.insert(label, in_use);
    }
}

/// How long volumes are summed before places are given anew.
const TENANT_WINDOW: Duration = Duration::from_secs(3600);

/// Tenants whose volume is watched: enough to find the largest two hundred.
const CANDIDATES_MAX: usize = 4096;

/// The tenants that have their own series: first come first served, then the largest of each hour.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Tenants {
    with_series: BTreeSet<Box<str>>,
    /// Requests since `since_ms`.
    volumes: HashMap<Box<str>, u64>,
    since_ms: i64,
}

impl Tenants {
    /// The tenant, or `other` if it has no series.
    pub fn admit<'a>(&mut self, tenant: &'a str) -> Cow<'a, str> {
        if let Some(volume) = self.volumes.get_mut(tenant) {
            *volume += 1;
        } else if self.volumes.len() < CANDIDATES_MAX {
            self.volumes.insert(tenant.into(), 1);
        }
        if self.with_series.contains(tenant) {
            return tenant.into();
        }
        if self.with_series.len() < Label::Tenant.values_max() {
            self.with_series.insert(tenant.into());
            return tenant.into();
        }
        OTHER.into()
    }

    /// Once an hour, gives the places to the largest tenants of that hour. A tenant without a place
    /// must be twice as large as one that has it; otherwise two of the same size would take turns.
    /// Counts under `other` stay there: a counter never moves between series.
    ///
    /// Returns the tenants that lost their place.
    pub fn turn(&mut self, now_ms: i64) -> BTreeSet<Box<str>> {
        let age = now_ms.saturating_sub(self.since_ms);
        if (0..TENANT_WINDOW.as_millis() as i64).contains(&age) {
            return BTreeSet::new();
        }
        self.since_ms = now_ms;
        let volumes = std::mem::take(&mut self.volumes);
        if self.with_series.len() < Label::Tenant.values_max() {
            return BTreeSet::new();
        }
        let weight = |tenant: &str| {
            let volume = volumes.get(tenant).copied().unwrap_or(0);
            let factor = if self.with_series.contains(tenant) {
                2
            } else {
                1
            };
            volume * factor
        };
        let mut ranked: Vec<Box<str>> = volumes.keys().cloned().collect();
        ranked.extend(
            self.with_series
                .iter()
                .filter(|tenant| !volumes.contains_key(*tenant))
                .cloned(),
        );
        ranked.sort_by(|a, b| weight(b).cmp(&weight(a)).then_with(|| a.cmp(b)));
        ranked.truncate(Label::Tenant.values_max());
        let chosen: BTreeSet<_> = ranked.into_iter().collect();
        let lost = self.with_series.difference(&chosen).cloned().collect();
        self.with_series = chosen;
        lost
    }

    /// Frees the places of tenants that have no series any more.
    pub fn keep(&mut self, in_use: &BTreeSet<Box<str>>) {
        self.with_series.retain(|tenant| in_use.contains(tenant));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_beyond_the_cap_share_other_and_are_counted() {
        let mut caps = Caps::default();
        for i in 0..16 {
            let value = format!("reason-{i}");
            assert_eq!(caps.admit(Label::FinishReason, &value), value);
        }
        assert_eq!(caps.admit(Label::FinishReason, "one more"), OTHER);
        assert_eq!(caps.admit(Label::FinishReason, "reason-3"), "reason-3");
        assert_eq!(caps.admit(Label::FinishReason, UNKNOWN), UNKNOWN);
        assert_eq!(caps.capped(Label::FinishReason), 1);
        assert_eq!(caps.capped(Label::Model), 0);
    }

    #[test]
    fn a_value_that_is_gone_frees_its_place() {
        let mut caps = Caps::default();
        for i in 0..16 {
            caps.admit(Label::FinishReason, &i.to_string());
        }
        caps.keep(Label::FinishReason, ["0".into()].into());
        assert_eq!(caps.admit(Label::FinishReason, "new"), "new");
    }

    fn request(tenants: &mut Tenants, tenant: &str, times: usize) -> String {
        let mut admitted = String::new();
        for _ in 0..times {
            admitted = tenants.admit(tenant).into_owned();
        }
        admitted
    }

    #[test]
    fn the_largest_tenants_of_an_hour_have_the_places_of_the_next() {
        let hour = TENANT_WINDOW.as_millis() as i64;
        let mut tenants = Tenants::default();
        for i in 0..200 {
            assert_ne!(request(&mut tenants, &format!("small-{i:03}"), 5), OTHER);
        }
        assert_eq!(request(&mut tenants, "large", 50), OTHER);
        assert_eq!(request(&mut tenants, "not twice as large", 9), OTHER);
        assert!(tenants.turn(1).is_empty(), "the hour is not over");
        let lost = tenants.turn(hour);
        assert_eq!(lost, ["small-199".into()].into());
        assert_eq!(request(&mut tenants, "large", 1), "large");
        assert_eq!(request(&mut tenants, "small-199", 1), OTHER);
        assert_eq!(request(&mut tenants, "not twice as large", 1), OTHER);
    }

    #[test]
    fn with_room_nobody_loses_a_place() {
        let mut tenants = Tenants::default();
        request(&mut tenants, "a", 1);
        assert!(tenants.turn(i64::MAX).is_empty());
        assert_eq!(request(&mut tenants, "a", 1), "a");
    }
}
