//! Answers of every dialect and what is concluded from each. The listener and the system tests read
//! the same files, so that no program concludes something else.

#![expect(
    clippy::disallowed_methods,
    reason = "the crate reads no files, this test does"
)]

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;

use answers::Meter;
use serde::Deserialize;

#[derive(Debug, PartialEq, Deserialize)]
struct Conclusion {
    /// Prompt, completion, cached, reasoning, total.
    usage: Option<[u64; 5]>,
    finish_reason: Option<String>,
    model: Option<String>,
    id: Option<String>,
}

fn directory() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("corpus")
}

fn read(mut meter: Meter, chunks: &[&[u8]]) -> Conclusion {
    for chunk in chunks {
        meter.feed(chunk);
    }
    meter.finish();
    Conclusion {
        usage: meter
            .usage()
            .map(|u| [u.prompt, u.completion, u.cached, u.reasoning, u.total]),
        finish_reason: meter.finish_reason().map(str::to_owned),
        model: meter.model().map(str::to_owned),
        id: meter.id().map(str::to_owned),
    }
}

#[test]
fn every_answer_is_read_as_expected_however_it_is_cut() {
    let expected = fs::read_to_string(directory().join("expected.json")).unwrap();
    let expected: BTreeMap<String, Conclusion> = serde_json::from_str(&expected).unwrap();
    assert!(expected.len() >= 30);
    for (name, conclusion) in &expected {
        let body = fs::read(directory().join(name)).unwrap();
        let make = match name.ends_with(".sse") {
            true => Meter::stream,
            false => Meter::document,
        };
        assert_eq!(read(make(), &[&body]), *conclusion, "{name}");
        let bytes: Vec<&[u8]> = body.chunks(1).collect();
        assert_eq!(read(make(), &bytes), *conclusion, "{name}, byte by byte");
        for cut in 0..=body.len() {
            let (a, b) = body.split_at(cut);
            assert_eq!(read(make(), &[a, b]), *conclusion, "{name}, cut at {cut}");
        }
    }
}
