//! No secret reaches a report, however broken the file is.

use crate::report::{Style, render};
use crate::testing::{main, route};

/// Every rendered form of the problems.
fn everything(problems: &[crate::report::Problem]) -> String {
    let mut all = render(problems, Style::Plain);
    for problem in problems {
        all.push_str(&problem.github());
        all.push_str(&format!("{:?}{problem:?}", problem.machine()));
    }
    all
}

#[test]
fn a_secret_in_any_place_stays_out_of_every_form() {
    let texts = [
        "peers: [{address: 5, api_key: SECRET-1}]",
        "peers: [{address: 5, api_key: [SECRET-1]}]",
        "peers: [{address: 5, api_key: {SECRET-1: SECRET-2}}]",
        "peers: [{address: 5, api_key: \"SECRET 1\"}]",
        "peers: [{address: 5, api_kye: SECRET-1, token: SECRET-2}]",
        "peers: [{url: \"http://u:SECRET-1@h\"}]",
        "peers: [{url: \"http://h/?key=SECRET-1\"}]",
        "peers: [{address: \"http://u:SECRET-1@h:1\"}]",
        "peers: []\napi_keys: {SECRET-1: [x], SECRET-2: \"\", SECRET-1: y}",
        "peers: []\napi_keys: [SECRET-1, SECRET-2]",
        "peers: []\napi_keys: SECRET-1",
        "peers: []\napi_keys: {SECRET-1: \"${NOPE}\"}",
        "peers: []\napi_keys: {SECRET-1: {SECRET-2: \"${NOPE}\"}}",
        "peers: []\nkeys: {SECRET-1: \"${NOPE}\"}",
        "peers: []\napi_keyz: {SECRET-1: x}",
        "peers: []\nmy_password: SECRET-1",
        "zz: &a SECRET-1\npeers: [{address: \"a:1\", api_key: *a}]",
    ];
    for text in texts {
        let problems = route(text).1;
        assert!(!problems.is_empty(), "{text}");
        let shown = everything(&problems);
        assert!(!shown.contains("SECRET"), "{text}\n{shown}");
    }
    let shown =
        everything(&main("api_keys: {SECRET-1: x}\ndefaults: {api_keys: {SECRET-2: []}}\n").1);
    assert!(!shown.contains("SECRET"), "{shown}");
}

#[test]
fn what_is_not_secret_is_still_shown() {
    let shown = everything(&route("peers: [{address: visible, api_key: SECRET-1}]\n").1);
    assert!(
        shown.contains("visible") && shown.contains("api_key: ***"),
        "{shown}"
    );
}
