//! Counts rows. Pure: lines and times go in, and [`State::view`] returns what is shown.
//!
//! [`State`] is everything that must survive a restart besides the reading position: the counts of
//! every series, what was counted before, and the exporter's own counters. An epoch changes it in
//! place; readers only see the [`View`] taken when the epoch was committed. Taking a view is cheap,
//! because unchanged series are shared.

pub mod caps;
pub mod dedupe;
pub mod labels;
mod own;
pub mod places;
mod rejects;
pub mod series;
mod tenants;
#[cfg(test)]
mod tests;
mod view;

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use proto::row::DetailRow;
use serde::{Deserialize, Serialize};

use self::caps::{Caps, Label, Tenants};
use self::dedupe::{Dedupe, RowKey};
use self::labels::{NO_BACKEND, OTHER, UNKNOWN};
pub use self::own::{BadLine, Own, Reset};
use self::places::{Found, Places, Reading};
pub use self::rejects::{RefusalReading, Refusals, RejectKey, Rejected, reason as refusal_reason};
use self::series::{Series, SeriesLabels, finish_reason};
pub use self::tenants::{TENANT_TOKEN_KINDS, TenantLabels, TenantSeries};
pub use self::view::View;

/// A series is retired when its backend had no row for this long: backends come and go with
/// deployments.
const BACKEND_IDLE: Duration = Duration::from_secs(3600);

/// The same for every other series.
const OTHER_IDLE: Duration = Duration::from_secs(24 * 3600);

/// How long after the last row a scrape counts as having seen it: longer than any epoch.
const SEEN_AFTER: Duration = Duration::from_secs(60);

/// Interval between two searches for idle series.
const RETIRE_EVERY: Duration = Duration::from_secs(60);

/// Separates the parts of a key. Label values hold no control characters.
const SEPARATOR: char = '\u{1f}';

/// Everything that was counted.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct State {
    /// By route, backend and model.
    #[serde(with = "as_list")]
    series: HashMap<Box<str>, Arc<Series>>,
    /// By route and tenant.
    #[serde(with = "as_list")]
    tenants: HashMap<Box<str>, Arc<TenantSeries>>,
    tenant_places: Tenants,
    #[serde(with = "as_list")]
    rejects: HashMap<Box<str>, Arc<Rejected>>,
    refusals: Refusals,
    caps: Caps,
    dedupe: Dedupe,
    own: Own,
    retired_ms: i64,
    #[serde(default, skip_serializing_if = "Places::is_empty")]
    places: Places,
    /// End of the last row as written there; parsed once an epoch instead of once a row.
    #[serde(skip)]
    last_end: LastEnd,
    /// Reused for the keys of rows.
    #[serde(skip)]
    key: String,
}

/// When the newest row ended, unparsed.
#[derive(Clone, Debug, Default, PartialEq)]
struct LastEnd {
    text: String,
    plus_s: f64,
}

