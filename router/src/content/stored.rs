//! Objects that engines store: which paths and answers name them.

use answers::cursor::{Cursor, text};

/// What a path says about stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredPath<'p> {
    /// A collection. A `POST` makes an object.
    Collection(Collection),
    /// An object, or something below it.
    Object {
        /// The id, as it stands in the path.
        id: &'p str,
        /// Whether the path ends with the id.
        is_whole: bool,
    },
}

/// A collection of stored objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Collection {
    /// `/v1/responses`: stored unless the request says otherwise.
    Responses,
    /// `/v1/chat/completions`: stored if the request asks for it.
    Chats,
    /// `/v1/conversations`, `/v1/batches` or `/v1/files`.
    Others,
}

impl<'p> StoredPath<'p> {
    /// Parses a path without its route prefix.
    pub fn of(path: &'p str) -> Option<Self> {
        let rest = path.strip_prefix("/v1/")?;
        let (collection, rest) = match rest.as_bytes().first()? {
            b'r' => (Collection::Responses, rest.strip_prefix("responses")?),
            b'c' => match rest.strip_prefix("chat/completions") {
                Some(rest) => (Collection::Chats, rest),
                None => (Collection::Others, rest.strip_prefix("conversations")?),
            },
            b'b' => (Collection::Others, rest.strip_prefix("batches")?),
            b'f' => (Collection::Others, rest.strip_prefix("files")?),
            _ => return None,
        };
        if rest.is_empty() || rest == "/" {
            return Some(Self::Collection(collection));
        }
        let below = rest.strip_prefix('/')?;
        let (id, after) = below.split_once('/').unwrap_or((below, ""));
        // Actions of the collection itself.
        if id.is_empty() || matches!(id, "compact" | "input_tokens") {
            return None;
        }
        let is_whole = after.is_empty();
        Some(Self::Object { id, is_whole })
    }
}

/// Longest beginning of an answer that is read for its id, bytes.
const READ_MAX: usize = 64 << 10;

/// Reads the id of the object that an answer says was made: `id` of a document, or that of the
/// `response` in an event.
#[derive(Debug, Default)]
pub struct IdReader {
    held: Vec<u8>,
}

/// How far the reading has come.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum IdRead {
    /// The id.
    Found(String),
    /// More of the answer is needed.
    More,
    /// The beginning of the answer names no id.
    Nothing,
}

impl IdReader {
    /// Reads on.
    pub fn feed(&mut self, data: &[u8]) -> IdRead {
        let found = match self.held.is_empty() {
            true => id_in(data),
            false => {
                self.held.extend_from_slice(data);
                id_in(&self.held)
            }
        };
        if let Some(id) = found {
            return IdRead::Found(id);
        }
        if self.held.is_empty() {
            self.held.extend_from_slice(data);
        }
        match self.held.len() > READ_MAX {
            true => IdRead::Nothing,
            false => IdRead::More,
        }
    }
}

/// The id in the beginning of a document or of an event stream.
fn id_in(body: &[u8]) -> Option<String> {
    let start = body.trim_ascii_start();
    if start.first() == Some(&b'{') {
        return id_of(start);
    }
    let lines = start.split(|byte| *byte == b'\n');
    lines
        .filter_map(|line| line.strip_prefix(b"data:"))
        .find_map(id_of)
}

/// The id in a JSON object that may be cut.
fn id_of(json: &[u8]) -> Option<String> {
    let (mut own, mut response) = (None, None);
    // A cut object ends the walk; what came before the cut counts.
    let _ = Cursor::new(json).members(|cursor, key| {
        match &json[key] {
            b"id" => own = Some(cursor.skip()?),
            b"response" => {
                cursor.members(|cursor, key| {
                    let value = cursor.skip()?;
                    if &json[key] == b"id" {
                        response = Some(value);
                    }
                    Some(())
                })?;
            }
            _ => {
                cursor.skip()?;
            }
        }
        // The id of a document is enough; large outputs follow it.
        own.is_none().then_some(())
    });
    let id = text(json, &response.or(own)?)?;
    String::from_utf8(id.into_owned()).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_name_collections_and_objects() {
        use Collection::{Chats, Others, Responses};
        let object = |id, is_whole| Some(StoredPath::Object { id, is_whole });
        for (path, expected) in [
            ("/v1/responses", Some(StoredPath::Collection(Responses))),
            ("/v1/chat/completions/", Some(StoredPath::Collection(Chats))),
            ("/v1/files", Some(StoredPath::Collection(Others))),
            ("/v1/responses/resp_1", object("resp_1", true)),
            ("/v1/responses/resp_1/cancel", object("resp_1", false)),
            ("/v1/chat/completions/c-1/messages", object("c-1", false)),
            ("/v1/conversations/conv_1/items", object("conv_1", false)),
            ("/v1/batches/b_1", object("b_1", true)),
            ("/v1/files/file-1/content", object("file-1", false)),
            ("/v1/responses/input_tokens", None),
            ("/v1/responses_x", None),
            ("/v1/completions", None),
            ("/v1/messages/batches", None),
            ("/v1/", None),
            ("/tokenize", None),
        ] {
            assert_eq!(StoredPath::of(path), expected, "{path}");
        }
    }

    #[test]
    fn an_id_is_found_in_whole_and_in_cut_answers() {
        let found = |parts: &[&str]| {
            let mut reader = IdReader::default();
            let mut last = IdRead::More;
            for part in parts {
                last = reader.feed(part.as_bytes());
            }
            last
        };
        let id = || IdRead::Found("resp_1".into());
        assert_eq!(found(&[r#"{"id":"resp_1","output":[{"id":"m"}]}"#]), id());
        assert_eq!(found(&[r#"{"object":"x","id":"resp_1","output":["#]), id());
        assert_eq!(
            found(&[r#"{"output":[{"id":"m"}],"id""#, r#":"resp_1"}"#]),
            id()
        );
        let event = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n";
        assert_eq!(found(&[event]), id());
        assert_eq!(found(&[&event[..60], &event[60..]]), id());
        assert_eq!(
            found(&["data: {\"id\":\"resp_1\",\"choices\":[]}\n\n"]),
            id()
        );
        assert_eq!(found(&[r#"{"output":[{"id":"m"}]}"#]), IdRead::More);
        let long = format!("{{\"x\":\"{}\"", "y".repeat(READ_MAX));
        assert_eq!(found(&[&long]), IdRead::Nothing);
    }
}
