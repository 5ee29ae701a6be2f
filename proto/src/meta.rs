//! The router's data about one exchange, apart from the two bodies: the JSON part of a frame.
//!
//! Every field is optional: version 1 senders know few of them, and refused requests have no peer.
//! Within a major version, fields are only ever added. A reader keeps unknown fields, and fields of
//! an unexpected type ([`MetaOf::extra`]), and passes them on.

mod members;
mod surrogates;

use std::borrow::Cow;

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

/// The major version of meta, record and detail row that this code writes. Absent means 1.
pub const SCHEMA: u32 = 2;

/// Token counts under common names, whatever the engine calls them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Usage {
    /// Tokens of the whole prompt, including those read from a cache or written into it.
    pub prompt: u64,
    /// Completion tokens, as the engine counts them.
    pub completion: u64,
    /// Prompt tokens read from the engine's prefix cache.
    pub cached: u64,
    /// Completion tokens spent on reasoning.
    pub reasoning: u64,
    /// The engine's total, or else the sum of prompt and completion.
    pub total: u64,
}

/// [`RespMetaOf`] as read.
pub type RespMeta = RespMetaOf<String, Value>;

/// Data found in the response. A sender that has read the usage puts it here verbatim. `S` is the
/// type of its texts, `J` of any JSON value.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct RespMetaOf<S, J> {
    /// The completion's id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub id: Option<S>,
    /// The model that answered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub model: Option<S>,
    /// In the engine's spelling (OpenAI).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finish_reason: Option<S>,
    /// In the engine's spelling (Anthropic).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub stop_reason: Option<S>,
    /// The last usage object, verbatim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub usage: Option<J>,
    /// The second usage object that some engines send, verbatim, even if the client never saw it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub actual_usage: Option<J>,
    /// Reasoning text.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reasoning: Option<S>,
    /// Tool calls with merged fragments, in the order in which they began.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub tool_calls: Vec<J>,
    /// The last error object, verbatim.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<J>,
}

impl<S, J> RespMetaOf<S, J> {
    /// Whether nothing was found.
    pub fn is_empty(&self) -> bool {
        let texts = [
            &self.id,
            &self.model,
            &self.finish_reason,
            &self.stop_reason,
            &self.reasoning,
        ];
        let values = [&self.usage, &self.actual_usage, &self.error];
        texts.iter().all(|text| text.is_none())
            && values.iter().all(|value| value.is_none())
            && self.tool_calls.is_empty()
    }

    /// Converts its texts and values to another form.
    pub fn map<T, K>(self, text: impl Fn(S) -> T, json: impl Fn(J) -> K) -> RespMetaOf<T, K> {
        RespMetaOf {
            id: self.id.map(&text),
            model: self.model.map(&text),
            finish_reason: self.finish_reason.map(&text),
            stop_reason: self.stop_reason.map(&text),
            usage: self.usage.map(&json),
            actual_usage: self.actual_usage.map(&json),
            reasoning: self.reasoning.map(&text),
            tool_calls: self.tool_calls.into_iter().map(&json).collect(),
            error: self.error.map(&json),
        }
    }
}

/// [`MetaOf`] as read.
pub type Meta = MetaOf<String, Value, Map<String, Value>>;

/// Whether a member is left out of the object.
trait Absent {
    fn is_absent(&self) -> bool;
}

impl<T> Absent for Option<T> {
    fn is_absent(&self) -> bool {
        self.is_none()
    }
}

impl Absent for bool {
    fn is_absent(&self) -> bool {
        !*self
    }
}

macro_rules! meta {
    ($(
        $(#[doc = $doc:literal])+
        $by:ident $kind:ident $name:ident: $Type:ty;
    )*) => {
        /// The data about one exchange. Times are seconds from the arrival of the request, rounded to
        /// milliseconds. `S` is the type of its texts, `J` of any JSON value, `H` of the headers, so
        /// that a writer can borrow them.
        #[derive(Clone, Default, PartialEq, Serialize, Deserialize)]
        #[serde(
            default,
            bound(
                serialize = "S: Serialize, J: Serialize, H: Serialize",
                deserialize = "S: Default + Deserialize<'de>, J: Default + Deserialize<'de>, H: Default + Deserialize<'de>"
            )
        )]
        pub struct MetaOf<S, J, H> {
            $(
                $(#[doc = $doc])+
                #[serde(skip_serializing_if = "Absent::is_absent")]
                pub $name: $Type,
            )*
            /// All other fields, ordered by name.
            #[serde(flatten)]
            pub extra: Map<String, Value>,
        }

        /// Name, kind, writer and meaning of every member.
        #[cfg(test)]
        pub(crate) const TABLE: &[[&str; 4]] = &[$([
            stringify!($name),
            stringify!($kind),
            stringify!($by),
            concat!($($doc),+),
        ]),*];
    };
}

