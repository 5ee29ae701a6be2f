//! The valid configuration: types that cannot express nonsense. `check` makes them; the rest of
//! the program sees only these.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use router_core::admission::priority::Bucket;
use router_core::affinity::{Hash, Saturated};
use router_core::balance::{Balance, Normalize};
use router_core::layered::Setting;
use router_core::load::{LoadModel, StalePolicy};
use router_core::pool::{FullPolicy, PeerKey, Weight};
use router_core::rules::Rules;
use router_core::session::SessionSource;
use router_core::signal::Metric;

use super::units;

/// A text that must not be shown: `Debug` prints `***`, and there is no `Display`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(Arc<str>);

impl Secret {
    /// Wraps a secret text.
    pub fn new(text: impl Into<Arc<str>>) -> Self {
        Self(text.into())
    }

    /// The text itself, for the one place that needs it.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// Who may use a status path.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusAccess {
    /// Loopback callers only.
    Loopback,
    /// Callers with a key of the route.
    Key,
    /// Everyone.
    Open,
    /// Nobody: the paths do not exist on the public port.
    Off,
}

/// Who may read the admin port beyond health and metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AdminRead {
    /// Loopback callers and holders of the admin token.
    Token,
    /// Everyone.
    Open,
}

/// What an unusable key file means when no set was ever loaded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OnMissing {
    /// Requests pass unauthenticated; logged as an error and reported everywhere.
    Allow,
    /// Requests are refused.
    Deny,
}

/// `router.yaml`, valid.
#[derive(Clone, Debug)]
pub struct Main {
    /// Where it was read from; `None` when no file was found and every option has its default.
    pub path: Option<PathBuf>,
    /// `server:`.
    pub server: Server,
    /// `keys:`.
    pub keys: Keys,
    /// The directory of route files, absolute or relative to the working directory.
    pub routes_dir: PathBuf,
    /// `bodylog:`.
    pub bodylog: Bodylog,
}

/// `server:`. A change of `listen` or `admin_listen` needs a restart; the rest reloads.
#[derive(Clone, Debug, PartialEq)]
pub struct Server {
    /// Public port.
    pub listen: SocketAddr,
    /// Admin port.
    pub admin_listen: SocketAddr,
    /// Who reads the admin port.
    pub admin_read: AdminRead,
    /// What `/v1/...` without a route prefix means.
    pub default_route: Option<String>,
    /// Bytes; ceiling for any route.
    pub max_body_size: u64,
    /// Bytes; request bodies in memory, all requests together.
    pub max_buffered_bytes: u64,
    /// TCP and TLS connect to a peer.
    pub connect_timeout: Duration,
    /// Whole request, first byte to last; `None` = off.
    pub request_timeout: Option<Duration>,
    /// From the request sent to the response headers.
    pub response_timeout: Duration,
    /// Between two chunks of a response.
    pub idle_timeout: Duration,
    /// Readiness off, still accepting.
    pub drain_delay: Duration,
    /// Then wait this long for requests in flight.
    pub drain_timeout: Duration,
    /// `/_*` on the public port.
    pub status_access: StatusAccess,
    /// Bearer token for admin callers that are not loopback.
    pub admin_token_file: Option<PathBuf>,
    /// Proxies whose `X-Forwarded-For` / `X-Real-IP` count.
    pub trusted_proxies: Vec<IpNet>,
    /// One line per request.
    pub access_log: bool,
}

/// `keys:`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    /// The key file.
    pub file: PathBuf,
    /// What an unusable file means at start.
    pub on_missing: OnMissing,
}

/// `bodylog:`. A change of `spool.dir` needs a restart.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Bodylog {
    /// `host:port`, an IPv6 host in brackets; `None`: nothing is recorded. The environment's
    /// override is applied.
    pub listener: Option<Arc<str>>,
    /// The file with the token that the listener asks for.
    pub token_file: Option<PathBuf>,
    /// The listener speaks TLS.
    pub tls: Option<BodylogTls>,
    /// Bytes of records in memory, all routes together.
    pub memory: u64,
    /// Where records wait while the listener is away; `None`: in memory only.
    pub spool: Option<Spool>,
}

/// `bodylog.tls` and what belongs to it. The files are read at each connection.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BodylogTls {
    /// The authorities that may sign the listener's certificate; `None`: the system's.
    pub ca_file: Option<PathBuf>,
    /// Certificate chain and key that are shown to the listener.
    pub identity: Option<(PathBuf, PathBuf)>,
}

/// `bodylog.spool:` with a directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Spool {
    /// Its directory.
    pub dir: PathBuf,
    /// Bytes it may hold.
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
    /// Everything else, each with the layer it came from.
    pub options: RouteOptions,
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

