//! Reads an engine's `/v1/models`. Entries are kept as the engine wrote them.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::value::RawValue;

use crate::state::ModelList;

/// Largest list read, bytes. Engines that serve hundreds of adapters stay far below it.
pub(super) const BODY_MAX: usize = 1 << 20;

/// Entries kept of one list.
const ENTRIES_MAX: usize = 4096;

#[derive(Deserialize)]
struct List<'a> {
    #[serde(borrow)]
    data: Vec<&'a RawValue>,
}

#[derive(Deserialize)]
struct Entry<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    /// llama.cpp's aliases of the model. Parsed separately, because an engine may write anything
    /// here.
    #[serde(borrow, default)]
    aliases: Option<&'a RawValue>,
}

/// Parses the list in a body. Entries without an `id` are left out; of several entries with one id
/// the first counts. `None` when the body is not a list of models.
pub(super) fn parse(body: &[u8]) -> Option<ModelList> {
    let list: List<'_> = serde_json::from_slice(body).ok()?;
    let mut models = ModelList::default();
    for raw in list.data.into_iter().take(ENTRIES_MAX) {
        let Ok(entry) = serde_json::from_str::<Entry<'_>>(raw.get()) else {
            continue;
        };
        if models.entries.iter().any(|(id, _)| **id == *entry.id) {
            continue;
        }
        let aliases = entry
            .aliases
            .and_then(|raw| serde_json::from_str::<Vec<String>>(raw.get()).ok());
        models.ids.extend(
            aliases
                .into_iter()
                .flatten()
                .take(ENTRIES_MAX)
                .map(Box::from),
        );
        models.ids.insert(Box::from(&*entry.id));
        models.entries.push((Box::from(&*entry.id), raw.to_owned()));
    }
    Some(models)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ids(list: &ModelList) -> Vec<&str> {
        list.ids.iter().map(|id| &**id).collect()
    }

    #[test]
    fn entries_are_kept_whole_and_ids_and_aliases_are_known() {
        let body = br#"{"object":"list","models":[{}],"data":[
            {"id":"m\u0031", "object": "model","x": [1, {"y":2}]},
            {"id":"m2","aliases":["alias","m1"]},
            {"id":"m2","second":true}]}"#;
        let list = parse(body).unwrap();
        assert_eq!(ids(&list), ["alias", "m1", "m2"]);
        let entries: Vec<_> = list
            .entries
            .iter()
            .map(|(id, raw)| (&**id, raw.get()))
            .collect();
        assert_eq!(
            entries,
            [
                (
                    "m1",
                    r#"{"id":"m\u0031", "object": "model","x": [1, {"y":2}]}"#
                ),
                ("m2", r#"{"id":"m2","aliases":["alias","m1"]}"#),
            ]
        );
    }

    #[test]
    fn what_is_no_entry_is_left_out() {
        let list = parse(br#"{"data":[1,null,{"no":"id"},{"id":7},{"id":"a","aliases":"b"},{"id":"c","aliases":null}]}"#);
        assert_eq!(ids(&list.unwrap()), ["a", "c"]);
    }

    #[test]
    fn what_is_no_list_is_none() {
        for body in [
            &b""[..],
            b"ok",
            b"[]",
            br#"{"data":{}}"#,
            br#"{"object":"list"}"#,
            b"{\"data\":[\xff]}",
        ] {
            assert!(parse(body).is_none(), "{body:?}");
        }
    }

    #[test]
    fn a_list_is_bounded() {
        let entries: Vec<String> = (0..ENTRIES_MAX + 10)
            .map(|n| format!(r#"{{"id":"m{n}"}}"#))
            .collect();
        let list = parse(format!(r#"{{"data":[{}]}}"#, entries.join(",")).as_bytes()).unwrap();
        assert_eq!(list.entries.len(), ENTRIES_MAX);
    }
}
