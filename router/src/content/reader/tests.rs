//! The walk against `serde_json`, over texts that are nearly JSON.

use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use crate::content::corpora::inspect;

/// Pieces of JSON, right and wrong, long and short.
fn piece() -> impl Strategy<Value = Vec<u8>> {
    let tokens: Vec<&[u8]> = vec![
        b"{",
        b"}",
        b"[",
        b"]",
        b":",
        b",",
        b" ",
        b"\n",
        b"\"",
        b"\\",
        b"\\\"",
        b"\\u0041",
        b"\\ud800",
        b"\\u00",
        b"\x07",
        b"\xff",
        b"true",
        b"null",
        b"-",
        b"0",
        b"1.5",
        b"e+3",
        b"\"model\":",
        b"\"stream\":true,",
        b"\"metadata\":{\"a\":1},",
        b"\"\\u0075ser\":\"u\",",
    ];
    prop_oneof![
        8 => select(tokens).prop_map(<[u8]>::to_vec),
        1 => vec(select(b"abc \\\"nt".to_vec()), 0..90),
    ]
}

/// A JSON value as text.
fn value() -> impl Strategy<Value = String> {
    let text = vec(
        select(vec!["a", "ä", "\\n", "\\\"", "\\\\", "\\u00e9", "/", " "]),
        0..80,
    );
    let leaf = prop_oneof![
        text.prop_map(|text| format!("\"{}\"", text.concat())),
        select(vec!["0", "-1.5E+2", "true", "false", "null", "{}", "[ ]"]).prop_map(str::to_owned),
    ];
    leaf.prop_recursive(4, 32, 6, |inner| {
        prop_oneof![
            vec(inner.clone(), 1..6).prop_map(|items| format!("[{}]", items.join(", "))),
            vec((key(), inner), 1..6).prop_map(|members| object(&members)),
        ]
    })
}

fn key() -> impl Strategy<Value = &'static str> {
    select(vec![
        "model",
        "stream",
        "\\u006dodel",
        "user",
        "metadata",
        "tools",
        "x",
        "",
    ])
}

fn object(members: &[(&str, String)]) -> String {
    let members = members
        .iter()
        .map(|(key, value)| format!("\"{key}\" :{value}"));
    format!("{{{}}}", members.collect::<Vec<_>>().join(",\n"))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn pieces_of_json_are_read_as_serde_reads_them(pieces in vec(piece(), 0..24)) {
        inspect(&[b"{", &*pieces.concat()].concat());
    }

    #[test]
    fn a_body_with_one_wrong_byte_is_read_as_serde_reads_it(
        members in vec((key(), value()), 0..8),
        at in any::<prop::sample::Index>(),
        byte in prop_oneof![any::<u8>(), select(b"{}[]:,\"\\ \n0-".to_vec())],
    ) {
        let mut body = object(&members).into_bytes();
        inspect(&body);
        let at = at.index(body.len());
        inspect(&body[..at]);
        body[at] = byte;
        inspect(&body);
    }
}
