//! `llmctl top`: the fleet and its last requests, live in the terminal.
//!
//! `view` holds what is shown and what a key does, `draw` turns it into cells; both are pure.
//! This file asks the routers and moves bytes to and from the terminal.

mod draw;
#[cfg(test)]
mod tests;
mod view;

use std::io::IsTerminal as _;
use std::sync::Arc;
use std::time::Duration;

use clap::Args;
use crossterm::event::{Event, EventStream, KeyCode, KeyEventKind, KeyModifiers};
use futures_util::StreamExt as _;
use futures_util::future::join_all;
use http::HeaderMap;
use proto::admin::{Decisions, Findings, Routes, Toggled};
use router_core::decision::Receipt;
use tokio::time::Instant;

use self::view::{Change, Key, Seen, Then, View};
use super::status::{self, StatusArgs};
use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;
use crate::signals;

/// Receipts that are asked for at once.
const RECEIPTS_ASKED: &str = "256";

/// What `llmctl top` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Problems stay on top, worst first. With several routers each has a column of
requests in flight. The page says how old its numbers are and when a router is
gone. Without a terminal, or with --output json, it prints `llmctl status` once.

Keys: Tab or 1, 2 the fleet, the last requests   Up, Down, PgUp, PgDn move
      s sort by the next column   / filter, Enter to keep it, Esc to drop it
      f freeze the page           t a switch of the selected route   q quit

Examples:
  llmctl top
  llmctl top --interval 5s --route chat
  llmctl top --router http://10.0.0.5:8090 --router http://10.0.0.6:8090 --token-file token"
)]
pub struct TopArgs {
    /// Show this route only
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// Time between two questions to the routers
    #[arg(long, value_name = "DURATION", default_value = "1s", value_parser = interval)]
    pub interval: Duration,
}

fn interval(text: &str) -> Result<Duration, String> {
    let interval = sim_engine::parse_duration(text)?;
    let allowed = Duration::from_millis(200)..=Duration::from_secs(600);
    match allowed.contains(&interval) {
        true => Ok(interval),
        false => Err(format!("expected 200ms to 10m, found `{text}`")),
    }
}

/// Shows the page until the operator quits.
///
/// # Errors
/// When the terminal cannot be used; without a terminal, as `llmctl status`.
pub async fn run(
    args: &TopArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let is_terminal = std::io::stdout().is_terminal() && std::io::stdin().is_terminal();
    if !is_terminal || screen.format() != Format::Human {
        let once = StatusArgs {
            route: args.route.clone(),
            watch: false,
        };
        return status::run(&once, settings, screen).await;
    }
    let routers = settings
        .routers
        .iter()
        .map(|url| Ok(Arc::new(Router::new(url, settings.token.clone())?)))
        .collect::<Result<Vec<_>, Failure>>()?;
    let broken =
        |error: std::io::Error| Failure::Wrong(format!("cannot use the terminal: {error}"));
    let mut terminal = ratatui::try_init().map_err(broken)?;
    let mut view = View::new(
        routers
            .iter()
            .map(|router| router.url().to_owned())
            .collect(),
        args.route.clone(),
    );
    view.colour = screen.colour();
    view.ascii = screen.ascii();
    let ended = show(args.interval, &routers, view, &mut terminal).await;
    ratatui::restore();
    ended.map_err(broken)?;
    Ok(Ended::Fine)
}

async fn show(
    interval: Duration,
    routers: &[Arc<Router>],
    mut view: View,
    terminal: &mut ratatui::DefaultTerminal,
) -> std::io::Result<()> {
    let mut keys = EventStream::new();
    let mut ticks = tokio::time::interval(interval);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Skip);
    // The age of the numbers counts on while a router is silent.
    let mut ages = tokio::time::interval(Duration::from_secs(1));
    let mut interrupted = std::pin::pin!(signals::interrupted());
    let mut looking = None;
    loop {
        terminal.draw(|frame| draw::page(&view, Instant::now().into_std(), frame))?;
        tokio::select! {
            _ = ticks.tick() => {
                if looking.is_none() && !view.is_frozen() {
                    looking = Some(Box::pin(look(routers)));
                }
            }
            _ = ages.tick() => {}
            seen = async { looking.as_mut().expect("guarded").await }, if looking.is_some() => {
                looking = None;
                view.saw(seen, Instant::now().into_std());
            }
            () = &mut interrupted => return Ok(()),
            event = keys.next() => match event {
                None => return Ok(()),
                Some(event) => match key(&event?).map_or(Then::Stay, |key| view.press(key)) {
                    Then::Stay => {}
                    Then::Quit => return Ok(()),
                    Then::Change(change) => {
                        let said = set(routers, &change).await;
                        view.changed(&change, said);
                        looking = Some(Box::pin(look(routers)));
                    }
                },
            },
        }
    }
}

/// Asks every router at once.
async fn look(routers: &[Arc<Router>]) -> Vec<Result<Seen, String>> {
    join_all(routers.iter().map(|router| see(router))).await
}

async fn see(router: &Router) -> Result<Seen, String> {
    let status: Routes = router
        .get(&["_routes"], &[])
        .await
        .map_err(|e| e.to_string())?;
    // An older router may have neither page.
    let findings = router.get::<Findings>(&["_findings"], &[]).await.ok();
    let asked = [("n", RECEIPTS_ASKED)];
    let receipts = router
        .get::<Decisions<Receipt>>(&["_decisions"], &asked)
        .await;
    Ok(Seen {
        status,
        findings: findings.map(|page| page.findings).unwrap_or_default(),
        receipts: receipts.map(|page| page.decisions).unwrap_or_default(),
    })
}

/// Sets a switch on every router; the first failure is the answer.
async fn set(routers: &[Arc<Router>], change: &Change) -> Result<(), String> {
    let on = if change.on { "1" } else { "0" };
    for router in routers {
        let path = [&*change.route, change.switch.endpoint()];
        router
            .post::<Toggled>(&path, &[("on", on)], HeaderMap::new(), Vec::new())
            .await
            .map_err(|failure| failure.to_string())?;
    }
    Ok(())
}

fn key(event: &Event) -> Option<Key> {
    let Event::Key(key) = event else {
        return None;
    };
    if key.kind == KeyEventKind::Release {
        return None;
    }
    if key.modifiers.contains(KeyModifiers::CONTROL) {
        return matches!(key.code, KeyCode::Char('c' | 'd')).then_some(Key::Quit);
    }
    Some(match key.code {
        KeyCode::Char(c) => Key::Char(c),
        KeyCode::Enter => Key::Enter,
        KeyCode::Esc => Key::Escape,
        KeyCode::Backspace => Key::Backspace,
        KeyCode::Tab | KeyCode::BackTab => Key::Tab,
        KeyCode::Up => Key::Up,
        KeyCode::Down => Key::Down,
        KeyCode::PageUp => Key::PageUp,
        KeyCode::PageDown => Key::PageDown,
        _ => return None,
    })
}
