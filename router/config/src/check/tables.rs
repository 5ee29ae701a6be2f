//! Options that are small tables: thresholds by model, metrics, priority buckets, and paths to
//! redact. One wrong row makes the whole table invalid, because half a table would protect in a way
//! that the operator did not write.

use std::collections::BTreeMap;
use std::sync::Arc;

use router_core::admission::priority::Bucket;
use router_core::signal::{Metric, Statistic};

use super::peers::{first_key, optional};
use super::reader::{Reader, short};
use super::scalar::{bounded, is_off, items, refuse, usable};
use super::section::keys;
use crate::options::{
    BUCKET, BUCKET_MIN_TURN, BUCKET_SHARE, BUCKET_TOL, Kind, METRIC_NAME, METRIC_Q, METRIC_ROW,
    METRIC_THRESHOLD, Meta, OptionDef,
};
use crate::tree::{Node, Value};
use crate::valid::{Bodies, BodyPath};

/// Maximum number of rows. Every request evaluates each row, and each row names a label.
const ROWS_MAX: usize = 64;

/// Reads thresholds by model.
pub(crate) fn thresholds(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<BTreeMap<Arc<str>, f64>> {
    let Kind::Thresholds(bounds) = meta.kind else {
        return None;
    };
    let Value::Map(pairs) = &node.value else {
        return refuse(reader, node, meta);
    };
    let mut by_model: BTreeMap<Arc<str>, f64> = BTreeMap::new();
    let mut good = true;
    for (index, (model, value)) in pairs.iter().enumerate() {
        let before = &pairs[..index];
        if let Some((first, _)) = before.iter().find(|(other, _)| other.text == model.text) {
            let message = format!("the model `{}` is here twice", short(&model.text));
            reader
                .error(model.span.clone(), message)
                .label(first.span.clone(), "first here");
            good = false;
        }
        match bounded(value, &bounds) {
            Some(threshold) => {
                by_model.insert(model.text.as_str().into(), threshold);
            }
            None => {
                reader.key(&model.text, |reader| {
                    reader.unexpected(value, &bounds.allowed());
                });
                good = false;
            }
        }
    }
    good.then_some(by_model)
}

/// Reads a table of metrics, or `off`. An empty table means `off` too: a route uses it to disable
/// the table under `defaults:`.
pub(crate) fn metrics(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Arc<[Metric]>>> {
    if is_off(node) {
        return Some(None);
    }
    let items = rows(reader, node, meta)?;
    let mut table: Vec<Metric> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let row = reader.item(index, |reader| metric(reader, item, &table));
        table.extend(row);
    }
    let good = table.len() == items.len();
    good.then(|| (!table.is_empty()).then(|| table.into()))
}

fn metric(reader: &mut Reader, node: &Node, before: &[Metric]) -> Option<Metric> {
    let is_row = matches!(node.value, Value::Map(_));
    if !is_row {
        reader.unexpected(
            node,
            "a row such as `{metric: p95, q: .95, threshold: 3000}`",
        );
        return None;
    }
    keys(reader, node, METRIC_ROW, "a row");
    let name = required(reader, node, &METRIC_NAME);
    let is_mean = name.as_deref() == Some("avg");
    let statistic = if is_mean {
        Some(Statistic::Mean)
    } else {
        required(reader, node, &METRIC_Q).map(Statistic::Quantile)
    };
    let threshold = required(reader, node, &METRIC_THRESHOLD);
    let name = name?;
    if before.iter().any(|other| other.name == name) {
        let message = format!("the metric `{}` is in this table already", short(&name));
        reader.error(first_key(node), message);
        return None;
    }
    Some(Metric {
        name,
        statistic: statistic?,
        threshold: threshold?,
    })
}

/// Reads a table of priority buckets, or `off`.
pub(crate) fn buckets(
    reader: &mut Reader,
    node: &Node,
    meta: &Meta,
) -> Option<Option<Arc<[Bucket]>>> {
    if is_off(node) {
        return Some(None);
    }
    let items = rows(reader, node, meta)?;
    let mut table: Vec<Bucket> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let row = reader.item(index, |reader| bucket(reader, item, table.last()));
        table.extend(row);
    }
    let good = table.len() == items.len();
    good.then(|| (!table.is_empty()).then(|| table.into()))
}

