//! The answers of one router.

use std::collections::BTreeMap;

use proto::admin::{Findings, Routes};

use super::recent::Recent;

/// The state of one router and a summary of its last requests.
pub(super) struct Seen {
    pub(super) status: Routes,
    /// Absent for routers without `/_findings`.
    pub(super) findings: Option<Findings>,
    /// The names of all routes, also when only one is shown.
    pub(super) names: Vec<String>,
    pub(super) recent: BTreeMap<String, Recent>,
}
