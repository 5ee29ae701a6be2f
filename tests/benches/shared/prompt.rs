//! Request bodies as clients send them: prose, code and tool calls, with the escapes, quotes and
//! non-ASCII letters of real prompts. A filler without escapes would flatter every JSON reader.

/// Messages of an agent's conversation, as written in the body. One is about 1 KiB.
const TURNS: [&str; 4] = [
    r#"{"role":"user","content":"The test \"retries_are_bounded\" fails on CI, but never here. Can you look at it?\n\nThe log says:\n\n    thread 'main' panicked at src/retry.rs:41:9:\n    assertion `left == right` failed\n      left: 3\n     right: 2\n\nI think the timer fires twice – the comment says „höchstens zweimal“, which isn't what the code does."}"#,
    r#"{"role":"assistant","content":"I'll read the file first.","tool_calls":[{"id":"call_9aF2","type":"function","function":{"name":"read_file","arguments":"{\"path\": \"src/retry.rs\", \"range\": [1, 60], \"why\": \"see how \\\"attempts\\\" is counted\"}"}}]}"#,
    r#"{"role":"tool","tool_call_id":"call_9aF2","content":"use std::time::Duration;\n\n/// How often a request is sent again.\n#[derive(Clone, Copy, Debug)]\npub struct Retry {\n\tpub attempts: u32,\n\tpub pause: Duration,\n}\n\nimpl Retry {\n\tpub fn next(&mut self, why: &str) -> Option<Duration> {\n\t\tlet left = self.attempts.checked_sub(1)?;\n\t\ttracing::debug!(\"retry: {why:?}, {left} left\");\n\t\tself.attempts = left;\n\t\tSome(self.pause * 2u32.pow(3 - left))\n\t}\n}\n"}"#,
    r#"{"role":"assistant","content":"`checked_sub(1)?` returns before the last attempt is used, so the *count* is right and the *log* is wrong:\n\n```rust\nassert_eq!(retry.next(\"refused\"), Some(Duration::from_millis(100)));\n```\n\n1. With `attempts: 2` the first call logs \"1 left\".\n2. The second logs \"0 left\", and 谢谢 \u2192 \ud83d\ude80 is what you see.\n"}"#,
];

/// Pieces of the last message. No cut is inside an escape.
const PIECES: [&str; 6] = [
    r#"Please write the fix, and a test that fails without it.\n\n"#,
    r#"- keep the name \"attempts\"\n- no `unwrap()`\n"#,
    r#"    let pause = Duration::from_millis(10);\n"#,
    r#"Die Änderung soll klein bleiben: höchstens 20 Zeilen.\n"#,
    r#"if name == \"\" { return Err(\"empty\".into()); }\n\t"#,
    r#"请同时更新文档。 "#,
];

/// A streamed chat request of exactly `size` bytes, with its own session.
///
/// # Panics
///
/// When `size` is too small for a request.
pub(crate) fn chat(session: usize, size: usize) -> String {
    let mut body = format!(
        r#"{{"model":"bench","stream":true,"temperature":0.7,"user":"session-{session}","messages":[{{"role":"system","content":"You are a careful engineer.\nAnswer in the user's language."}},"#
    );
    let (open, close) = (r#"{"role":"user","content":""#, r#""}]}"#);
    let room = size
        .checked_sub(body.len() + open.len() + close.len())
        .expect("a request has room for its frame");
    let end = body.len() + room;
    for turn in TURNS.iter().cycle() {
        if body.len() + turn.len() + 1 > end {
            break;
        }
        body.push_str(turn);
        body.push(',');
    }
    let end = end + open.len();
    body.push_str(open);
    for piece in PIECES.iter().cycle() {
        if body.len() + piece.len() > end {
            break;
        }
        body.push_str(piece);
    }
    body.extend(std::iter::repeat_n('.', end - body.len()));
    body.push_str(close);
    body
}
