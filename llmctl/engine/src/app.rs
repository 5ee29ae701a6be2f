//! Shared state and functions of the handlers: the model list, IDs, and the conversion of a request
//! into a job.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, StatusCode};
use serde::de::DeserializeOwned;
use serde_json::Value;

use crate::Options;
use crate::compute::Core;
use crate::failure::Failure;
use crate::faults::Faults;
use crate::generate::Job;
use crate::log::{Exchange, Log};
use crate::reply::{self, Api, Form};
use crate::stored::Stored;
use crate::text::{Finish, Plan, REPLY_MAX};
use crate::tokens::Token;
use crate::tools::{self, Tool};

/// The context length that the engine reports, in tokens. It is not enforced: the router's tests
/// send bodies that fit no real context.
pub(crate) const CONTEXT: usize = 131_072;

/// Maximum number of replies to one request.
const CHOICES_MAX: u64 = 128;

/// Maximum number of stop sequences of one request.
const STOPS_MAX: usize = 16;

/// The state of the engine for its handlers.
#[derive(Clone, Debug)]
pub(crate) struct App {
    pub(crate) options: Arc<Options>,
    pub(crate) core: Arc<Core>,
    pub(crate) faults: Arc<Faults>,
    pub(crate) log: Arc<Log>,
    pub(crate) stored: Arc<Stored>,
    pub(crate) started: SystemTime,
    ids: Arc<AtomicU64>,
}

/// Facts about the request in addition to its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Context {
    pub(crate) exchange: Arc<Exchange>,
    /// Bytes of the first piece of text, with the fault `big-chunk`.
    pub(crate) big_chunk: Option<usize>,
    /// Added to the time to the first token.
    pub(crate) slow_ttft: Duration,
}

/// A tool call instead of a text.
#[derive(Clone, Debug)]
pub(crate) struct Call {
    pub(crate) id: String,
    pub(crate) name: String,
}

/// The parameters that shape the text of a reply.
#[derive(Debug, Default)]
pub(crate) struct Wishes<'a> {
    /// The prompt, which determines the natural length.
    pub(crate) prompt: &'a [Token],
    pub(crate) limit: Option<usize>,
    /// vLLM's `ignore_eos`: continue until the limit.
    pub(crate) ignore_eos: bool,
    pub(crate) stops: Vec<String>,
    pub(crate) tool: Option<&'a Tool>,
    /// The text of the last message, for the arguments of the tool.
    pub(crate) said: Option<&'a str>,
    /// The schema that the text must fit.
    pub(crate) schema: Option<&'a Value>,
}

impl App {
    pub(crate) fn new(options: Options) -> Self {
        Self {
            core: Core::new(options.pace, options.slots, options.cache_blocks),
            faults: Arc::new(Faults::new(options.faults.clone(), options.seed)),
            log: Arc::default(),
            stored: Arc::default(),
            started: SystemTime::now(),
            ids: Arc::default(),
            options: Arc::new(options),
        }
    }

    /// The model that answers: the requested one, or the first when none was requested.
    pub(crate) fn model(&self, asked: Option<String>) -> Result<String, Failure> {
        match asked {
            Some(model) if self.options.strict_model && !self.options.models.contains(&model) => {
                Err(Failure::unknown_model(&model))
            }
            Some(model) => Ok(model),
            None => Ok(self.options.models.first().cloned().unwrap_or_default()),
        }
    }

    /// A new ID, the same in every run.
    pub(crate) fn id(&self, prefix: &str) -> String {
        self.seeded_id(prefix, self.options.seed)
    }

    /// A new ID that no other engine gives: clients find stored objects by it.
    pub(crate) fn unique_id(&self, prefix: &str) -> String {
        let since = self.started.duration_since(UNIX_EPOCH).unwrap_or_default();
        self.seeded_id(
            prefix,
            since.as_secs() ^ u64::from(since.subsec_nanos()) << 32,
        )
    }

    fn seeded_id(&self, prefix: &str, seed: u64) -> String {
        let number = self.ids.fetch_add(1, Relaxed).to_le_bytes();
        let hash = xxhash_rust::xxh3::xxh3_128_with_seed(&number, seed);
        format!("{prefix}{hash:032x}")
    }

