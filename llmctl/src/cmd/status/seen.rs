//! What was asked of one router.

use std::collections::BTreeMap;

use proto::admin::{Findings, Routes};

use super::recent::Recent;

/// What one router says of itself and of its last requests.
pub(super) struct Seen {
    pub(super) status: Routes,
    /// Absent from routers before `/_findings`.
    pub(super) findings: Option<Findings>,
    /// Every route, also where only one is shown.
    pub(super) names: Vec<String>,
    pub(super) recent: BTreeMap<String, Recent>,
}
