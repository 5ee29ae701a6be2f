//! `system_hoist`.

use super::*;

const HOIST: Wanted = Wanted {
    system_hoist: SystemHoist::All,
    ..NOTHING
};

fn hoisted(body: &str, expected: &str) {
    assert_eq!(sent(body, HOIST), expected, "{body}");
}

#[test]
fn system_messages_move_in_order_and_the_rest_stays_as_it_is() {
    hoisted(
        r#"{ "model":"m", "messages":[ {"role":"user","content":"1"}, {"role":"system","content":"a\n"}, {"role":"user","content":"2"},{"content":"b","role":"system"} ], "max_tokens":1.0e1 }"#,
        r#"{ "model":"m", "messages":[ {"role":"user","content":"1"}, {"role":"user","content":"2"} ], "max_tokens":1.0e1 ,"system":[{"type":"text","text":"a\n"},{"type":"text","text":"b"}]}"#,
    );
}

#[test]
fn commas_go_with_the_messages_they_belong_to() {
    for (list, left) in [
        ("[s,u,u]", "[u,u]"),
        ("[s,s,u]", "[u]"),
        ("[u,s,u]", "[u,u]"),
        ("[u,u,s]", "[u,u]"),
        ("[u,s,s]", "[u]"),
        ("[s,u,s]", "[u]"),
        ("[s,u,s,u,s]", "[u,u]"),
        ("[s]", "[]"),
        ("[s,s]", "[]"),
        ("[ s , s ]", "[  ]"),
        ("[ s , u , s ]", "[ u ]"),
        ("[s,5,s,\"x\"]", "[5,\"x\"]"),
    ] {
        let body = |list: &str| {
            let list = list.replace('s', r#"{"role":"@"}"#);
            let list = list
                .replace('u', r#"{"role":"user"}"#)
                .replace('@', "system");
            format!(r#"{{"messages":{list}}}"#)
        };
        hoisted(&body(list), &body(left));
    }
}

#[test]
fn blocks_stand_behind_what_is_there() {
    let body = |system: &str, list: &str| format!(r#"{{{system}"messages":[{list}]}}"#);
    let message = r#"{"role":"system","content":["a",{"type":"text","text":"b","cache_control":{"type":"ephemeral"}},7]}"#;
    let blocks = r#"{"type":"text","text":"a"},{"type":"text","text":"b","cache_control":{"type":"ephemeral"}},7"#;
    for (before, after) in [
        (
            r#""old""#,
            format!(r#"[{{"type":"text","text":"old"}},{blocks}]"#),
        ),
        (
            r#""""#,
            format!(r#"[{{"type":"text","text":""}},{blocks}]"#),
        ),
        (
            r#"[{"text":"x"} ]"#,
            format!(r#"[{{"text":"x"}} ,{blocks}]"#),
        ),
        ("[ ]", format!("[ {blocks}]")),
        ("null", format!("[{blocks}]")),
    ] {
        let system = |value: &str| format!(r#""system": {value} ,"#);
        hoisted(&body(&system(before), message), &body(&system(&after), ""));
    }
}

#[test]
fn content_that_is_neither_text_nor_list_goes_with_its_message() {
    for content in [
        "",
        r#","content":null"#,
        r#","content":{"text":"x"}"#,
        r#","content":[]"#,
        r#","content":5"#,
    ] {
        for system in ["", r#""system":"old","#] {
            let body = format!(
                r#"{{{system}"messages":[{{"role":"system"{content}}},{{"role":"user"}}]}}"#
            );
            hoisted(
                &body,
                &format!(r#"{{{system}"messages":[{{"role":"user"}}]}}"#),
            );
        }
    }
}

#[test]
fn a_body_without_system_messages_is_not_touched() {
    for body in [
        r#"{"messages":[{"role":"user","content":"{\"role\":\"system\"}"}],"system":"x"}"#,
        r#"{"messages":[{"role":"System"},{"role":["system"]},{"x":{"role":"system"}},[{"role":"system"}]]}"#,
        r#"{"messages":[{"role":"system","role":"user","content":"a"}]}"#,
        r#"{"messages":{"role":"system","content":"a"}}"#,
        r#"{"metadata":{"messages":[{"role":"system","content":"a"}]}}"#,
        r#"{"messages":[{"role":"system","content":"a"}],"messages":[]}"#,
        r#"{"messages":[]}"#,
        r#"[{"role":"system","content":"a"}]"#,
        r#"{"messages":[{"role":"system","content":"a"}]"#,
        r#"{"messages":[{"role":"system","content":"a"},]}"#,
    ] {
        hoisted(body, body);
    }
}

#[test]
fn an_extension_in_place_of_system_keeps_everything_where_it_is() {
    for system in ["7", "{}", "true"] {
        let body =
            format!(r#"{{"system":{system},"messages":[{{"role":"system","content":"a"}}]}}"#);
        hoisted(&body, &body);
    }
}

#[test]
fn escapes_and_duplicates_are_read_as_an_engine_would() {
    hoisted(
        r#"{"system":"no","m\u0065ssages":[{"role":"user","r\u006fle":"s\u0079stem","content":"no","content":"\ud83d\ude00\ud83d"}],"syst\u0065m":"a"}"#,
        r#"{"system":"no","m\u0065ssages":[],"syst\u0065m":[{"type":"text","text":"a"},{"type":"text","text":"\ud83d\ude00\ud83d"}]}"#,
    );
}