    /// The ID of a reply. As in vLLM, it contains the request's own ID if there is one.
    pub(crate) fn reply_id(&self, prefix: &str, headers: &HeaderMap) -> String {
        match headers
            .get("x-request-id")
            .and_then(|value| value.to_str().ok())
        {
            Some(given) => format!("{prefix}{given}"),
            None => self.id(prefix),
        }
    }

    pub(crate) fn plan(&self, wishes: &Wishes<'_>) -> Plan {
        let plan = match (wishes.tool, wishes.schema) {
            (Some(tool), _) => {
                return Plan::text(
                    &tools::arguments(tool, wishes.said),
                    wishes.limit,
                    Finish::ToolCall,
                );
            }
            (None, Some(schema)) => Plan::text(
                &tools::sample(schema).to_string(),
                wishes.limit,
                Finish::Stop,
            ),
            (None, None) => {
                let length = if wishes.ignore_eos {
                    self.options.length.filled()
                } else {
                    self.options.length
                };
                Plan::sentences(length.of(self.options.seed, wishes.prompt), wishes.limit)
            }
        };
        plan.stopped_by(&wishes.stops)
    }

    /// Runs a job and answers with the generated reply.
    pub(crate) async fn reply(
        &self,
        context: Context,
        mut job: Job,
        api: impl Api,
        streaming: bool,
    ) -> Result<Response, Failure> {
        if let (Some(bytes), Some(first)) = (context.big_chunk, job.plan.pieces.first_mut()) {
            *first = "x".repeat(bytes).into();
        }
        let headers_first = self.options.dialect.headers_first();
        reply::reply(
            &self.core,
            job,
            context.exchange,
            api,
            Form {
                streaming,
                headers_first,
                slow_ttft: context.slow_ttft,
            },
        )
        .await
    }
}

/// Seconds since 1970, for `created`.
pub(crate) fn unix(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}

/// Reads a request body.
pub(crate) fn parse<T: DeserializeOwned>(body: &Bytes) -> Result<T, Failure> {
    serde_json::from_slice(body).map_err(|error| {
        Failure::new(
            StatusCode::BAD_REQUEST,
            format!("The body could not be read: {error}"),
        )
    })
}

/// Checks a limit on tokens: at least 1 and at most [`REPLY_MAX`].
pub(crate) fn limit(param: &'static str, asked: Option<i64>) -> Result<Option<usize>, Failure> {
    let in_range = |asked| {
        usize::try_from(asked)
            .ok()
            .filter(|n| (1..=REPLY_MAX).contains(n))
    };
    asked
        .map(|asked| {
            let wrong = || format!("{param} must be from 1 to {REPLY_MAX}, got {asked}.");
            in_range(asked).ok_or_else(|| Failure::invalid(param, wrong()))
        })
        .transpose()
}

/// Checks `n`: from 1 to [`CHOICES_MAX`], 1 when absent.
pub(crate) fn choices(asked: Option<u64>) -> Result<usize, Failure> {
    let asked = asked.unwrap_or(1);
    let valid = usize::try_from(asked)
        .ok()
        .filter(|_| (1..=CHOICES_MAX).contains(&asked));
    valid.ok_or_else(|| {
        Failure::invalid(
            "n",
            format!("n must be from 1 to {CHOICES_MAX}, got {asked}."),
        )
    })
}

/// Reads `stop`: a text or a list of texts.
pub(crate) fn stops(param: &'static str, asked: Option<&Value>) -> Result<Vec<String>, Failure> {
    let wrong = || {
        Failure::invalid(
            param,
            format!("{param} must be a text or a list of at most {STOPS_MAX} texts."),
        )
    };
    match asked {
        None | Some(Value::Null) => Ok(Vec::new()),
        Some(Value::String(one)) => Ok(vec![one.clone()]),
        Some(Value::Array(list)) if list.len() <= STOPS_MAX => list
            .iter()
            .map(|stop| stop.as_str().map(str::to_owned).ok_or_else(wrong))
            .collect(),
        Some(_) => Err(wrong()),
    }
}
