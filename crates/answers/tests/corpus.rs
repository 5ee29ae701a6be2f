//! Answers of every dialect and the expected findings of each. The listener and the system tests
//! read the same files, so all programs reach the same conclusions.
#![expect(
    clippy::disallowed_methods,
    reason = "the crate reads no files, this test does"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use answers::Meter;
use memchr::memmem;
use serde::Deserialize;

#[derive(Debug, PartialEq, Deserialize)]
struct Conclusion {
    /// Prompt, completion, cached, reasoning, total.
    usage: Option<[u64; 5]>,
    finish_reason: Option<String>,
    model: Option<String>,
    id: Option<String>,
    /// A text in the first event with generated content that does not occur in any earlier event.
    first_content: Option<String>,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn each(mut check: impl FnMut(&str, &[u8], &dyn Fn() -> Meter, &Conclusion)) {
    let expected =
        fs::read_to_string(directory().join("expected.json")).expect("the corpus is in the tree");
    let expected: BTreeMap<String, Conclusion> =
        serde_json::from_str(&expected).expect("the corpus is in the tree");
    assert!(expected.len() >= 30);
    for (name, conclusion) in &expected {
        let body = fs::read(directory().join(name)).expect("the corpus is in the tree");
        let meter = || match name.ends_with(".sse") {
            true => Meter::stream(),
            false => Meter::document(),
        };
        check(name, &body, &meter, conclusion);
    }
}

#[test]
fn every_answer_is_read_as_expected_however_it_is_cut() {
    each(|name, body, make, conclusion| {
        let check = |chunks: &[&[u8]]| {
            let mut meter = make();
            for chunk in chunks {
                meter.feed(chunk);
            }
            meter.finish();
            let usage = meter.usage();
            let usage = usage.map(|u| [u.prompt, u.completion, u.cached, u.reasoning, u.total]);
            assert_eq!(usage, conclusion.usage, "{name}");
            assert_eq!(
                meter.finish_reason(),
                conclusion.finish_reason.as_deref(),
                "{name}"
            );
            assert_eq!(meter.model(), conclusion.model.as_deref(), "{name}");
            assert_eq!(meter.id(), conclusion.id.as_deref(), "{name}");
        };
        check(&[body]);
        check(&body.chunks(1).collect::<Vec<_>>());
        for cut in 0..=body.len() {
            let (a, b) = body.split_at(cut);
            check(&[a, b]);
        }
    });
}

#[test]
fn the_first_event_with_content_is_told_when_it_ends() {
    each(|name, body, make, conclusion| {
        let mut meter = make();
        let told: Vec<usize> = (0..body.len())
            .filter(|at| meter.feed(&body[*at..=*at]))
            .collect();
        let expected = conclusion.first_content.as_ref().map(|text| {
            let content = memmem::find(body, text.as_bytes()).unwrap();
            let line = memmem::find(&body[content..], b"\n").unwrap();
            content..content + line + 5
        });
        match (expected, &told[..]) {
            (Some(expected), [at]) => assert!(expected.contains(at), "{name}: {at} {expected:?}"),
            (None, []) => {}
            (expected, told) => panic!("{name}: expected {expected:?}, told {told:?}"),
        }
    });
}
