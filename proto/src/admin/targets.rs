//! `GET /_targets`: what Prometheus may scrape beside the router, in the form of its HTTP service
//! discovery.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};

/// One engine.
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetGroup {
    /// `host:port`; exactly one.
    pub targets: Vec<String>,
    /// `peer`: its name; `route`: the routes that use it, with commas between; `__scheme__` and
    /// `__metrics_path__`: where Prometheus finds its page.
    pub labels: BTreeMap<String, String>,
}
