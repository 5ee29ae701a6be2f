//! `llmctl toggle`: shows and sets the switches of running routers.

mod recording;

use clap::Args;
use clap::builder::PossibleValuesParser;
use http::HeaderMap;
use proto::admin::{BodylogToggle, BodylogToggled, Toggle, Toggled};
use router::Switch;
use serde::Serialize;

use self::recording::{Recording, paint};
use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::Settings;

/// What `llmctl toggle` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "A switch that was set lasts until it is reset or the router restarts. It takes
precedence over every file. Without --on, --reset and the like, the command
shows the switch. Every --router is asked. When one cannot be reached, the
others change all the same, and the exit code is 3.

Examples:
  llmctl toggle rate-limit                       where does it stand, and who says so?
  llmctl toggle rate-limit --on 0                nobody is refused for load, trips are counted
  llmctl toggle rate-limit --reset               back to what the files say
  llmctl toggle session-prio --on 1 --route chat
  llmctl toggle bodylog --pct 5 --bodies none    record one in twenty, without bodies
  llmctl toggle affinity --on 0 --router http://10.0.0.5:8090 --router http://10.0.0.6:8090"
)]
pub struct ToggleArgs {
    /// The switch
    #[arg(value_name = "NAME", value_parser = PossibleValuesParser::new(Switch::ALL.map(Switch::name)))]
    pub name: String,
    /// Set it: 1 on, 0 off
    #[arg(long, value_name = "0|1", value_parser = PossibleValuesParser::new(["0", "1"]))]
    pub on: Option<String>,
    /// Remove what was set, so that the files decide again
    #[arg(long, conflicts_with_all = ["on", "pct", "bodies"])]
    pub reset: bool,
    /// Of bodylog: the share of requests that is recorded, percent
    #[arg(long, value_name = "N", value_parser = recording::percent)]
    pub pct: Option<String>,
    /// Of bodylog: what is kept of bodies, full, none or truncate(SIZE)
    #[arg(long, value_name = "WHAT", value_parser = recording::bodies)]
    pub bodies: Option<String>,
    /// This route only; else every route
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
}

/// A switch on one route of one router, before and after the command.
#[derive(Debug, PartialEq, Serialize)]
struct Stand {
    switch: String,
    /// Absent when nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_before: Option<String>,
    enabled: bool,
    source: String,
    /// For `bodylog` only.
    #[serde(flatten, skip_serializing_if = "Option::is_none")]
    recording: Option<Recording>,
}

/// Shows or changes a switch.
///
/// # Errors
/// The worst failure, after the answers of the other routers and routes.
pub async fn run(
    args: &ToggleArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let Some(switch) = Switch::ALL.into_iter().find(|s| s.name() == args.name) else {
        return Err(Failure::Usage(format!(
            "there is no switch `{}`",
            args.name
        )));
    };
    let query = args.query();
    if switch != Switch::Bodylog && (args.pct.is_some() || args.bodies.is_some()) {
        let message = "--pct and --bodies are for the switch `bodylog`".to_owned();
        return Err(Failure::Usage(message));
    }
    let ask = async |router: &Router, route: &str| match (query.is_empty(), switch) {
        (true, Switch::Bodylog) => read_bodylog(router, route).await,
        (true, _) => read(router, route, switch).await,
        (false, Switch::Bodylog) => set_bodylog(router, route, &query).await,
        (false, _) => set(router, route, switch, &query).await,
    };
    let round = fleet::round(settings, args.route.as_deref(), None, ask).await?;
    if screen.format() == Format::Json {
        screen.json(&round.answers)?;
    } else {
        let table = table(&round);
        if !table.is_empty() {
            screen.table(&table);
        }
    }
    round.end(screen)
}

impl ToggleArgs {
    /// The query of the endpoint; empty when nothing changes.
    fn query(&self) -> Vec<(&str, &str)> {
        let given = [
            ("on", &self.on),
            ("pct", &self.pct),
            ("bodies", &self.bodies),
        ];
        let given = given
            .into_iter()
            .filter_map(|(name, value)| Some((name, value.as_deref()?)));
        let reset = self.reset.then_some(("reset", "1"));
        given.chain(reset).collect()
    }
}

async fn read(router: &Router, route: &str, switch: Switch) -> Result<Stand, Failure> {
    let now: Toggle = router.get(&[route, switch.endpoint()], &[]).await?;
    Ok(Stand::of(now))
}

