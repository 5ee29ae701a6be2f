//! The valid configuration, in types that cannot express invalid values. `check` makes them; the
//! rest of the program sees only these.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use router_core::pool::{PeerKey, Weight};

use super::owners::Owners;
use super::units;

pub use super::options::{
    AdaptiveOptions, BodylogOptions, LoadOptions, PriorityOptions, RouteOptions, SignalOptions,
};

/// A text that must not be shown: `Debug` prints `***`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the single place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// The access rule of the status paths.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusAccess {
    /// Loopback callers only.
    Loopback,
    /// Callers with a key of the route.
    Key,
    /// All callers.
    Open,
    /// No caller: the paths do not exist on the public port.
    Off,
}

/// The access rule of the admin port beyond health and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRead {
    /// Loopback callers and holders of the admin token.
    Token,
    /// All callers.
    Open,
}

/// Treatment of an unusable key file when no set was ever loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// Requests pass without authentication; this is logged as an error and reported everywhere.
    Allow,
    /// Requests are refused.
    Deny,
}

/// `router.yaml`, valid.
#[derive(Clone, Debug)]
pub struct Main {
    /// The path of the file; `None` when no file was found and every option has its default.
    pub path: Option<PathBuf>,
    /// `server:`.
    pub server: Server,
    /// `keys:`.
    pub keys: Keys,
    /// The directory of route files, absolute or relative to the working directory.
    pub routes_dir: PathBuf,
    /// `bodylog:`.
    pub bodylog: Bodylog,
    /// `owners:`.
    pub owners: Arc<Owners>,
}

/// `server:`. A change of `listen` or `admin_listen` needs a restart; the rest reloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Public port.
    pub listen: SocketAddr,
    /// Admin port.
    pub admin_listen: SocketAddr,
    /// The access rule of the admin port.
    pub admin_read: AdminRead,
    /// Whether the admin port has the console.
    pub console: bool,
    /// Whether the process is ready while no route has a usable peer.
    pub ready_without_peers: bool,
    /// The route of `/v1/...` requests without a route prefix.
    pub default_route: Option<String>,
    /// Connections on the public port; `None`: as the limit on open files allows.
    pub max_connections: Option<u32>,
    /// Connections on the public port from one address; `None`: no limit of its own.
    pub max_connections_per_source: Option<u32>,
    /// Upper limit of a request body for any route, bytes.
    pub max_body_size: u64,
    /// Upper limit of request bodies in memory over all requests, bytes.
    pub max_buffered_bytes: u64,
    /// Time for TCP and TLS connect to a peer.
    pub connect_timeout: Duration,
    /// Time for a whole request, first byte to last; `None` = off.
    pub request_timeout: Option<Duration>,
    /// Time from the sent request to the response headers.
    pub response_timeout: Duration,
    /// Time between two chunks of a response.
    pub idle_timeout: Duration,
    /// Time in which readiness is off and the router still accepts.
    pub drain_delay: Duration,
    /// Time to wait for requests in flight after that.
    pub drain_timeout: Duration,
    /// The access rule of `/_*` on the public port.
    pub status_access: StatusAccess,
    /// File with the bearer token for admin callers that are not loopback.
    pub admin_token_file: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` / `X-Real-IP` are trusted.
    pub trusted_proxies: Vec<IpNet>,
    /// Whether to log one line per request.
    pub access_log: bool,
    /// How long a finding stays after its cause has gone.
    pub findings_window: Duration,
    /// The web pages that may call the public port; `None`: CORS is off.
    pub cors: Option<Cors>,
}

/// The web pages that may call the public port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cors {
    origins: Arc<[Origin]>,
}

impl Cors {
    /// Admits pages of these origins.
    pub(crate) fn new(origins: Vec<Origin>) -> Self {
        Self {
            origins: origins.into(),
        }
    }

    /// Whether pages of every origin are admitted.
    pub fn is_for_all(&self) -> bool {
        self.origins.contains(&Origin::Any)
    }

    /// Whether pages of this origin are admitted.
    pub fn admits(&self, origin: &str) -> bool {
        self.origins.iter().any(|known| match known {
            Origin::Any => true,
            Origin::Is(known) => **known == *origin,
        })
    }
}

/// An entry of `cors.origins`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// `*`.
    Any,
    /// `scheme://host[:port]`.
    Is(Box<str>),
}

/// `keys:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The key file.
    pub file: PathBuf,
    /// Treatment of an unusable file at start.
    pub on_missing: OnMissing,
}

/// `bodylog:`. A change of `spool.dir` needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bodylog {
    /// `host:port`, an IPv6 host in brackets; `None`: nothing is recorded. The override from the
    /// environment is applied.
    pub listener: Option<Arc<str>>,
    /// The file with the token that the listener requires.
    pub token_file: Option<PathBuf>,
    /// Present when the listener uses TLS.
    pub tls: Option<BodylogTls>,
    /// Upper limit of records in memory over all routes, bytes.
    pub memory: u64,
    /// Where records wait while the listener is unreachable; `None`: only in memory.
    pub spool: Option<Spool>,
}

