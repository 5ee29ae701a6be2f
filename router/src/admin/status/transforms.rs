//! `_cch_strip_status` and `_cch_test`: the counters of the transforms, and a trial run.

use bytes::Bytes;
use http::StatusCode;
use http::request::Parts;
use md5::{Digest, Md5};
use proto::admin::{CchStripStatus, CchTest};

use crate::admin::answer::{self, Answer};
use crate::admin::query::{Params, Refused};
use crate::content::Inspection;
use crate::content::splice;
use crate::content::transform::{Transformed, transform};
use crate::placement::RequestContext;
use crate::state::{Route, RouteTable, Switch};

/// The default path for a trial run.
pub(super) const DEFAULT_PATH: &str = "/v1/chat/completions";

/// `_cch_strip_status`.
pub(super) fn cch_strip(route: &Route) -> Answer {
    let switch = route.switch(Switch::CchStrip);
    let counts = route.state.transforms.counts(Switch::CchStrip);
    let count = |name| counts.iter().find(|(of, _)| *of == name);
    let count = |name| count(name).map_or(0, |(_, count)| *count);
    let (parsed_total, stripped_total) = (count("parsed_total"), count("stripped_total"));
    let status = CchStripStatus {
        route: route.name.to_string(),
        enabled: switch.value,
        source: switch.source.as_str().to_owned(),
        default: Switch::CchStrip.below(&route.options).value,
        parsed_total,
        stripped_total,
        strip_ratio: stripped_total as f64 / parsed_total.max(1) as f64,
    };
    answer::json(StatusCode::OK, &status)
}

/// `_cch_test`. Sends nothing and counts nothing.
pub(super) fn test(
    table: &RouteTable,
    route: &Route,
    parts: &Parts,
    params: &Params,
    body: &Bytes,
) -> Result<Answer, Refused> {
    params.only(&["path", "full"])?;
    let path = params.get("path")?.unwrap_or(DEFAULT_PATH);
    let full = params.flag("full")?;
    let inspection = Inspection::read(&table.fields, body);
    let done = put_right(route, path, &inspection, body);
    let asker = RequestContext::of(route, &parts.headers, &inspection);
    let edited = done.body.as_ref().map(splice::Parts::joined);
    let after = edited.as_deref().unwrap_or(body);
    let tested = CchTest {
        route: route.name.to_string(),
        path: path.to_owned(),
        cch_stripped: done.headers_stripped > 0,
        include_usage_injected: done.asked_for_usage,
        kimi_changes: done.ids_renamed,
        system_hoisted: done.messages_hoisted,
        session_id: asker.session.routed_text().into_owned(),
        source: asker.session.source().to_owned(),
        body_len: after.len(),
        body_md5: md5(after),
        bodylog_len: body.len(),
        bodylog_md5: md5(body),
        bodylog_differs: done.body.is_some(),
        body_after: full.then(|| String::from_utf8_lossy(after).into_owned()),
    };
    Ok(answer::json(StatusCode::OK, &tested))
}

/// The result of the transforms for a body.
pub(super) fn put_right(
    route: &Route,
    path: &str,
    inspection: &Inspection<'_>,
    body: &Bytes,
) -> Transformed {
    let Some(places) = inspection.places() else {
        return Transformed::default();
    };
    let wanted = route.transforms_for(path, inspection.model().as_deref());
    transform(body, &places, wanted)
}

fn md5(bytes: &[u8]) -> String {
    let digest = Md5::digest(bytes);
    digest.iter().map(|byte| format!("{byte:02x}")).collect()
}