async fn read_bodylog(router: &Router, route: &str) -> Result<Stand, Failure> {
    let path = [route, Switch::Bodylog.endpoint()];
    let now: BodylogToggle = router.get(&path, &[]).await?;
    Ok(Stand {
        recording: Some(Recording::of(now.recording)),
        ..Stand::of(now.toggle)
    })
}

async fn set(
    router: &Router,
    route: &str,
    switch: Switch,
    query: &[(&str, &str)],
) -> Result<Stand, Failure> {
    let path = [route, switch.endpoint()];
    let done: Toggled = router
        .post(&path, query, HeaderMap::new(), Vec::new())
        .await?;
    Ok(Stand::changed(done))
}

async fn set_bodylog(
    router: &Router,
    route: &str,
    query: &[(&str, &str)],
) -> Result<Stand, Failure> {
    let path = [route, Switch::Bodylog.endpoint()];
    let done: BodylogToggled = router
        .post(&path, query, HeaderMap::new(), Vec::new())
        .await?;
    let toggled = done.toggled.clone();
    Ok(Stand {
        recording: Some(Recording::changed(done)),
        ..Stand::changed(toggled)
    })
}

impl Stand {
    fn of(now: Toggle) -> Self {
        Self {
            switch: now.switch,
            before: None,
            source_before: None,
            enabled: now.enabled,
            source: now.source,
            recording: None,
        }
    }

    fn changed(done: Toggled) -> Self {
        Self {
            switch: done.switch,
            before: Some(done.before),
            source_before: Some(done.source_before),
            enabled: done.after,
            source: done.source,
            recording: None,
        }
    }
}

fn table(round: &Round<Stand>) -> Table {
    let is_change = round.fine().any(|(_, _, stand)| stand.before.is_some());
    let mut head = vec!["router", "route", "switch"];
    head.extend(if is_change {
        &["before", "after"][..]
    } else {
        &["stands"]
    });
    if round.fine().any(|(_, _, stand)| stand.recording.is_some()) {
        head.extend(Recording::HEAD);
    }
    let mut table = Table::new(&head);
    for (router, route, stand) in round.fine() {
        let plain = |text: &str| (text.to_owned(), Paint::Plain);
        let mut row = vec![plain(router), plain(route), plain(&stand.switch)];
        let source = stand.source_before.as_deref().unwrap_or_default();
        row.extend(stand.before.map(|on| state(on, source)));
        row.push(state(stand.enabled, &stand.source));
        row.extend(stand.recording.iter().flat_map(Recording::cells));
        table.painted_row(row);
    }
    table
}

/// The state as a cell, for example `off (runtime)`.
fn state(on: bool, source: &str) -> (String, Paint) {
    (
        format!("{} ({source})", if on { "on" } else { "off" }),
        paint(source),
    )
}

#[cfg(test)]
mod tests {
    use proto::admin::Changed;
    use router_config::options::effective;
    use router_config::{RoutesAt, Sources, load};
    use serde_json::json;

    use super::*;
    use crate::cmd::fleet::testing::round;
    use crate::render::testing::capture;

    fn changed(before: bool, source_before: &str, enabled: bool, source: &str) -> Stand {
        Stand {
            switch: "rate-limit".to_owned(),
            before: Some(before),
            source_before: Some(source_before.to_owned()),
            enabled,
            source: source.to_owned(),
            recording: None,
        }
    }