/// `bodylog.tls` and related options. The files are read at each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodylogTls {
    /// The authorities that may sign the listener's certificate; `None`: those of the system.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain and key that the router presents to the listener.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// `bodylog.spool:` with a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Its directory.
    pub dir: PathBuf,
    /// Maximum size in bytes.
    pub max_bytes: u64,
}

/// One route, valid.
#[derive(Clone, Debug)]
pub struct Route {
    /// `[a-z0-9][a-z0-9._-]*`, not reserved.
    pub name: Arc<str>,
    /// The file it came from.
    pub path: PathBuf,
    /// One pool without a model, or one per `peers_by_model` key.
    pub pools: Vec<Pool>,
    /// Where more peers of the flat pool come from.
    pub peers_from: Option<PeersFrom>,
    /// All other options, each with the layer that set it.
    pub options: RouteOptions,
}

/// `peers_from`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PeersFrom {
    /// A watched file.
    File(PathBuf),
    /// The addresses of a name.
    Dns {
        /// The name.
        name: Arc<str>,
        /// The port of every address.
        port: u16,
        /// How often it is resolved.
        refresh: Duration,
    },
}

impl fmt::Display for PeersFrom {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::File(path) => write!(f, "file {}", path.display()),
            Self::Dns { name, port, .. } => write!(f, "dns {name}:{port}"),
        }
    }
}

/// The peers of one model.
#[derive(Clone, Debug)]
pub struct Pool {
    /// The `peers_by_model` key; `None` for the flat pool.
    pub model: Option<Arc<str>>,
    /// File order.
    pub peers: Vec<Peer>,
}

/// The largest sum of `max_concurrency` over the enabled peers of any one tier: the static maximum
/// of the adaptive limit.
pub fn largest_tier<'a>(peers: impl IntoIterator<Item = &'a Peer>) -> u64 {
    largest_tier_by(peers, |peer| peer.max_concurrency)
}

/// [`largest_tier`] for callers that may know the slots of a peer better than its file. Prefill and
/// decode peers add nothing to the room for whole requests.
pub fn largest_tier_by<'a>(
    peers: impl IntoIterator<Item = &'a Peer>,
    slots: impl Fn(&Peer) -> u32,
) -> u64 {
    let mut tiers: BTreeMap<i64, u64> = BTreeMap::new();
    let counts = |peer: &&Peer| peer.enabled && peer.role == Role::Regular;
    for peer in peers.into_iter().filter(counts) {
        *tiers.entry(peer.priority).or_default() += u64::from(slots(peer));
    }
    tiers.into_values().max().unwrap_or(0)
}

/// One peer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Peer {
    /// `host:port`.
    pub key: PeerKey,
    /// The operator's name for the peer; defaults to the key.
    pub name: Arc<str>,
    /// True for an `https` URL.
    pub tls: bool,
    /// Base path of the URL without a trailing slash; empty for none.
    pub base_path: Arc<str>,
    /// Priority of the peer's tier.
    pub priority: i64,
    /// `max_concurrency`, with `default_max` applied.
    pub max_concurrency: u32,
    /// `max_concurrency: auto`: the engine's own number applies once it is known.
    pub learns_slots: bool,
    /// Preference between equally loaded peers.
    pub weight: Weight,
    /// The peer keeps its sessions and gets no new ones.
    pub draining: bool,
    /// The role of the peer. Requests go to regular peers.
    pub role: Role,
    /// The engine, which determines how its load page is read.
    pub engine: Engine,
    /// The load page, if it is not `/metrics` of the peer.
    pub metrics_url: Option<Arc<str>>,
    /// When false, the peer is never probed and never chosen.
    pub enabled: bool,
    /// Replaces the client's credential.
    pub api_key: Option<Secret>,
    /// Probe path; the route's path if absent.
    pub probe: Option<Arc<str>>,
    /// A label, for display only.
    pub gpu: Option<Arc<str>>,
}

/// `health_check: {kind: generate}`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GenerateCheck {
    /// A peer that began no answer for this long is asked.
    pub idle: Duration,
    /// How long the whole answer may take.
    pub timeout: Duration,
    /// The API that is asked.
    pub api: GenerateApi,
    /// The model that is asked for; `None`: the pool's, else the first one that the peer lists.
    pub model: Option<Arc<str>>,
}

/// `health_check.kind`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CheckKind {
    /// A request for one token.
    Generate,
}

/// `health_check.api`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GenerateApi {
    /// `/v1/chat/completions`
    Chat,
    /// `/v1/completions`
    Completions,
    /// `/v1/responses`
    Responses,
    /// `/v1/messages`
    Messages,
    /// `/v1/embeddings`
    Embeddings,
}

/// `hang_after`; `None`: the built-in bounds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct HangAfter(pub Option<Duration>);