/// [`largest_tier`] where the slots of a peer may be known better than from its file. The halves of
/// split requests add nothing to the room of whole ones.
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
    /// The operator's name; defaults to the key.
    pub name: Arc<str>,
    /// True for an `https` URL.
    pub tls: bool,
    /// Base path of the URL without a trailing slash; empty for none.
    pub base_path: Arc<str>,
    /// Tier.
    pub priority: i64,
    /// `max_concurrency`, `default_max` already applied.
    pub max_concurrency: u32,
    /// `max_concurrency: auto`: the engine's own number counts once it is known.
    pub learns_slots: bool,
    /// Preference on ties.
    pub weight: Weight,
    /// Keeps its sessions and gets no new ones.
    pub draining: bool,
    /// What it is for; requests go to regular peers.
    pub role: Role,
    /// Whose load page it has.
    pub engine: Engine,
    /// The load page, where it is not `/metrics` of the peer.
    pub metrics_url: Option<Arc<str>>,
    /// False: never probed, never chosen.
    pub enabled: bool,
    /// Replaces the client's credential.
    pub api_key: Option<Secret>,
    /// Probe path; the route's where absent.
    pub probe: Option<Arc<str>>,
    /// A label, shown only.
    pub gpu: Option<Arc<str>>,
}

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

/// Where a peer's load comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LoadSignal {
    /// The router's own requests.
    InFlight,
    /// The engine's metrics too.
    Engine,
}

/// What becomes of a pinned request when every peer of its model is out.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinFallback {
    /// Any peer serves it.
    Any,
    /// It is refused: only a peer that lists its model may serve it.
    SameModel,
    /// It is refused.
    None,
}

/// What a model means that no peer lists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum UnknownModel {
    /// Nothing.
    Route,
    /// 404.
    NotFound,
}

/// How a request that names no session finds its conversation's peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum AffinityFallback {
    /// It does not.
    None,
    /// By the longest known prefix.
    Prefix,
}

/// Which engine a peer runs: whose load page is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Engine {
    /// The page tells.
    Auto,
    /// This one.
    Known(EngineDialect),
    /// It has no load page.
    Ollama,
    /// It is never asked.
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

    /// As the `engine` option spells it.
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

/// How `kimi_normalize` finds the number in a tool-call id.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum IdStrategy {
    /// The call's position among all calls of the conversation, from 0.
    #[default]
    Rerank,
    /// 1 000 000 plus the CRC-32 of name, `0x01` and arguments, modulo 1 000 000.
    Hash,
    /// The position among the calls that have an id and a name; the last one keeps up with the
    /// greatest number that was there.
    RerankMaxlast,
    /// Ids of the right form stay while their numbers rise; the others get the next number.
    Keepinc,
}

/// What rewrites the answers of a route.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Postprocess {
    /// Nothing.
    None,
    /// Usage that an engine repeats in each chunk is removed.
    StripActualUsage,
    /// Members are renamed as vLLM names them.
    VllmFormat,
}

/// What a peer is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Role {
    /// Whole requests.
    Regular,
    /// The prefill half of a split request.
    Prefill,
    /// The decode half of a split request.
    Decode,
}

/// `load_signal` and what goes with it.
#[derive(Clone, Debug)]
pub struct LoadOptions {
    /// `load_signal`, `balance`'s implication applied.
    pub signal: Setting<LoadSignal>,
    /// `poll_interval`.
    pub poll_interval: Setting<Duration>,
    /// `poll_timeout`.
    pub poll_timeout: Setting<Duration>,
    /// `stale_after`.
    pub stale_after: Setting<Duration>,
    /// `stale_policy`.
    pub stale_policy: Setting<StalePolicy>,
    /// `hold_max`.
    pub hold_max: Setting<Duration>,
    /// `load_model`.
    pub model: Setting<LoadModel>,
    /// `normalize`.
    pub normalize: Setting<Normalize>,
    /// `pin_model`.
    pub pin_model: Setting<bool>,
    /// `pin_fallback`.
    pub pin_fallback: Setting<PinFallback>,
    /// `unknown_model`.
    pub unknown_model: Setting<UnknownModel>,
}

