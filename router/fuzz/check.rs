//! What must hold for any bytes, for the fuzzer and for the tests of `router`, which include this
//! file under their own name of the crate. Each check is a fuzz target; a target uses one of them.
#![allow(
    dead_code,
    reason = "each fuzz target includes this file for one check"
)]

use answers::cursor::Cursor;
use answers::sse::{Events, Lines, Piece};
use bytes::Bytes;
use router::content::filter::Filter;
use router::content::postprocess::{Editor, Handler, handler};
use router::content::splice::Splices;
use router::content::transform::{IdStrategy, Signs, SystemHoist, Transformed, Wanted, transform};
use router::content::{Fields, Inspection};
use router_config::options::Choice;
use router_config::valid::Postprocess;

use serde::Deserialize;
use serde::de::{Deserializer, IgnoredAny, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The byte order mark of UTF-8.
const MARK: &[u8] = b"\xef\xbb\xbf";

/// Checks also that the signs alone decide whether there is something to do.
fn transformed(body: &[u8], wanted: Wanted) -> Transformed {
    let fields = Fields::new([]);
    let Some(mut places) = Inspection::read(&fields, body).places() else {
        return Transformed::default();
    };
    let body = Bytes::copy_from_slice(body);
    let done = transform(&body, &places, wanted);
    places.signs = Signs {
        billing_header: true,
        system_role: true,
    };
    assert_eq!(transform(&body, &places, wanted), done);
    done
}

fn is_json(bytes: &[u8]) -> bool {
    serde_json::from_slice::<IgnoredAny>(bytes).is_ok()
}

/// A JSON text is one value for the scanner, to its last byte; what the transforms make of one is
/// one, and not far longer; and they have nothing to add to what they made.
pub(super) fn scan(bytes: &[u8]) {
    let valid = is_json(bytes);
    let mut cursor = Cursor::new(bytes);
    let taken = cursor.skip();
    if valid {
        assert_eq!(taken.map(|span| &bytes[span]), Some(bytes.trim_ascii()));
        assert_eq!(cursor.end(), Some(()));
    }
    for strategy in [
        IdStrategy::Rerank,
        IdStrategy::Hash,
        IdStrategy::RerankMaxlast,
        IdStrategy::Keepinc,
    ] {
        let wanted = Wanted {
            include_usage: true,
            cch_strip: true,
            kimi_normalize: Some(strategy),
            system_hoist: SystemHoist::All,
        };
        let Some(edited) = transformed(bytes, wanted).body else {
            continue;
        };
        let edited = edited.joined();
        assert!(edited.len() <= 4 * bytes.len() + (256 << 10));
        assert!(is_json(edited.strip_prefix(MARK).unwrap_or(&edited)));
        let again = transformed(&edited, wanted);
        assert!(!again.asked_for_usage);
        assert_eq!(again.messages_hoisted, 0);
    }
}

/// The fields that [`inspect`] reads beside those of every request.
const READ: [&str; 3] = ["user", "metadata", "tools"];

/// The walk over a request finds what `serde_json` finds, in every text that `serde_json` reads.
pub(super) fn inspect(bytes: &[u8]) {
    let fields = Fields::new(READ);
    let found = Inspection::read(&fields, bytes);
    let text = bytes.strip_prefix(MARK).unwrap_or(bytes);
    let mut json = serde_json::Deserializer::from_slice(text);
    let expected = json.deserialize_map(TopLevel);
    // Keys read as bytes are not checked for control characters, so all is read once more.
    let expected = expected.ok().filter(|_| is_json(text));
    assert_eq!(found.is_object(), expected.is_some());
    let (Some(expected), Some(places)) = (expected, found.places()) else {
        return;
    };
    for (name, expected) in WANTED.into_iter().zip(expected) {
        let found = found.top(name);
        assert_eq!(found, expected.map(RawValue::get), "{name}");
        let place = |text: &str| text.as_ptr();
        assert_eq!(found.map(place), expected.map(|raw| place(raw.get())));
    }
    assert_eq!(places.end, bytes.trim_ascii_end().len());
}

/// All that is read for [`inspect`].
const WANTED: [&str; 6] = [
    "model",
    "stream",
    "stream_options",
    "user",
    "metadata",
    "tools",
];

struct TopLevel;

impl<'de> Visitor<'de> for TopLevel {
    type Value = [Option<&'de RawValue>; 6];

    fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("a JSON object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = [None; 6];
        while let Some(Key(key)) = map.next_key()? {
            match WANTED.iter().position(|name| *name.as_bytes() == *key) {
                Some(at) => values[at] = Some(map.next_value()?),
                None => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(values)
    }
}

/// A key that may have escapes which no `str` can hold.
struct Key(Vec<u8>);

impl<'de> Deserialize<'de> for Key {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Text;
        impl Visitor<'_> for Text {
            type Value = Key;

            fn expecting(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str("a string")
            }

            fn visit_bytes<E>(self, text: &[u8]) -> Result<Key, E> {
                Ok(Key(text.to_owned()))
            }
        }
        deserializer.deserialize_bytes(Text)
    }
}

/// Edits do what they would do one by one from the back; those that contradict each other nothing.
/// The first byte is how many there are, three bytes are one: where, how much goes, how much comes.
pub(super) fn splice(bytes: &[u8]) {
    let Some((&count, rest)) = bytes.split_first() else {
        return;
    };
    let (script, body) = rest.split_at(rest.len().min(3 * usize::from(count % 8)));
    let mut edits = Vec::new();
    let mut splices = Splices::default();
    for (number, edit) in script.chunks_exact(3).enumerate() {
        let [at, goes, comes] = [edit[0], edit[1], edit[2]].map(usize::from);
        let with = vec![b'0' + number as u8; comes % 4];
        splices.replace(at..at + goes, with.clone());
        edits.push((at, at + goes, with));
    }
    edits.sort_by_key(|(start, end, _)| (*start, *end));
    let fit = edits.iter().all(|(_, end, _)| *end <= body.len())
        && edits.is_sorted_by(|(_, end, _), (start, ..)| end <= start);
    let expected = (fit && !edits.is_empty()).then(|| {
        let mut out = body.to_vec();
        for (start, end, with) in edits.iter().rev() {
            out.splice(*start..*end, with.iter().copied());
        }
        out
    });
    // A long body is sent in pieces.
    let padding = [b'.'; 5000];
    let mut long = Splices::default();
    for (start, end, with) in &edits {
        long.replace(*start..*end, with.clone());
    }
    if fit {
        let padded = [body, &padding].concat().into();
        let sliced = long.apply(&padded).map(|parts| parts.joined());
        let expected = expected.as_ref().map(|body| [body, &padding[..]].concat());
        assert_eq!(sliced.as_deref(), expected.as_deref());
    }
    let body = Bytes::copy_from_slice(body);
    let edited = splices.apply(&body).map(|parts| parts.joined());
    assert_eq!(edited.as_deref(), expected.as_deref());
}

/// Cuts a stream as its first bytes say.
fn chunks(bytes: &[u8]) -> (&[u8], Vec<&[u8]>) {
    let (cuts, stream) = bytes.split_at(bytes.len().min(4));
    let mut chunks = Vec::new();
    let mut rest = stream;
    for cut in cuts.iter().cycle().take(1000) {
        let (chunk, tail) = rest.split_at(rest.len().min(1 + usize::from(cut % 32)));
        chunks.push(chunk);
        rest = tail;
    }
    chunks.push(rest);
    (stream, chunks)
}

/// However a stream is cut, its pieces are the stream, and its lines and events are the same.
pub(super) fn sse(bytes: &[u8]) {
    let (stream, cut) = chunks(bytes);
    let (pieces, lines) = split(&cut);
    assert_eq!(pieces, stream);
    assert_eq!(lines, split(&[stream]).1);
    assert_eq!(events(&cut), events(&[stream]));
}

fn split(chunks: &[&[u8]]) -> (Vec<u8>, Vec<Vec<u8>>) {
    let mut splitter = Lines::new(64);
    let (mut pieces, mut lines) = (Vec::new(), Vec::new());
    let mut keep = |piece: Piece<'_>| {
        pieces.extend(piece.parts().concat());
        if let Piece::Line { text, .. } = piece {
            lines.push(text.to_vec());
        }
    };
    for chunk in chunks {
        let mut feed = splitter.feed(chunk);
        while let Some(piece) = feed.next() {
            keep(piece);
        }
    }
    if let Some(piece) = splitter.finish() {
        keep(piece);
    }
    (pieces, lines)
}

fn events(chunks: &[&[u8]]) -> Vec<(Vec<u8>, Vec<u8>)> {
    let mut reader = Events::default();
    let mut events = Vec::new();
    let mut keep = |event: answers::sse::Event<'_>| {
        events.push((event.name.to_vec(), event.data.to_vec()));
    };
    for chunk in chunks {
        reader.feed(chunk, &mut keep);
    }
    reader.finish(&mut keep);
    events
}