/// Affinity without its parameters: the value of the `affinity` option.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityKind {
    /// `hash`.
    Hash,
    /// `sticky_least_loaded`.
    StickyLeastLoaded,
    /// `none`.
    None,
}

/// The source of a peer's load.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSignal {
    /// The router's own requests.
    InFlight,
    /// The router's own requests and the engine's metrics.
    Engine,
}

/// Treatment of a pinned request when every peer of its model is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinFallback {
    /// Any peer may serve the request.
    Any,
    /// The request is refused: only a peer that lists its model may serve it.
    SameModel,
    /// The request is refused.
    None,
}

/// Treatment of a model that no peer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownModel {
    /// The request is routed as if it named no model.
    Route,
    /// 404.
    NotFound,
}

/// How a request without a session finds the peer of its conversation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityFallback {
    /// It is balanced without regard to the conversation.
    None,
    /// By the longest known prefix.
    Prefix,
}

/// The engine of a peer, which determines how its load page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The content of the page shows the engine.
    Auto,
    /// A known dialect.
    Known(EngineDialect),
    /// The engine has no load page.
    Ollama,
    /// The engine is never polled.
    None,
}

/// An engine whose load page the router can read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EngineDialect {
    /// llama.cpp's server.
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
    /// `trtllm-serve`.
    TrtLlm,
    /// Triton with the TensorRT-LLM backend.
    Triton,
}

impl EngineDialect {
    /// Every dialect.
    pub const ALL: [Self; 6] = [
        Self::LlamaCpp,
        Self::Vllm,
        Self::Sglang,
        Self::Tgi,
        Self::TrtLlm,
        Self::Triton,
    ];

    /// The spelling in the `engine` option.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
            Self::TrtLlm => "trtllm",
            Self::Triton => "triton",
        }
    }
}

/// How `kimi_normalize` computes the number in a tool-call id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdStrategy {
    /// The call's position among all calls of the conversation, from 0.
    #[default]
    Rerank,
    /// 1 000 000 plus the CRC-32 of name, `0x01` and arguments, modulo 1 000 000.
    Hash,
    /// The position among the calls that have an id and a name. The last call gets at least the
    /// largest number that was there.
    RerankMaxlast,
    /// Ids of the right form stay while their numbers rise; the others get the next number.
    Keepinc,
}

/// The `role: system` messages that move from `messages` to `system`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum SystemHoist {
    /// All of them. A message that is added in mid-conversation changes the beginning of the
    /// prompt.
    All,
    /// Those before the first message of another role.
    #[default]
    Leading,
    /// None.
    Off,
}

/// The handler that rewrites the answers of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Postprocess {
    /// Answers are not rewritten.
    None,
    /// Removes usage that an engine repeats in each chunk.
    StripActualUsage,
    /// Renames members to the names that vLLM uses.
    VllmFormat,
}

/// The routes that take over from a route, in the order of trial.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fallback(pub Arc<[Arc<str>]>);

/// The model's name in answers to a request by an alias.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AliasAnswers {
    /// The name that the client asked for.
    Asked,
    /// The engine's name.
    Served,
}

/// The role of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whole requests.
    Regular,
    /// The prefill half of a split request.
    Prefill,
    /// The decode half of a split request.
    Decode,
}

impl SignalOptions {
    /// Whether a file sets a threshold for any pool.
    pub fn has_threshold(&self) -> bool {
        self.limit.value.is_some()
            || !self.limit_by_model.value.is_empty()
            || self.metrics.value.is_some()
    }
}

/// `bodylog_bodies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// The full bodies, within the limits of the capture.
    Full,
    /// This many bytes of each body, at least 1: the first bytes of the request, the beginning and
    /// the end of the response.
    Truncate(u64),
    /// No bodies.
    None,
}

impl FromStr for Bodies {
    type Err = NoBodies;

    fn from_str(text: &str) -> Result<Self, NoBodies> {
        match text {
            "full" => Ok(Self::Full),
            "none" => Ok(Self::None),
            text => text
                .strip_prefix("truncate(")
                .and_then(|rest| rest.strip_suffix(')'))
                .and_then(|bytes| units::size(bytes.trim()))
                .filter(|bytes| *bytes > 0)
                .map(Self::Truncate)
                .ok_or(NoBodies),
        }
    }
}

impl fmt::Display for Bodies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Full => f.write_str("full"),
            Self::Truncate(bytes) => write!(f, "truncate({})", units::show_size(*bytes)),
            Self::None => f.write_str("none"),
        }
    }
}

/// Error: the text is not `full`, `none` or `truncate(<size>)`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoBodies;

/// A place in a JSON body, as `messages.*.content`: names and list indices, `*` for every member or
/// element.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodyPath {
    /// The segments, outermost first; none is empty, and there is at least one.
    pub segments: Arc<[Box<str>]>,
}

impl AsRef<[Box<str>]> for BodyPath {
    fn as_ref(&self) -> &[Box<str>] {
        &self.segments
    }
}

impl fmt::Display for BodyPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.segments.join("."))
    }
}
