//! The peers behind the router of `up`: simulated engines, real engines by URL, or the peers of
//! existing files.

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use reqwest::Url;
use router_config::load::{Sources, load};
use router_config::valid;
use serde_json::Value;
use tokio::net::TcpListener;

use super::UpArgs;
use super::files::{NewPeer, Workspace};
use crate::client::{plain_client, root_cause};
use crate::exit::Failure;
use crate::render::Screen;
use sim_engine::{Engine, EngineHandle, Length, MEDIAN_TOKENS, Options, Pace};

const ENGINES_DEFAULT: u16 = 3;
/// Slots of a simulated engine.
const SLOTS: u32 = 8;
/// Speeds of a modest GPU: uncached prompts are visibly slower, and a conversation is still quick.
const PACE: Pace = Pace {
    ttft: Duration::from_millis(20),
    itl: Duration::from_millis(10),
    prefill: Duration::from_micros(200),
};
/// A backend that has not listed its models within this time causes a warning; the router continues
/// to probe it.
const MODELS_TIMEOUT: Duration = Duration::from_secs(3);

/// The peers of `up`.
#[derive(Debug)]
pub(super) struct Behind {
    /// A model that the peers serve, when it is known.
    pub(super) model: Option<String>,
    engines: Vec<EngineHandle>,
    backends: Vec<Url>,
    /// Peers of an existing file that `up` does not have to start.
    elsewhere: Vec<String>,
}

impl Behind {
    /// Starts the peers that need it.
    ///
    /// # Errors
    /// When an existing file contradicts the command line or is invalid, or an engine's port is in
    /// use.
    pub(super) async fn start(
        args: &UpArgs,
        workspace: &Workspace,
        screen: &mut Screen,
    ) -> Result<Self, Failure> {
        if workspace.route_file().exists() {
            if args.engines.is_some() || !args.backends.is_empty() {
                return Err(Failure::Usage(format!(
                    "{} is already there and names its peers: leave out --backend and --engines, or give another --dir",
                    workspace.route_file().display()
                )));
            }
            return Self::of_file(workspace).await;
        }
        let backends: Vec<Url> = args
            .backends
            .iter()
            .map(|text| backend(text))
            .collect::<Result<_, _>>()?;
        if !backends.is_empty() {
            let model = first_model(&backends, screen).await?;
            return Ok(Self {
                model,
                engines: Vec::new(),
                backends,
                elsewhere: Vec::new(),
            });
        }
        let count = args.engines.unwrap_or(ENGINES_DEFAULT);
        let anywhere = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut engines = Vec::new();
        for _ in 0..count {
            engines.push(engine(anywhere, SLOTS).await?);
        }
        Ok(Self::simulated(engines, Vec::new()))
    }

    /// Starts engines at the loopback peers of the existing route file. The other peers run
    /// elsewhere.
    async fn of_file(workspace: &Workspace) -> Result<Self, Failure> {
        let loaded = load(&Sources {
            config: Some(workspace.main_file()),
            ..Sources::default()
        });
        let file = workspace.route_file();
        let Some(found) = loaded.routes.iter().find(|route| route.path == file) else {
            return Err(Failure::Wrong(format!(
                "{} names another directory of routes",
                workspace.main_file().display()
            )));
        };
        let route = found.result.as_ref().map_err(|problems| {
            let style = router_config::report::Style::Plain;
            Failure::Wrong(format!(
                "{} is invalid\n{}",
                file.display(),
                router_config::report::render(problems, style).trim_end()
            ))
        })?;
        let (mut engines, mut elsewhere) = (Vec::new(), Vec::new());
        for peer in route.pools.iter().flat_map(|pool| &pool.peers) {
            match loopback(peer) {
                Some(address) => {
                    let started = engine(address, peer.max_concurrency).await;
                    engines.push(started.map_err(|failure| wanted_by(&file, &failure))?);
                }
                None => elsewhere.push(peer.key.to_string()),
            }
        }
        Ok(Self::simulated(engines, elsewhere))
    }

    fn simulated(engines: Vec<EngineHandle>, elsewhere: Vec<String>) -> Self {
        let model = if engines.is_empty() {
            None
        } else {
            Options::default().models.into_iter().next()
        };
        Self {
            model,
            engines,
            backends: Vec::new(),
            elsewhere,
        }
    }

