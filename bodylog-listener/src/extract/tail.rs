//! A JSON response whose middle or end is missing: its usage usually stands near its end.

use super::answer::Answer;

/// So far from the end the usage is looked for.
const TAIL: usize = 64 << 10;
/// So far from the start the model is looked for.
const HEAD: usize = 4 << 10;

/// Takes the last whole `"usage"` object, and the first `"model"`.
pub(super) fn look(body: &[u8], answer: &mut Answer) {
    let tail = String::from_utf8_lossy(&body[body.len().saturating_sub(TAIL)..]);
    let mut end = tail.len();
    while let Some(at) = tail[..end].rfind("\"usage\"") {
        if let Some(usage) = value_behind(&tail[at..]).filter(|value| value.is_object()) {
            answer.usage(usage);
            break;
        }
        end = at;
    }
    let head = String::from_utf8_lossy(&body[..body.len().min(HEAD)]);
    if let Some(at) = head.find("\"model\"")
        && let Some(serde_json::Value::String(model)) = value_behind(&head[at..])
    {
        answer.model(model);
    }
}

/// The value of the member that `text` starts with.
fn value_behind(text: &str) -> Option<serde_json::Value> {
    let (_, rest) = text.split_once(':')?;
    serde_json::Deserializer::from_str(rest)
        .into_iter()
        .next()?
        .ok()
}