/// Every option of a route but its peers. One field per knob, spelled as in the file.
#[derive(Clone, Debug)]
pub struct RouteOptions {
    /// `max_concurrency` where a peer has none.
    pub default_max: Setting<u32>,
    /// Retries may go to a lower tier.
    pub cross_tier_fallback: Setting<bool>,
    /// How sessions are placed.
    pub affinity: Setting<AffinityKind>,
    /// The switch behind `_affinity_toggle`.
    pub affinity_enabled: Setting<bool>,
    /// Placement function.
    pub hash: Setting<Hash>,
    /// What a session does at a full home.
    pub hash_saturated: Setting<Saturated>,
    /// Where session ids are looked for, first non-blank wins.
    pub session_sources: Setting<Arc<[SessionSource]>>,
    /// Idle sessions are forgotten after so long.
    pub session_ttl: Setting<Duration>,
    /// Sessions a pool remembers.
    pub max_sessions: Setting<u32>,
    /// For requests that name no session.
    pub affinity_fallback: Setting<AffinityFallback>,
    /// Load bound of homes, as a multiple of the pool's mean; `None` = off.
    pub affinity_max_load_factor: Setting<Option<f64>>,
    /// For requests without a home.
    pub balance: Setting<Balance>,
    /// What a peer's load is, and what models mean.
    pub load: LoadOptions,
    /// `GET …/v1/models` is the union of the cached lists.
    pub merge_models: Setting<bool>,
    /// What a full pool does.
    pub full_policy: Setting<FullPolicy>,
    /// 429 or 503.
    pub full_status: Setting<u16>,
    /// Requests that may wait for one pool.
    pub wait_max: Setting<u32>,
    /// How long one waits at most.
    pub wait_timeout: Setting<Duration>,
    /// Scales the pool limit and the peers' own maxima.
    pub rt_limit_factor: Setting<f64>,
    /// The master switch of the three load gates, behind `_rate_limit_toggle`.
    pub load_rate_limit: Setting<bool>,
    /// Between two readings of the five-minute average.
    pub cluster_avg_interval: Setting<Duration>,
    /// Extra attempts per request.
    pub max_more_tries: Setting<u32>,
    /// Pause between probes of one peer.
    pub health_check_interval: Setting<Duration>,
    /// Life of a ban without renewal.
    pub health_ban_ttl: Setting<Duration>,
    /// Path probed.
    pub health_probe_path: Setting<Arc<str>>,
    /// A slower answer means busy.
    pub health_timeout: Setting<Duration>,
    /// `ttft_*`.
    pub ttft: SignalOptions,
    /// The switch of the TTFT refusal alone, behind `_ttft_429_toggle`.
    pub ttft_429: Setting<bool>,
    /// `tps_*`.
    pub tps: SignalOptions,
    /// Completions of fewer tokens are not measured.
    pub tps_min_tokens: Setting<u32>,
    /// Completions that took less time to decode are not measured (`tps_min_decode_s`).
    pub tps_min_decode: Setting<Duration>,
    /// `adaptive_cc` and `adaptive_cc_*`.
    pub adaptive: AdaptiveOptions,
    /// `session_prio` and `session_prio_*`.
    pub priority: PriorityOptions,
    /// Requests refused for what they say.
    pub reject_rules: Setting<Arc<Rules>>,
    /// The switch behind `_reject_rules_toggle`.
    pub reject_rules_enabled: Setting<bool>,
    /// Of rules without a status: 400 to 599.
    pub reject_rules_status: Setting<u16>,
    /// A stream of the chat and completion APIs is asked for its usage.
    pub include_usage: Setting<bool>,
    /// Billing headers are taken out of prompts.
    pub cch_strip: Setting<bool>,
    /// Tool-call ids are written as Kimi K2 writes them.
    pub kimi_normalize: Setting<bool>,
    /// How their numbers are found.
    pub kimi_normalize_strategy: Setting<IdStrategy>,
    /// System messages of `/v1/messages` move to `system`.
    pub system_hoist: Setting<bool>,
    /// What rewrites answers; `None` = nothing does.
    pub postprocess: Setting<Postprocess>,
    /// Bodies byte for byte both ways: nothing is ever inserted or removed.
    pub transparent: Setting<bool>,
    /// Keys of this route alone: key text → owner. `None`: the shared file. Empty: open.
    pub api_keys: Setting<Option<Arc<BTreeMap<String, String>>>>,
    /// A validated credential goes on to the engine.
    pub forward_auth: Setting<bool>,
    /// Engine-native prefixes forwarded besides `/v1/`.
    pub extra_paths: Setting<Arc<[Box<str>]>>,
    /// `X-Routed-*` and `x-proxy-backend` on responses.
    pub expose_routing_headers: Setting<bool>,
    /// Whole request; `None` = off. The server's value where the route has none.
    pub request_timeout: Setting<Option<Duration>>,
    /// Bytes, capped by the server's.
    pub max_body_size: Setting<u64>,
    /// `bodylog` and `bodylog_*`.
    pub bodylog: BodylogOptions,
}