fn bucket(reader: &mut Reader, node: &Node, before: Option<&Bucket>) -> Option<Bucket> {
    let cells = match &node.value {
        Value::Map(_) => {
            keys(reader, node, BUCKET, "a bucket");
            let min_turn = required(reader, node, &BUCKET_MIN_TURN);
            let share = required(reader, node, &BUCKET_SHARE);
            (min_turn, share, required(reader, node, &BUCKET_TOL))
        }
        Value::Seq(cells) if cells.len() == 3 => {
            let min_turn = reader.item(0, |reader| BUCKET_MIN_TURN.read(reader, &cells[0]));
            let share = reader.item(1, |reader| BUCKET_SHARE.read(reader, &cells[1]));
            let tol = reader.item(2, |reader| BUCKET_TOL.read(reader, &cells[2]));
            (min_turn, share, tol)
        }
        _ => {
            let allowed = "`{min_turn, share, tol}` or `[min_turn, share, tol]`";
            reader.unexpected(node, allowed);
            return None;
        }
    };
    let (Some(min_turn), Some(share), Some(tol)) = cells else {
        return None;
    };
    let flaw = match before {
        None if min_turn != 1 => Some("the first bucket starts at turn 1".to_owned()),
        Some(before) if min_turn <= before.min_turn => Some(format!(
            "buckets ascend: turn {min_turn} does not come after {}",
            before.min_turn
        )),
        _ => None,
    };
    if let Some(flaw) = flaw {
        reader.error(first_key(node), flaw);
    }
    // A bucket out of order is reported but kept, so that the next one is compared with it.
    Some(Bucket {
        min_turn,
        share,
        tol,
    })
}

/// Reads `full`, `none` or `truncate(<size>)`.
pub(crate) fn bodies(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Bodies> {
    match usable(node).and_then(|scalar| scalar.text.parse().ok()) {
        Some(bodies) => Some(bodies),
        None => refuse(reader, node, meta),
    }
}

/// Reads paths into a JSON body.
pub(crate) fn body_paths(reader: &mut Reader, node: &Node, meta: &Meta) -> Option<Arc<[BodyPath]>> {
    let items = rows(reader, node, meta)?;
    let mut paths: Vec<BodyPath> = Vec::with_capacity(items.len());
    for (index, item) in items.iter().enumerate() {
        let text = usable(item).map(|s| s.text.as_str()).unwrap_or_default();
        let segments: Arc<[Box<str>]> = text.split('.').map(Box::from).collect();
        if segments.iter().any(|segment| segment.is_empty()) {
            reader.item(index, |reader| {
                reader.unexpected(item, "a path such as `messages.*.content`");
            });
        } else {
            paths.push(BodyPath { segments });
        }
    }
    (paths.len() == items.len()).then(|| paths.into())
}

/// The rows of a list, up to the maximum.
fn rows<'n>(reader: &mut Reader, node: &'n Node, meta: &Meta) -> Option<&'n [Node]> {
    let items = items(reader, node, meta)?;
    if items.len() > ROWS_MAX {
        let message = format!("{} rows; at most {ROWS_MAX} are possible", items.len());
        reader.error(node.span.clone(), message);
        return None;
    }
    Some(items)
}

/// Reads the value of a key that a row must have.
fn required<T>(reader: &mut Reader, node: &Node, knob: &OptionDef<T>) -> Option<T> {
    if node.get(knob.meta.key).is_none() {
        reader.error(first_key(node), format!("`{}` is missing", knob.meta.key));
    }
    optional(reader, node, knob)
}
