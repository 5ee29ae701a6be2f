//! One finding for many peers with the same trouble, so that the page of a large fleet stays
//! readable.

use std::collections::BTreeMap;

use proto::admin::FindingCode;

use super::Cause;

/// Up to this many peers with the same trouble have a finding each.
const PEERS_MAX: usize = 4;

/// Replaces the causes of more than [`PEERS_MAX`] peers with the same code by one. It keeps the
/// text of the worst peer and names the others. The order of the rest stays.
pub(super) fn fold(causes: Vec<Cause>) -> Vec<Cause> {
    let mut by_code: BTreeMap<FindingCode, usize> = BTreeMap::new();
    for cause in causes.iter().filter(|cause| cause.subject.peer.is_some()) {
        *by_code.entry(cause.code).or_default() += 1;
    }
    by_code.retain(|_, peers| *peers > PEERS_MAX);
    if by_code.is_empty() {
        return causes;
    }
    let is_many = |cause: &Cause| cause.subject.peer.is_some() && by_code.contains_key(&cause.code);
    let (many, mut kept): (Vec<_>, Vec<_>) = causes.into_iter().partition(is_many);
    for code in by_code.into_keys() {
        let same: Vec<&Cause> = many.iter().filter(|cause| cause.code == code).collect();
        kept.extend(one_for(&same));
    }
    kept
}

fn one_for(same: &[&Cause]) -> Option<Cause> {
    let worst = same.iter().min_by_key(|cause| {
        (
            cause.severity,
            std::cmp::Reverse(cause.events.count),
            &cause.subject.peer,
        )
    })?;
    let others = same.iter().filter_map(|cause| {
        let peer = cause.subject.peer.as_deref()?;
        (cause.subject.peer != worst.subject.peer).then_some(peer)
    });
    let named: Vec<_> = others.take(PEERS_MAX - 1).collect();
    let left = same.len() - 1 - named.len();
    let mut one = (*worst).clone();
    one.text = format!(
        "{} peers have the same trouble. The worst: {}. Also {} and {left} more",
        same.len(),
        one.text,
        named.join(", ")
    );
    one.subject.peer = None;
    one.events.count = same.iter().map(|cause| cause.events.count).sum();
    one.events.of = same.iter().map(|cause| cause.events.of).sum();
    one.events.since = same.iter().filter_map(|cause| cause.events.since).min();
    one.events.last = same.iter().filter_map(|cause| cause.events.last).max();
    Some(one)
}