impl State {
    /// Counts a line of a detail file.
    ///
    /// # Errors
    pub fn line(&mut self, line: &[u8], now_ms: i64) -> Result<(), BadLine> {
        self.own.lines += 1;
        // The reader of structs would take a list for one, too.
        if !line.trim_ascii_start().starts_with(b"{") {
            return Err(self.bad(BadLine::Json));
        }
        // Checked once for the line instead of once for each of its strings.
        let Ok(text) = std::str::from_utf8(line) else {
            return Err(self.bad(BadLine::Json));
        };
        let row = match serde_json::from_str::<DetailRow<'_>>(text) {
            Ok(row) if row.is_readable() => row,
            Ok(_) => return Err(self.bad(BadLine::Version)),
            Err(_) => return Err(self.bad(BadLine::Json)),
        };
        if let Some(key) = RowKey::of(&row)
            && !self.dedupe.is_new(key, now_ms)
        {
            self.own.duplicates += 1;
            return Ok(());
        }
        self.row(&row, now_ms);
        Ok(())
    }

    /// Counts a line that could not be parsed at all.
    pub fn bad_line(&mut self, kind: BadLine) {
        self.own.lines += 1;
        self.bad(kind);
    }

    fn bad(&mut self, kind: BadLine) -> BadLine {
        *self.own.bad_lines.entry(kind).or_default() += 1;
        kind
    }

    /// The exporter's own counters, for events around reading.
    pub fn own_mut(&mut self) -> &mut Own {
        &mut self.own
    }

    /// Takes the refusals that a router counted.
    pub fn refusals_mut(&mut self) -> &mut Refusals {
        &mut self.refusals
    }

    /// Takes what the cluster reports about its pods; nothing without a cluster. Returns whether
    /// anything changed.
    pub fn places(&mut self, reading: Option<&Reading>, now_ms: i64) -> bool {
        match reading {
            Some(reading) => self.places.read(reading, now_ms),
            None => self.places.expire(now_ms),
        }
    }

    /// Forgets every pod, because no cluster is asked any more. Returns whether there was one.
    pub fn no_places(&mut self) -> bool {
        let had_any = !self.places.is_empty();
        self.places = Places::default();
        had_any
    }

    fn row(&mut self, row: &DetailRow<'_>, now_ms: i64) {
        let (text, plus_s) = if row.ts_end.is_empty() {
            (&row.ts, row.rt)
        } else {
            (&row.ts_end, 0.0)
        };
        self.last_end.text.clear();
        self.last_end.text.push_str(text);
        self.last_end.plus_s = plus_s;

        let finish = finish_reason(row).map(labels::clean);
        let finish = finish
            .as_deref()
            .map(|reason| self.caps.admit(Label::FinishReason, reason));
        let found = self.places.find(&row.backend, &row.route);
        let whose = Whose::of(row, &found);
        let series = find(
            &mut self.series,
            &mut self.caps,
            &mut self.key,
            row,
            &whose,
            now_ms,
        );
        Arc::make_mut(series).observe(row, finish, now_ms);
        if !row.tenant.is_empty() {
            self.tenant(row, &whose, now_ms);
        }
        if let Some(reason) = rejects::reason(row) {
            self.reject(row, &whose, reason, now_ms);
        }
    }

    fn tenant(&mut self, row: &DetailRow<'_>, whose: &Whose<'_>, now_ms: i64) {
        let tenant = labels::clean(&row.tenant);
        let place = self.tenant_places.admit(&tenant);
        if place == OTHER {
            self.caps.count(Label::Tenant);
        }
        let route = self.caps.admit(Label::Route, &whose.route);
        let service = whose
            .service
            .map(|service| self.caps.admit(Label::Service, service));
        write_key(&mut self.key, &[route, &place]);
        write_more(&mut self.key, service);
        if !self.tenants.contains_key(self.key.as_str()) {
            if self.tenants.len() >= Label::Series.values_max() {
                self.caps.count(Label::Series);
                return;
            }
            let labels = TenantLabels {
                route: route.into(),
                service: service.map(Into::into),
                tenant: place.into(),
            };
            let series = TenantSeries::new(labels, now_ms);
            self.tenants.insert(series.key(), Arc::new(series));
        }
        let series = self
            .tenants
            .get_mut(self.key.as_str())
            .expect("present, or inserted above");
        Arc::make_mut(series).observe(row, now_ms);
    }

    fn reject(&mut self, row: &DetailRow<'_>, whose: &Whose<'_>, reason: &str, now_ms: i64) {
        let reason = labels::clean(reason);
        let key = RejectKey {
            route: self.caps.admit(Label::Route, &whose.route).into(),
            status: row.status,
            reason: self.caps.admit(Label::Reason, &reason).into(),
        };
        let text = key.text();
        if self.rejects.len() >= Label::Series.values_max() && !self.rejects.contains_key(&text) {
            self.caps.count(Label::Series);
            return;
        }
        let rejected = self
            .rejects
            .entry(text)
            .or_insert_with(|| Arc::new(Rejected::new(key, now_ms)));
        let rejected = Arc::make_mut(rejected);
        rejected.count += 1;
        rejected.used_ms = now_ms;
    }

    /// Ends an epoch: remembers the newest row, and from time to time retires series that were idle
    /// and have been scraped since. `scraped_ms` is the time of the last scrape.
    pub fn settle(&mut self, now_ms: i64, scraped_ms: Option<i64>) {
        self.last_end.settle(&mut self.own);
        for tenant in self.tenant_places.turn(now_ms) {
            self.tenants
                .retain(|_, series| series.labels.tenant != tenant);
        }
        let since = now_ms.saturating_sub(self.retired_ms);
        if (0..ms(RETIRE_EVERY)).contains(&since) {
            return;
        }
        self.retired_ms = now_ms;
        if let Some(scraped_ms) = scraped_ms {
            self.retire(now_ms, scraped_ms);
        }
    }

    fn retire(&mut self, now_ms: i64, scraped_ms: i64) {
        let is_done = |used_ms: i64, idle: Duration| {
            now_ms.saturating_sub(used_ms) > ms(idle)
                && scraped_ms.saturating_sub(used_ms) > ms(SEEN_AFTER)
        };
        self.series.retain(|_, series| {
            let idle = match &*series.labels.backend {
                NO_BACKEND | UNKNOWN => OTHER_IDLE,
                _ => BACKEND_IDLE,
            };
            !is_done(series.used_ms, idle)
        });
        self.tenants
            .retain(|_, series| !is_done(series.used_ms, OTHER_IDLE));
        self.rejects
            .retain(|_, rejected| !is_done(rejected.used_ms, OTHER_IDLE));
        self.free_places();
    }

    /// Frees the places of label values that no series has any more.
    fn free_places(&mut self) {
        let mut in_use: BTreeMap<Label, BTreeSet<Box<str>>> = BTreeMap::new();
        let mut used = |label, value: &str| {
            in_use.entry(label).or_default().insert(value.into());
        };
        let mut with_series = BTreeSet::new();
        for series in self.series.values() {
            used(Label::Route, &series.labels.route);
            if let Some(service) = &series.labels.service {
                used(Label::Service, service);
            }
            used(Label::Backend, &series.labels.backend);
            used(Label::Model, &series.labels.model);
            for (reason, _) in &series.finish {
                used(Label::FinishReason, reason);
            }
        }
        for series in self.tenants.values() {
            used(Label::Route, &series.labels.route);
            if let Some(service) = &series.labels.service {
                used(Label::Service, service);
            }
            with_series.insert(series.labels.tenant.clone());
        }
        for rejected in self.rejects.values() {
            used(Label::Route, &rejected.key.route);
            used(Label::Reason, &rejected.key.reason);
        }
        let labels = [
            Label::Route,
            Label::Service,
            Label::Backend,
            Label::Model,
            Label::FinishReason,
            Label::Reason,
        ];
        for label in labels {
            let mut values = in_use.remove(&label).unwrap_or_default();
            values.retain(|value| !matches!(&**value, UNKNOWN | NO_BACKEND | OTHER));
            self.caps.keep(label, values);
        }
        self.tenant_places.keep(&with_series);
    }

    /// What may be shown of the state.
    pub fn view(&self) -> View {
        View::of(self)
    }

    /// Whether this program can have written it. A checkpoint must prove that.
    pub fn is_sound(&self) -> bool {
        self.series.values().all(|series| series.is_sound())
    }
}