    /// The peers for a new route file.
    pub(super) fn new_peers(&self) -> Vec<NewPeer> {
        let engines = self
            .engines
            .iter()
            .map(|engine| NewPeer::Engine(engine.addr, SLOTS));
        let backends = self
            .backends
            .iter()
            .map(|url| NewPeer::Backend(url.as_str().trim_end_matches('/').to_owned()));
        engines.chain(backends).collect()
    }

    /// The URLs of the peers.
    pub(super) fn urls(&self) -> Vec<String> {
        let backends = self
            .backends
            .iter()
            .map(|url| url.as_str().trim_end_matches('/').to_owned());
        self.engines
            .iter()
            .map(EngineHandle::url)
            .chain(backends)
            .chain(self.elsewhere.iter().cloned())
            .collect()
    }

    /// Whether any peer is a simulated engine.
    pub(super) fn is_simulated(&self) -> bool {
        !self.engines.is_empty()
    }

    /// Stops the engines.
    pub(super) async fn stop(&self, grace: Duration) {
        for engine in &self.engines {
            engine.shutdown(grace).await;
        }
    }
}

async fn engine(address: SocketAddr, slots: u32) -> Result<EngineHandle, Failure> {
    let wrong = |error: std::io::Error| {
        Failure::Wrong(format!("cannot start an engine on {address}: {error}"))
    };
    let listener = TcpListener::bind(address).await.map_err(wrong)?;
    let options = Options {
        slots: slots as usize,
        pace: PACE,
        length: Length::Natural(MEDIAN_TOKENS),
        ..Options::default()
    };
    Engine::spawn(options, listener).map_err(wrong)
}

/// The failure to start an engine at an address that an existing file requires.
fn wanted_by(file: &Path, failure: &Failure) -> Failure {
    Failure::Wrong(format!(
        "{failure}\n{} names that peer; is another `llmctl up` running from there?",
        file.display()
    ))
}

/// The address at which a simulated engine has to listen to be this peer.
fn loopback(peer: &valid::Peer) -> Option<SocketAddr> {
    let address: SocketAddr = peer.key.as_str().parse().ok()?;
    (address.ip().is_loopback() && !peer.tls && peer.base_path.is_empty()).then_some(address)
}

/// Parses a backend's URL; `host:port` alone means http.
fn backend(text: &str) -> Result<Url, Failure> {
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let wrong = |why: &str| {
        Failure::Usage(format!(
            "--backend {text}: {why}; expected a URL like http://10.0.0.11:8000"
        ))
    };
    let url = Url::parse(&full).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("not http or https"));
    }
    if url.path().trim_end_matches('/').ends_with("/v1") {
        return Err(wrong(
            "leave out /v1, the router adds the path of each request",
        ));
    }
    Ok(url)
}

/// The first model that a backend lists. Warns when the backend does not answer.
async fn first_model(backends: &[Url], screen: &mut Screen) -> Result<Option<String>, Failure> {
    let mut first = None;
    for backend in backends {
        let http = plain_client(backend)?
            .timeout(MODELS_TIMEOUT)
            .build()
            .map_err(|error| {
                Failure::Wrong(format!("cannot set up HTTP: {}", root_cause(&error)))
            })?;
        let url = format!("{}/v1/models", backend.as_str().trim_end_matches('/'));
        let listed = async {
            http.get(&url)
                .send()
                .await?
                .error_for_status()?
                .json::<Value>()
                .await
        }
        .await;
        match listed {
            Ok(models) => {
                first = first.or_else(|| models["data"][0]["id"].as_str().map(str::to_owned));
            }
            Err(error) => screen.warn(&format!("{url}: {}", root_cause(&error))),
        }
    }
    Ok(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_backend_is_a_base_url_without_v1() {
        assert_eq!(
            backend("10.0.0.11:8000").unwrap().as_str(),
            "http://10.0.0.11:8000/"
        );
        assert_eq!(
            backend("https://x.example/base").unwrap().as_str(),
            "https://x.example/base"
        );
        for wrong in [
            "http://x:8000/v1",
            "http://x:8000/v1/",
            "ftp://x",
            "http://",
        ] {
            assert_eq!(backend(wrong).unwrap_err().code(), 2, "{wrong}");
        }
    }
}
