//! The prompt of a turn is the beginning of the next turn's prompt, whatever the transforms edit.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Value, json};

use super::*;

/// Messages of a conversation as agents send them: reminders in the middle, calls and their
/// answers.
fn message() -> impl Strategy<Value = Value> {
    let id = select(vec!["call_1", "toolu_2", "functions.f:0", "functions.g:7"]);
    let name = select(vec!["f", "g"]);
    let text = "[a-z ]{0,8}";
    prop_oneof![
        text.prop_map(|text| json!({"role": "system", "content": text})),
        text.prop_map(|text| json!({"role": "user", "content": text})),
        text.prop_map(|text| json!({"role": "user", "content": [{"type": "text", "text": text}]})),
        (id.clone(), name).prop_map(|(id, name)| json!({"role": "assistant", "tool_calls":
            [{"id": id, "type": "function", "function": {"name": name, "arguments": "{}"}}]})),
        (id, text)
            .prop_map(|(id, text)| json!({"role": "tool", "tool_call_id": id, "content": text})),
    ]
}

fn wanted() -> impl Strategy<Value = Wanted> {
    let ids = select(vec![
        None,
        Some(IdStrategy::Rerank),
        Some(IdStrategy::Hash),
        Some(IdStrategy::Keepinc),
    ]);
    let hoist = select(vec![SystemHoist::Leading, SystemHoist::Off]);
    (any::<bool>(), any::<bool>(), ids, hoist).prop_map(|(usage, cch, ids, hoist)| Wanted {
        include_usage: usage,
        cch_strip: cch,
        kimi_normalize: ids,
        system_hoist: hoist,
    })
}

/// One turn's request. The billing header differs from turn to turn, as Claude Code's does.
fn request(turn: usize, messages: &[Value], has_header: bool) -> String {
    let header = match has_header {
        true => {
            format!("x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch={turn:x};")
        }
        false => String::new(),
    };
    json!({
        "model": "kimi-k2.5",
        "stream": true,
        "system": [{"type": "text", "text": format!("{header} You are")}],
        "messages": messages,
    })
    .to_string()
}

/// The parts that an engine puts before the first token, in order.
fn prompt(body: &str, wanted: Wanted) -> Vec<Value> {
    let sent: Value = serde_json::from_str(&sent(body, wanted)).unwrap();
    let parts = |member: &str| sent[member].as_array().cloned().unwrap_or_default();
    [parts("system"), parts("messages")].concat()
}

proptest! {
    #[test]
    fn a_turn_begins_as_the_turn_before(
        messages in vec(message(), 2..12),
        cut in any::<prop::sample::Index>(),
        wanted in wanted(),
    ) {
        // A turn ends with the client's message. Leading system messages belong to the first turn.
        let first = messages.iter().position(|message| message["role"] != "system");
        let least = first.map_or(messages.len(), |first| first + 1);
        prop_assume!(least < messages.len());
        let cut = least + cut.index(messages.len() - least);
        let before = prompt(&request(1, &messages[..cut], wanted.cch_strip), wanted);
        let after = prompt(&request(2, &messages, wanted.cch_strip), wanted);
        prop_assert!(after.starts_with(&before), "{before:#?}\n{after:#?}");
    }
}

#[test]
fn a_reminder_in_mid_conversation_stays_where_it_is() {
    let messages = [
        json!({"role": "system", "content": "rules"}),
        json!({"role": "user", "content": "1"}),
        json!({"role": "assistant", "content": "2"}),
        json!({"role": "system", "content": "reminder"}),
        json!({"role": "user", "content": "3"}),
    ];
    let body = request(1, &messages, false);
    let hoist = |system_hoist| {
        prompt(
            &body,
            Wanted {
                system_hoist,
                ..NOTHING
            },
        )
    };
    let leading = hoist(SystemHoist::Leading);
    assert_eq!(leading[1], json!({"type": "text", "text": "rules"}));
    assert_eq!(leading[2..], messages[1..]);
    let all = hoist(SystemHoist::All);
    assert_eq!(all[2], json!({"type": "text", "text": "reminder"}));
}