crate::meta_members!(meta);

/// Shows only the identifiers, because other values may be secrets or prompts.
impl<S: std::fmt::Debug, J, H> std::fmt::Debug for MetaOf<S, J, H> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Meta")
            .field("v", &self.v)
            .field("request_id", &self.request_id)
            .field("route", &self.route)
            .field("status", &self.status)
            .finish_non_exhaustive()
    }
}

/// The bytes are not a JSON object.
#[derive(Debug, thiserror::Error)]
#[error("read the meta object")]
pub struct MetaError(#[source] serde_json::Error);

impl Meta {
    /// Parses a meta object. Bytes that are not UTF-8, and escapes of half a surrogate pair, become
    /// U+FFFD. A known field of an unexpected type goes to [`MetaOf::extra`].
    ///
    /// # Errors
    /// When the bytes are not a JSON object.
    pub fn from_json(bytes: &[u8]) -> Result<Self, MetaError> {
        // The standard check skips over ASCII quickly, while the lossy one goes byte by byte.
        let text = match std::str::from_utf8(bytes) {
            Ok(text) => Cow::Borrowed(text),
            Err(_) => String::from_utf8_lossy(bytes),
        };
        if let Ok(meta) = serde_json::from_str::<Self>(&text) {
            return Ok(meta);
        }
        let text = surrogates::mended(&text).map_or(text, Cow::Owned);
        let all: Map<String, Value> = serde_json::from_str(&text).map_err(MetaError)?;
        let mut sound = Map::new();
        let mut odd = Map::new();
        for (name, value) in all {
            let alone = Value::Object(Map::from_iter([(name.clone(), value.clone())]));
            if Self::deserialize(alone).is_ok() {
                sound.insert(name, value);
            } else {
                odd.insert(name, value);
            }
        }
        let mut meta = Self::deserialize(Value::Object(sound)).map_err(MetaError)?;
        meta.extra.append(&mut odd);
        Ok(meta)
    }

    /// See [`MetaOf::to_json_within`].
    fn trimmed(mut self, limit: usize) -> Option<Bytes> {
        self.meta_trimmed = true;
        self.drop_headers(limit);
        let steps: [fn(&mut Self); 5] = [
            |_| {},
            |meta| meta.req_headers = None,
            |meta| {
                meta.resp_meta = None;
                meta.decision = None;
            },
            |meta| meta.extra.clear(),
            |meta| {
                if let Some(uri) = &mut meta.uri {
                    uri.truncate(uri.floor_char_boundary(KEPT_URI));
                }
            },
        ];
        steps.into_iter().find_map(|step| {
            step(&mut self);
            let json = serde_json::to_vec(&self).ok()?;
            (json.len() <= limit).then(|| Bytes::from(json))
        })
    }

    /// Drops the largest headers until the rest of the object fits.
    fn drop_headers(&mut self, limit: usize) {
        let size = |value: &Value| serde_json::to_vec(value).map_or(0, |json| json.len());
        let mut len = serde_json::to_vec(self).map_or(usize::MAX, |json| json.len());
        let Some(headers) = &mut self.req_headers else {
            return;
        };
        let mut by_size: Vec<(usize, String)> = headers
            .iter()
            .map(|(name, value)| (size(value) + name.len() + 4, name.clone()))
            .collect();
        by_size.sort_by(|a, b| b.cmp(a));
        for (bytes, name) in by_size {
            if len <= limit {
                break;
            }
            headers.remove(&name);
            len = len.saturating_sub(bytes);
        }
    }
}

impl<S: Serialize, J: Serialize, H: Serialize> MetaOf<S, J, H> {
    /// The object as JSON of at most `limit` bytes. To get there, parts are left out in this order:
    /// headers, the largest first; data found in the response; the decision; unknown fields; the
    /// end of the URI. [`MetaOf::meta_trimmed`] reports this. `None` when that is not enough.
    pub fn to_json_within(&self, limit: usize) -> Option<Bytes> {
        let mut json = Vec::with_capacity(JSON_USUAL);
        serde_json::to_writer(&mut json, self).ok()?;
        if json.len() <= limit {
            return Some(json.into());
        }
        Meta::from_json(&json).ok()?.trimmed(limit)
    }
}

/// Most objects have fewer bytes.
const JSON_USUAL: usize = 2 << 10;

/// Bytes of the URI that are kept as the last step.
const KEPT_URI: usize = 4 << 10;

#[cfg(test)]
mod tests;
