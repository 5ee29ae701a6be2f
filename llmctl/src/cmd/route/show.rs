//! `llmctl route show`: shows one route's peers and every option with its value and source, from
//! the files or from a running router.

use clap::Args;
use proto::admin::{AdaptiveBounds, RouteOption, RouteOpts, Routes};
use router::adaptive_bounds;
use router_config::options::{Effective, effective};
use router_config::valid;
use serde::Serialize;

use super::files::{loaded, no_such_route, route_of, shown};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table, tame};
use crate::settings::{Settings, Subject};

/// What `llmctl route show` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "The source of a value is `route` (its file), `global` (defaults: of router.yaml), `default`
(built in), or `runtime` (a switch set on the running router; with --router only).

Examples:
  llmctl route show chat
  llmctl route show chat --all
  llmctl route show chat --output json
  llmctl route show chat --router http://10.0.0.5:8090"
)]
pub struct ShowArgs {
    /// The route
    #[arg(value_name = "NAME")]
    pub name: String,
    /// Show engine internals too, not only those that somebody set
    #[arg(long)]
    pub all: bool,
}

/// A route; its JSON form is stable. Fields that only a running router knows are absent when the
/// answer comes from files.
#[derive(Debug, Serialize)]
struct Shown {
    name: String,
    file: String,
    pools: Vec<Pool>,
    options: Vec<RouteOption>,
    advanced: Vec<RouteOption>,
    adaptive_bounds: Vec<AdaptiveBounds>,
}

#[derive(Debug, Serialize)]
struct Pool {
    #[serde(skip_serializing_if = "Option::is_none")]
    model: Option<String>,
    peers: Vec<Peer>,
}

#[derive(Debug, Serialize)]
struct Peer {
    name: String,
    peer: String,
    priority: i64,
    max: u32,
    enabled: bool,
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    draining: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    url: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    in_flight: Option<u32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    banned: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    gpu: Option<String>,
}

/// Shows the route.
///
/// # Errors
/// When the main file or the route is invalid, there is no such route, or the router cannot be
/// reached.
pub async fn run(
    args: &ShowArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let route = match settings.subject()? {
        Subject::Files => of_file(route_of(&loaded(settings)?, &args.name)?),
        Subject::Live => of_router(&args.name, settings).await?,
    };
    if screen.format() == Format::Json {
        screen.json(&route)?;
    } else {
        show(&route, args.all, screen);
    }
    Ok(Ended::Fine)
}

fn of_file(route: &valid::Route) -> Shown {
    let peer = |peer: &valid::Peer| Peer {
        name: peer.name.to_string(),
        peer: peer.key.to_string(),
        priority: peer.priority,
        max: peer.max_concurrency,
        enabled: peer.enabled,
        draining: peer.draining,
        url: Some(format!(
            "{}://{}{}",
            if peer.tls { "https" } else { "http" },
            peer.key,
            peer.base_path
        )),
        in_flight: None,
        banned: None,
        gpu: peer.gpu.as_deref().map(str::to_owned),
    };
    let pool = |pool: &valid::Pool| Pool {
        model: pool.model.as_deref().map(str::to_owned),
        peers: pool.peers.iter().map(peer).collect(),
    };
    let slots = |pool: &valid::Pool| valid::largest_tier(&pool.peers);
    let pools = route.pools.iter();
    let pools = pools.map(|pool| (pool.model.as_deref(), slots(pool)));
    let adaptive_bounds = adaptive_bounds(&route.options.adaptive, pools);
    let Effective { options, advanced } = effective(&route.options);
    Shown {
        name: route.name.to_string(),
        file: route.path.display().to_string(),
        pools: route.pools.iter().map(pool).collect(),
        options,
        advanced,
        adaptive_bounds,
    }
}

async fn of_router(name: &str, settings: &Settings) -> Result<Shown, Failure> {
    let router = Router::new(settings.one_router()?, settings.token.clone())?;
    let status: Routes = router.get(&["_routes"], &[]).await?;
    let Some(route) = status.routes.iter().find(|route| route.name == name) else {
        let names: Vec<&str> = status.routes.iter().map(|route| &*route.name).collect();
        return Err(no_such_route(name, &names, router.url()));
    };
    let of: RouteOpts = router.get(&[name, "_route_opts"], &[]).await?;
    let peer = |peer: &proto::admin::Peer| Peer {
        name: peer.name.clone(),
        peer: peer.peer.clone(),
        priority: peer.priority,
        max: peer.max,
        enabled: peer.enabled,
        draining: peer.draining,
        url: None,
        in_flight: Some(peer.in_flight),
        banned: Some(peer.banned),
        gpu: peer.gpu.clone(),
    };
    let pool = |pool: &proto::admin::Pool| Pool {
        model: pool.model.clone(),
        peers: pool.peers.iter().map(peer).collect(),
    };
    Ok(Shown {
        name: route.name.clone(),
        file: route.path.clone(),
        pools: route.pools.iter().map(pool).collect(),
        options: of.options,
        advanced: of.advanced,
        adaptive_bounds: of.adaptive_bounds,
    })
}