/// The filter takes bytes out and puts none in or elsewhere; without usage it takes nothing; and cut
/// up it never takes more than in one piece.
pub(super) fn usage_filter(bytes: &[u8]) {
    let (stream, cut) = chunks(bytes);
    let whole = filtered(&[stream]);
    for passed in [&whole, &filtered(&cut)] {
        let mut rest = stream.iter();
        assert!(passed.iter().all(|byte| rest.any(|other| other == byte)));
        if !stream.windows(7).any(|window| window == b"\"usage\"") {
            assert_eq!(passed, stream);
        }
        assert!(passed.len() >= whole.len());
    }
}

fn filtered(chunks: &[&[u8]]) -> Vec<u8> {
    let mut filter = Filter::new(true, None);
    let mut passed = Vec::new();
    for chunk in chunks {
        passed.extend_from_slice(&filter.feed(&Bytes::copy_from_slice(chunk)));
    }
    passed.extend_from_slice(&filter.finish());
    assert!(!filter.holds());
    passed
}

/// However a stream is cut, a handler makes the same of it; what it makes of JSON is JSON in which it
/// finds nothing more to do; what is no JSON stays.
pub(super) fn postprocess(bytes: &[u8]) {
    let (stream, cut) = chunks(bytes);
    for (_, named) in Postprocess::WORDS {
        let Some(handler) = handler(*named) else {
            continue;
        };
        assert_eq!(rewritten(handler, &cut), rewritten(handler, &[stream]));
        let mut editor = Editor::new(handler);
        let mut edited = Vec::new();
        if editor.edit(stream, 0..stream.len(), &mut edited) {
            assert!(is_json(stream) && is_json(&edited));
            let mut again = Vec::new();
            assert!(!editor.edit(&edited, 0..edited.len(), &mut again));
        } else {
            assert!(edited.is_empty());
        }
    }
}

fn rewritten(handler: &'static dyn Handler, chunks: &[&[u8]]) -> Vec<u8> {
    let mut filter = Filter::new(false, Some(handler));
    let mut passed = Vec::new();
    for chunk in chunks {
        passed.extend_from_slice(&filter.feed(&Bytes::copy_from_slice(chunk)));
    }
    passed.extend_from_slice(&filter.finish());
    assert!(!filter.holds());
    passed
}
