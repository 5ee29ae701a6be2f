//! What readers see: the counts as they were when the epoch was committed.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::caps::Label;
use super::{Own, Refusals, Rejected, Series, State, TenantSeries};

/// A snapshot. Unchanged parts are shared with the state it was taken from.
#[derive(Clone, Debug)]
pub struct View {
    /// By route, backend and model.
    pub series: Vec<Arc<Series>>,
    /// By route and tenant.
    pub tenants: Vec<Arc<TenantSeries>>,
    /// By route, status and reason.
    pub rejects: Vec<Arc<Rejected>>,
    /// As the routers count.
    pub refusals: Refusals,
    /// The exporter's own counters.
    pub own: Own,
    /// Rows whose label value had no place, by label.
    pub capped: Vec<(Label, u64)>,
    /// Producers remembered, and rows without a number.
    pub remembered: (usize, usize),
    /// The service of each route that the cluster reports.
    pub services: Arc<BTreeMap<Arc<str>, Arc<str>>>,
    /// Addresses of pods that belong to a route.
    pub pods: usize,
}

impl View {
    pub(super) fn of(state: &State) -> Self {
        let mut series: Vec<_> = state.series.iter().collect();
        series.sort_by_key(|(key, _)| *key);
        let mut tenants: Vec<_> = state.tenants.iter().collect();
        tenants.sort_by_key(|(key, _)| *key);
        let mut rejects: Vec<_> = state.rejects.iter().collect();
        rejects.sort_by_key(|(key, _)| *key);
        Self {
            series: series.into_iter().map(|(_, s)| Arc::clone(s)).collect(),
            tenants: tenants.into_iter().map(|(_, s)| Arc::clone(s)).collect(),
            rejects: rejects.into_iter().map(|(_, r)| Arc::clone(r)).collect(),
            refusals: state.refusals.clone(),
            own: state.own.clone(),
            capped: Label::ALL
                .into_iter()
                .map(|label| (label, state.caps.capped(label)))
                .collect(),
            remembered: state.dedupe.len(),
            services: Arc::clone(state.places.services()),
            pods: state.places.len(),
        }
    }
}