fn show(route: &Shown, all: bool, screen: &mut Screen) {
    screen.heading(&format!(
        "route {} ({})",
        tame(&route.name),
        tame(&route.file)
    ));
    screen.line("");
    for pool in &route.pools {
        if let Some(model) = &pool.model {
            screen.line(&format!("model {}", tame(model)));
        }
        if pool.peers.is_empty() {
            screen.line("no peers: the route answers 503");
        } else {
            screen.table(&peers(&pool.peers));
        }
        screen.line("");
    }
    screen.table(&options(&route.options));
    let (told, rest): (Vec<_>, Vec<_>) = route
        .advanced
        .iter()
        .cloned()
        .partition(|option| all || option.source != "default");
    if !told.is_empty() {
        screen.line("");
        screen.line("engine internals");
        screen.table(&options(&told));
    }
    if is_adaptive(route) {
        screen.line("");
        screen.table(&bounds(&route.adaptive_bounds));
    }
    if !rest.is_empty() {
        screen.note(&format!(
            "{} engine internals have their defaults; --all shows them",
            rest.len()
        ));
    }
}

fn is_adaptive(route: &Shown) -> bool {
    let mut options = route.options.iter();
    options.any(|option| option.key == "adaptive_cc" && option.value == true)
}

fn bounds(bounds: &[AdaptiveBounds]) -> Table {
    let mut table = Table::new(&["adaptive limit of", "least", "start", "most"]);
    for pool in bounds {
        table.row([
            pool.model.clone().unwrap_or_else(|| "the route".to_owned()),
            pool.min.to_string(),
            pool.init.to_string(),
            pool.max.to_string(),
        ]);
    }
    table
}

fn peers(peers: &[Peer]) -> Table {
    let mut table = Table::new(&["peer", "address", "tier", "max", "state"]);
    for peer in peers {
        let state = match (peer.enabled, peer.banned) {
            (false, _) => ("disabled", Paint::Dim),
            (true, Some(true)) => ("banned", Paint::Red),
            (true, _) if peer.draining => ("draining", Paint::Yellow),
            (true, Some(false)) => ("healthy", Paint::Green),
            (true, None) => ("enabled", Paint::Plain),
        };
        table.painted_row(vec![
            (peer.name.clone(), Paint::Plain),
            (
                peer.url.clone().unwrap_or_else(|| peer.peer.clone()),
                Paint::Plain,
            ),
            (peer.priority.to_string(), Paint::Plain),
            (peer.max.to_string(), Paint::Plain),
            (state.0.to_owned(), state.1),
        ]);
    }
    table
}

fn options(options: &[RouteOption]) -> Table {
    let mut table = Table::new(&["option", "source", "value"]);
    for option in options {
        let paint = match option.source.as_str() {
            "default" => Paint::Dim,
            "runtime" | "default (invalid)" => Paint::Yellow,
            _ => Paint::Plain,
        };
        table.painted_row(vec![
            (option.key.clone(), Paint::Plain),
            (option.source.clone(), paint),
            (shown(&option.value), Paint::Plain),
        ]);
    }
    table
}

#[cfg(test)]
mod tests {
    use router_config::load::{RoutesAt, Sources, load};

    use super::*;
    use crate::render::testing::capture;

    #[test]
    fn every_option_is_shown_with_its_value_and_source() {
        let directory = tempfile::tempdir().unwrap();
        let (main, file) = (
            directory.path().join("router.yaml"),
            directory.path().join("chat.yaml"),
        );
        std::fs::write(&main, "defaults: {hash: rendezvous}\n").unwrap();
        let text = "peers: [{url: https://gpu.example.com/base, name: a, priority: 2}, {address: 10.0.0.12:8000, enabled: false}, {address: 10.0.0.13:8000, draining: true}]\n\
                    full_status: 503\nttft_limit_ms: 30000\nadaptive_cc: true\nadaptive_cc_dec: .9\n";
        std::fs::write(&file, text).unwrap();
        let routes = RoutesAt::Files(vec![file]);
        let loaded = load(&Sources {
            config: Some(main),
            routes,
            ..Sources::default()
        });
        let mut route = of_file(route_of(&loaded, "chat").unwrap());
        route.file = "chat.yaml".to_owned();
        insta::assert_snapshot!(
            "route_show",
            capture(Format::Human, |screen| show(&route, false, screen))
        );
    }
}
