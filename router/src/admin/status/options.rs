//! `_route_opts`: every option of a route with the value in force and where it comes from.

use http::StatusCode;
use proto::admin::RouteOpts;

use crate::admin::answer::{self, Answer};
use crate::config::options::effective;
use crate::state::{Route, Switch};

/// The route's options, runtime switches applied.
pub(super) fn all(route: &Route) -> Answer {
    let mut options = effective(&route.options);
    for switch in Switch::ALL {
        let now = route.switch(switch);
        if let Some(row) = options.iter_mut().find(|row| row.key == switch.option()) {
            row.value = now.value.into();
            row.source = now.source.as_str().to_owned();
        }
    }
    answer::json(
        StatusCode::OK,
        &RouteOpts {
            route: route.name.to_string(),
            options,
        },
    )
}
