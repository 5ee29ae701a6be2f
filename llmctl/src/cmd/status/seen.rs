//! The answers of one router.

use std::collections::BTreeMap;

use proto::admin::{Findings, Owner, Routes};

use super::recent::Recent;

/// The state of one router and a summary of its last requests.
pub(super) struct Seen {
    pub(super) status: Routes,
    /// Absent for routers without `/_findings`.
    pub(super) findings: Option<Findings>,
    /// What owners use; empty without limits of owners and for routers without `/_owners`.
    pub(super) owners: Vec<Owner>,
    /// The names of all routes, also when only one is shown.
    pub(super) names: Vec<String>,
    pub(super) recent: BTreeMap<String, Recent>,
}
