//! The valid configuration: types that cannot express nonsense. `check` makes them; the rest of
//! the program sees only these.

use std::collections::BTreeMap;
use std::fmt;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ipnet::IpNet;
use router_core::affinity::{Hash, Saturated};
use router_core::balance::Balance;
use router_core::layered::Setting;
use router_core::pool::{FullPolicy, PeerKey};
use router_core::session::SessionSource;

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
    /// `none`.
    None,
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
    /// For requests without a home.
    pub balance: Setting<Balance>,
    /// `GET …/v1/models` is the union of the cached lists.
    pub merge_models: Setting<bool>,
    /// What a full pool does.
    pub full_policy: Setting<FullPolicy>,
    /// 429 or 503.
    pub full_status: Setting<u16>,
    /// Scales the pool limit and the peers' own maxima.
    pub rt_limit_factor: Setting<f64>,
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
}