/// Route, service and tenant of a row.
#[derive(Debug)]
struct Whose<'r> {
    route: Cow<'r, str>,
    /// From the cluster, where there is one.
    service: Option<&'r str>,
}

impl<'r> Whose<'r> {
    /// The row's own values win; the cluster fills in what is missing.
    fn of(row: &'r DetailRow<'_>, found: &'r Found) -> Self {
        let route = match (&*row.route, &found.route) {
            ("", Some(route)) => Cow::Borrowed(&**route),
            (route, _) => labels::clean(or_unknown(route)),
        };
        Self {
            route,
            service: found.service.as_deref(),
        }
    }
}

/// The series of a row. One look-up if the row's labels are known, as they nearly always are.
fn find<'s>(
    series: &'s mut HashMap<Box<str>, Arc<Series>>,
    caps: &mut Caps,
    key: &mut String,
    row: &DetailRow<'_>,
    whose: &Whose<'_>,
    now_ms: i64,
) -> &'s mut Arc<Series> {
    let (route, service) = (&*whose.route, whose.service);
    let backend = match labels::without_retry(&row.backend) {
        "" => Cow::Borrowed(NO_BACKEND),
        backend => labels::clean(backend),
    };
    let model = labels::clean(or_unknown(&row.model));
    write_key(key, &[route, &backend, &model]);
    write_more(key, service);
    if !series.contains_key(key.as_str()) {
        let labels = place(series, caps, service, [route, &backend, &model]);
        write_key(key, &[&labels.route, &labels.backend, &labels.model]);
        write_more(key, labels.service.as_deref());
        if !series.contains_key(key.as_str()) {
            let new = Series::new(labels, now_ms);
            series.insert(key.as_str().into(), Arc::new(new));
        }
    }
    series
        .get_mut(key.as_str())
        .expect("present, or inserted above")
}

