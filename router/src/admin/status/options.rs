//! `_route_opts`: every option of a route with the value in force and where it comes from.

use http::StatusCode;
use proto::admin::RouteOpts;

use crate::admin::answer::{self, Answer};
use crate::config::options::effective;
use crate::state::Route;

/// The route's options, runtime switches applied.
pub(super) fn all(route: &Route) -> Answer {
    let mut options = route.options.clone();
    options.affinity_enabled = route.affinity();
    answer::json(
        StatusCode::OK,
        &RouteOpts {
            route: route.name.to_string(),
            options: effective(&options),
        },
    )
}