    #[test]
    fn a_change_shows_before_and_after_of_every_route_and_replica() {
        let round = round([
            (
                "http://10.0.0.5:8090",
                "chat",
                changed(true, "default", false, "runtime"),
            ),
            (
                "http://10.0.0.5:8090",
                "embed",
                changed(false, "route", false, "runtime"),
            ),
            (
                "http://10.0.0.6:8090",
                "chat",
                changed(false, "runtime", false, "runtime"),
            ),
        ]);
        let shown = capture(Format::Human, |screen| screen.table(&table(&round)));
        insta::assert_snapshot!(shown, @r"
        ROUTER                ROUTE  SWITCH      BEFORE         AFTER
        http://10.0.0.5:8090  chat   rate-limit  on (default)   off (runtime)
        http://10.0.0.5:8090  embed  rate-limit  off (route)    off (runtime)
        http://10.0.0.6:8090  chat   rate-limit  off (runtime)  off (runtime)
        ");
        assert_eq!(
            json!(round.answers)[0],
            json!({
                "router": "http://10.0.0.5:8090", "route": "chat", "switch": "rate-limit",
                "before": true, "source_before": "default", "enabled": false, "source": "runtime",
            })
        );
    }

    /// The document with the table of switches. `UPDATE_DOCS=1` rewrites it.
    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/llmctl.md");

    /// The markers around the table in that document.
    const BEGIN: &str = "<!-- The table is made from the code, and a test keeps it so. -->\n";
    const END: &str = "<!-- end of the table -->\n";

    /// The table of all switches, with the descriptions from the router's own code.
    fn switches() -> String {
        let directory = tempfile::tempdir().unwrap();
        let file = directory.path().join("r.yaml");
        std::fs::write(
            &file,
            "peers: []\nreject_rules: [{field: model, op: exists}]\n",
        )
        .unwrap();
        std::fs::write(directory.path().join("router.yaml"), "{}\n").unwrap();
        let loaded = load(&Sources {
            config: Some(directory.path().join("router.yaml")),
            routes: RoutesAt::Files(vec![file]),
            ..Sources::default()
        });
        let options = &loaded.routes[0].result.as_ref().unwrap().options;
        let shown = effective(options).options;
        let mut table =
            "| switch | endpoint | route option | default | scope | what it is |\n|---|---|---|---|---|---|\n"
                .to_owned();
        for switch in Switch::ALL {
            let row = shown.iter().find(|row| row.key == switch.option()).unwrap();
            table += &format!(
                "| `{}` | `/<route>/{}` | `{}` | {} | a route of a router | {} |\n",
                switch.name(),
                switch.endpoint(),
                switch.option(),
                switch.below(options).value,
                row.description.replace('|', "\\|"),
            );
        }
        table
    }

    #[test]
    fn the_docs_hold_every_switch() {
        let kept = std::fs::read_to_string(DOCS).unwrap_or_default();
        let begin = kept
            .find(BEGIN)
            .expect("the docs have a place for the table")
            + BEGIN.len();
        let end = kept.find(END).expect("the table has an end");
        if std::env::var_os("UPDATE_DOCS").is_some() {
            let made = format!("{}{}{}", &kept[..begin], switches(), &kept[end..]);
            std::fs::write(DOCS, made).unwrap();
            return;
        }
        assert!(
            kept[begin..end] == switches(),
            "docs/llmctl.md is behind the code; run this test with UPDATE_DOCS=1"
        );
    }

    #[test]
    fn a_look_shows_how_it_stands() {
        let stand = Stand {
            before: None,
            source_before: None,
            ..changed(true, "", true, "global")
        };
        let shown = capture(Format::Human, |screen| {
            screen.table(&table(&round([("r", "chat", stand)])));
        });
        insta::assert_snapshot!(shown, @r"
        ROUTER  ROUTE  SWITCH      STANDS
        r       chat   rate-limit  on (global)
        ");
    }

    #[test]
    fn the_body_log_has_a_share_and_bodies_beside_its_switch() {
        let toggled = Toggled {
            route: "chat".to_owned(),
            switch: "bodylog".to_owned(),
            before: true,
            source_before: "default".to_owned(),
            after: true,
            enabled: true,
            source: "default".to_owned(),
            counters_reset: false,
        };
        let done = BodylogToggled {
            toggled: toggled.clone(),
            sample_pct: Changed {
                before: 100.0,
                after: 0.5,
                source: "runtime".to_owned(),
            },
            bodies: Changed {
                before: "full".to_owned(),
                after: "full".to_owned(),
                source: "default".to_owned(),
            },
        };
        let stand = Stand {
            recording: Some(Recording::changed(done)),
            ..Stand::changed(toggled)
        };
        let round = round([("r", "chat", stand)]);
        let shown = capture(Format::Human, |screen| screen.table(&table(&round)));
        insta::assert_snapshot!(shown, @r"
        ROUTER  ROUTE  SWITCH   BEFORE        AFTER         SHARE %              BODIES
        r       chat   bodylog  on (default)  on (default)  100 → 0.5 (runtime)  full (default)
        ");
        assert_eq!(
            json!(round.answers)[0],
            json!({
                "router": "r", "route": "chat", "switch": "bodylog",
                "before": true, "source_before": "default", "enabled": true, "source": "default",
                "sample_pct": {"before": 100.0, "value": 0.5, "source": "runtime"},
                "bodies": {"before": "full", "value": "full", "source": "default"},
            })
        );
    }
}
