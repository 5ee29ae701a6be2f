//! `llmctl toggle`: the switches of running routers.

use clap::builder::PossibleValuesParser;
use clap::{ArgGroup, Args};
use http::HeaderMap;
use proto::admin::{Toggle, Toggled};
use router::state::Switch;
use serde::Serialize;

use super::fleet::{self, Round};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::Settings;

/// What `llmctl toggle` takes.
#[derive(Debug, Args)]
#[command(
    group = ArgGroup::new("change").args(["on", "reset"]),
    after_help = "A switch that was set lasts until it is reset or the router restarts, and beats every file.
Without --on and --reset it is shown as it stands. Every --router is asked; one that cannot be
reached does not keep the others from changing, and the exit code is then 3.

Examples:
  llmctl toggle rate-limit                       where does it stand, and who says so?
  llmctl toggle rate-limit --on 0                nobody is refused for load, trips are counted
  llmctl toggle rate-limit --reset               back to what the files say
  llmctl toggle session-prio --on 1 --route chat
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
    #[arg(long)]
    pub reset: bool,
    /// This route only; else every route
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
}

/// How a switch stands on one route of one router, and how it stood.
#[derive(Debug, PartialEq, Eq, Serialize)]
struct Stand {
    switch: String,
    /// Absent when nothing was changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    before: Option<bool>,
    #[serde(skip_serializing_if = "Option::is_none")]
    source_before: Option<String>,
    enabled: bool,
    source: String,
}

/// Shows or changes a switch.
///
/// # Errors
/// The worst failure, after what the other routers and routes said.
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
    let query = match &args.on {
        Some(on) => Some(("on", on.as_str())),
        None => args.reset.then_some(("reset", "1")),
    };
    let ask = async |router: &Router, route: &str| match query {
        Some(query) => set(router, route, switch, query).await,
        None => read(router, route, switch).await,
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

async fn read(router: &Router, route: &str, switch: Switch) -> Result<Stand, Failure> {
    let now: Toggle = router.get(&[route, switch.endpoint()], &[]).await?;
    Ok(Stand {
        switch: now.switch,
        before: None,
        source_before: None,
        enabled: now.enabled,
        source: now.source,
    })
}

async fn set(
    router: &Router,
    route: &str,
    switch: Switch,
    query: (&str, &str),
) -> Result<Stand, Failure> {
    let path = [route, switch.endpoint()];
    let done: Toggled = router
        .post(&path, &[query], HeaderMap::new(), Vec::new())
        .await?;
    Ok(Stand {
        switch: done.switch,
        before: Some(done.before),
        source_before: Some(done.source_before),
        enabled: done.after,
        source: done.source,
    })
}

fn table(round: &Round<Stand>) -> Table {
    let is_change = round.fine().any(|(_, _, stand)| stand.before.is_some());
    let head: &[&str] = if is_change {
        &["router", "route", "switch", "before", "after"]
    } else {
        &["router", "route", "switch", "stands"]
    };
    let mut table = Table::new(head);
    for (router, route, stand) in round.fine() {
        let plain = |text: &str| (text.to_owned(), Paint::Plain);
        let mut row = vec![plain(router), plain(route), plain(&stand.switch)];
        let source = stand.source_before.as_deref().unwrap_or_default();
        row.extend(stand.before.map(|on| state(on, source)));
        row.push(state(stand.enabled, &stand.source));
        table.painted_row(row);
    }
    table
}

/// `off (runtime)`.
fn state(on: bool, source: &str) -> (String, Paint) {
    let paint = if source == "runtime" {
        Paint::Yellow
    } else {
        Paint::Plain
    };
    (
        format!("{} ({source})", if on { "on" } else { "off" }),
        paint,
    )
}

#[cfg(test)]
mod tests {
    use router::config::options::effective;
    use router::config::{RoutesAt, Sources, load};
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

    /// Where the table of switches is kept. `UPDATE_DOCS=1` writes it anew.
    const DOCS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/llmctl.md");

    /// What stands around it there.
    const BEGIN: &str = "<!-- The table is made from the code, and a test keeps it so. -->\n";
    const END: &str = "<!-- end of the table -->\n";

    /// Every switch with what the router's own code says of it.
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
}