/// The labels for a new combination.
fn place(
    series: &HashMap<Box<str>, Arc<Series>>,
    caps: &mut Caps,
    service: Option<&str>,
    [route, backend, model]: [&str; 3],
) -> SeriesLabels {
    let route = caps.admit(Label::Route, route).into();
    let service = service.map(|service| caps.admit(Label::Service, service).into());
    if series.len() >= Label::Series.values_max() {
        caps.count(Label::Series);
        return SeriesLabels {
            route,
            service,
            backend: OTHER.into(),
            model: OTHER.into(),
        };
    }
    SeriesLabels {
        route,
        service,
        backend: caps.admit(Label::Backend, backend).into(),
        model: caps.admit(Label::Model, model).into(),
    }
}

fn or_unknown(value: &str) -> &str {
    if value.is_empty() { UNKNOWN } else { value }
}

fn write_key(key: &mut String, parts: &[&str]) {
    key.clear();
    for part in parts {
        key.push_str(part);
        key.push(SEPARATOR);
    }
}

/// A part of a key that most keys lack.
fn write_more(key: &mut String, part: Option<&str>) {
    if let Some(part) = part {
        key.push_str(part);
        key.push(SEPARATOR);
    }
}

fn key_of(parts: &[&str]) -> Box<str> {
    key_with(parts, None)
}

fn key_with(parts: &[&str], more: Option<&str>) -> Box<str> {
    let mut key = String::new();
    write_key(&mut key, parts);
    write_more(&mut key, more);
    key.into()
}

fn ms(duration: Duration) -> i64 {
    // Constants of at most days.
    duration.as_millis() as i64
}

/// A value that contains the key under which it is stored.
trait Keyed {
    fn key(&self) -> Box<str>;
}

impl Keyed for Series {
    fn key(&self) -> Box<str> {
        let SeriesLabels {
            route,
            service,
            backend,
            model,
        } = &self.labels;
        key_with(&[route, backend, model], service.as_deref())
    }
}

impl Keyed for TenantSeries {
    fn key(&self) -> Box<str> {
        self.labels.key()
    }
}

impl Keyed for Rejected {
    fn key(&self) -> Box<str> {
        self.key.text()
    }
}

/// Serialises a map as the list of its values, which contain their keys.
mod as_list {
    use std::collections::HashMap;
    use std::sync::Arc;

    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::Keyed;

    pub(super) fn serialize<S: Serializer, T: Serialize>(
        map: &HashMap<Box<str>, Arc<T>>,
        to: S,
    ) -> Result<S::Ok, S::Error> {
        to.collect_seq(map.values().map(|value| &**value))
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>, T: Deserialize<'de> + Keyed>(
        from: D,
    ) -> Result<HashMap<Box<str>, Arc<T>>, D::Error> {
        let list = Vec::<T>::deserialize(from)?;
        Ok(list
            .into_iter()
            .map(|value| (value.key(), Arc::new(value)))
            .collect())
    }
}

impl LastEnd {
    fn settle(&mut self, own: &mut Own) {
        if self.text.is_empty() {
            return;
        }
        if let Ok(end) = chrono::DateTime::parse_from_rfc3339(&self.text) {
            let plus_ms = (self.plus_s.clamp(0.0, 1e6) * 1000.0) as i64;
            let end_ms = end.timestamp_millis().saturating_add(plus_ms);
            own.last_end_ms = own.last_end_ms.max(end_ms);
        }
        self.text.clear();
        self.plus_s = 0.0;
    }
}