/// What both load signals have: `ttft_*` or `tps_*`.
#[derive(Clone, Debug)]
pub struct SignalOptions {
    /// The switch behind `_ttft_toggle` or `_tps_toggle`.
    pub enabled: Setting<bool>,
    /// `ttft_limit_ms` or `tps_limit_tps`; `None` = off.
    pub limit: Setting<Option<f64>>,
    /// Thresholds by `peers_by_model` key; empty = none.
    pub limit_by_model: Setting<BTreeMap<Arc<str>, f64>>,
    /// The metric table, not empty; `None` = off.
    pub metrics: Setting<Option<Arc<[Metric]>>>,
    /// Weight of the newest window, above 0 and at most 1.
    pub ewma_alpha: Setting<f64>,
    /// Length of one histogram.
    pub window: Setting<Duration>,
    /// Life of the average, at least one window.
    pub ttl: Setting<Duration>,
    /// Period of the probe quota.
    pub probe_window: Setting<Duration>,
    /// Requests let through in each period while tripped, at least 1.
    pub probe_per_window: Setting<u32>,
}

impl SignalOptions {
    /// Whether a file gives any pool a threshold.
    pub fn has_threshold(&self) -> bool {
        self.limit.value.is_some()
            || !self.limit_by_model.value.is_empty()
            || self.metrics.value.is_some()
    }
}

/// `adaptive_cc` and `adaptive_cc_*`: coefficients of the route; a pool's bounds follow from its
/// peers.
#[derive(Clone, Debug)]
pub struct AdaptiveOptions {
    /// `adaptive_cc`; with it, a signal that moves the limit has a threshold.
    pub enabled: Setting<bool>,
    /// Between two steps; `tps_window` where nobody says.
    pub interval: Setting<Duration>,
    /// Above 0, below 1.
    pub dec: Setting<f64>,
    /// Above 1.
    pub inc: Setting<f64>,
    /// Floor in slots; beats the fraction.
    pub min: Setting<Option<u32>>,
    /// Floor as a share of the static maximum.
    pub min_frac: Setting<f64>,
    /// Start in slots; beats the fraction.
    pub init: Setting<Option<u32>>,
    /// Start as a share of the static maximum; `None`: at the floor.
    pub init_frac: Setting<Option<f64>>,
    /// Grow from this share in use upward.
    pub pressure_frac: Setting<f64>,
    /// Follow load down below this share; less than `pressure_frac`.
    pub slack_frac: Setting<f64>,
    /// `adaptive_cc_abs`: slots kept above what is in use.
    pub headroom: Setting<f64>,
    /// Life of a limit that no step renews.
    pub ttl: Setting<Duration>,
    /// Whether TTFT moves the limit too.
    pub use_ttft: Setting<bool>,
    /// Low traffic neither shrinks nor expires the limit.
    pub hold_when_idle: Setting<bool>,
}

/// `session_prio` and `session_prio_*`.
#[derive(Clone, Debug)]
pub struct PriorityOptions {
    /// The switch behind `_session_prio_toggle`.
    pub enabled: Setting<bool>,
    /// Turn 1's share of the limit, above 0 and at most 1.
    pub r_new: Setting<f64>,
    /// First turn of the last bucket, at least 2.
    pub full_turn: Setting<u32>,
    /// Multiple of the threshold where everyone is refused; at least every `tol` of the table.
    pub severe: Setting<f64>,
    /// Turn 1 returns below the threshold times this, above 0 and at most 1.
    pub release: Setting<f64>,
    /// Turn 1's own probe slots a window.
    pub t1_probes: Setting<u32>,
    /// Share of requests without a usable header that is worth a warning, 0 to 1.
    pub warn_frac: Setting<f64>,
    /// The buckets themselves, from turn 1, ascending; `None`: made from the options above.
    pub table: Setting<Option<Arc<[Bucket]>>>,
}

/// `bodylog` and `bodylog_*`.
#[derive(Clone, Debug)]
pub struct BodylogOptions {
    /// The switch behind `_bodylog_toggle`.
    pub enabled: Setting<bool>,
    /// Share of requests that is recorded, 0 to 100; fractions count.
    pub pct: Setting<f64>,
    /// Slower requests are recorded whatever `pct` says; `None` = off.
    pub slow: Setting<Option<Duration>>,
    /// What is kept of the two bodies.
    pub bodies: Setting<Bodies>,
    /// Values of JSON bodies that are recorded as `[REDACTED]`.
    pub redact_paths: Setting<Arc<[BodyPath]>>,
}

/// `bodylog_bodies`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Bodies {
    /// All of them, within the caps of the capture.
    Full,
    /// So many bytes of each, at least 1: of the request the first, of the response the beginning and
    /// the end.
    Truncate(u64),
    /// Nothing of them.
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

/// A text is not `full`, `none` or `truncate(<size>)`.
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
