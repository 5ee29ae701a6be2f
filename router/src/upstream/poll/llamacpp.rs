//! llama.cpp's other pages: `/props` and `/slots`.

use serde::Deserialize;

/// What `/props` reports about the whole server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
pub(super) struct Props {
    /// The number of requests that it runs at once.
    #[serde(default)]
    pub(super) total_slots: Option<u32>,
    /// Whether it has unloaded its model and waits for a request.
    #[serde(default)]
    pub(super) is_sleeping: bool,
}

impl Props {
    /// `None` when the body is not such a page, as with another engine or a router of engines.
    pub(super) fn parse(body: &[u8]) -> Option<Self> {
        let props: Self = serde_json::from_slice(body).ok()?;
        (props.total_slots.is_some() || props.is_sleeping).then_some(props)
    }
}

/// One entry of `/slots`. Older builds send `state`, where 1 means processing.
#[derive(Deserialize)]
struct Slot {
    #[serde(default)]
    is_processing: Option<bool>,
    #[serde(default)]
    state: Option<i64>,
}

/// What `/slots` reports.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Slots {
    pub(super) processing: u32,
    pub(super) total: u32,
}

/// The number of slots, and of those that process. `None` when the body is not such a page.
pub(super) fn slots(body: &[u8]) -> Option<Slots> {
    let slots: Vec<Slot> = serde_json::from_slice(body).ok()?;
    let known = |slot: &Slot| slot.is_processing.is_some() || slot.state.is_some();
    if slots.is_empty() || !slots.iter().all(known) {
        return None;
    }
    let busy = slots
        .iter()
        .filter(|slot| slot.is_processing.unwrap_or(slot.state == Some(1)));
    Some(Slots {
        processing: u32::try_from(busy.count()).ok()?,
        total: u32::try_from(slots.len()).ok()?,
    })
}

/// Whether a 503 says that the model is still being loaded.
pub(super) fn is_loading(body: &[u8]) -> bool {
    memchr::memmem::find(body, b"Loading model").is_some()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn props_tell_slots_and_sleep() {
        let page = br#"{"default_generation_settings":{"n_ctx":4096},"total_slots":4,"model_alias":"tiny","is_sleeping":false}"#;
        let props = Props::parse(page).unwrap();
        assert_eq!((props.total_slots, props.is_sleeping), (Some(4), false));
        assert!(
            Props::parse(br#"{"is_sleeping":true}"#)
                .unwrap()
                .is_sleeping
        );
        for other in [&b"{}"[..], b"[]", b"ok", br#"{"total_slots":-1}"#] {
            assert_eq!(Props::parse(other), None);
        }
    }

    #[test]
    fn slots_of_both_generations_are_counted() {
        let counted = |page: &str| {
            let slots = slots(page.as_bytes())?;
            Some((slots.processing, slots.total))
        };
        let new = r#"[{"id":0,"is_processing":true},{"id":1,"is_processing":false},{"id":2,"is_processing":true}]"#;
        assert_eq!(counted(new), Some((2, 3)));
        let old = r#"[{"id":0,"state":1},{"id":1,"state":0}]"#;
        assert_eq!(counted(old), Some((1, 2)));
        for other in ["[]", "{}", r#"[{"id":0}]"#] {
            assert_eq!(counted(other), None);
        }
    }

    #[test]
    fn a_loading_model_is_told_by_its_message() {
        assert!(is_loading(
            br#"{"error":{"code":503,"message":"Loading model","type":"unavailable_error"}}"#
        ));
        assert!(!is_loading(b"service unavailable"));
    }
}
