//! `llmctl status`: what running routers are doing. One question to each router, one page.

mod gates;
mod page;
#[cfg(test)]
mod tests;

use std::pin::pin;
use std::time::Duration;

use clap::Args;
use proto::admin::Routes;
use serde::Serialize;

use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;
use crate::signals;

/// What `llmctl status` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Every --router is asked. With several, one that cannot be reached does not hide the others;
the exit code is then 3.

Examples:
  llmctl status
  llmctl status --watch --route chat
  llmctl status --router http://10.0.0.5:8090 --router http://10.0.0.6:8090 --token-file token
  llmctl status --output json"
)]
pub struct StatusArgs {
    /// Show this route only
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
    /// Ask again every two seconds, until Ctrl-C
    #[arg(long)]
    pub watch: bool,
}

/// Between two looks of `--watch`.
const WATCH_PAUSE: Duration = Duration::from_secs(2);

/// One router's answer; its JSON form is stable.
#[derive(Debug, Serialize)]
struct Answer {
    router: String,
    #[serde(flatten)]
    said: Said,
}

#[derive(Debug, Serialize)]
#[serde(rename_all = "snake_case")]
enum Said {
    Status(Box<Routes>),
    Error(String),
}

/// Asks and shows, once or until Ctrl-C.
///
/// # Errors
/// When the page cannot be written, or a router did not answer: the worst such failure, after the
/// answers of the others. With `--watch` failures are shown and asked about again.
pub async fn run(
    args: &StatusArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    if !args.watch {
        return look(args, settings, screen).await;
    }
    let mut interrupted = pin!(signals::interrupted());
    while !screen.is_closed() {
        screen.clear();
        if let Err(failure) = look(args, settings, screen).await {
            screen.error(&failure.to_string());
        }
        screen.flush();
        tokio::select! {
            () = tokio::time::sleep(WATCH_PAUSE) => {}
            () = &mut interrupted => break,
        }
    }
    Ok(Ended::Fine)
}

async fn look(
    args: &StatusArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let (answers, mut failures) = ask(args, settings).await?;
    if screen.format() == Format::Json {
        screen.json(&answers)?;
    } else {
        for answer in &answers {
            // Failures go to stderr, below.
            if let Said::Status(status) = &answer.said {
                page::show(&answer.router, status, screen);
            }
        }
    }
    failures.sort_by_key(Failure::code);
    if let Some(worst) = failures.pop() {
        for failure in failures {
            screen.error(&failure.to_string());
        }
        return Err(worst);
    }
    if let Some(name) = &args.route {
        let known = |answer: &Answer| matches!(&answer.said, Said::Status(status) if !status.routes.is_empty());
        if !answers.iter().any(known) {
            return Err(Failure::Wrong(format!("no router has a route `{name}`")));
        }
    }
    Ok(Ended::Fine)
}

/// What every router says, in the order given, and the failures among it.
async fn ask(
    args: &StatusArgs,
    settings: &Settings,
) -> Result<(Vec<Answer>, Vec<Failure>), Failure> {
    let (mut answers, mut failures) = (Vec::new(), Vec::new());
    for url in &settings.routers {
        let router = Router::new(url, settings.token.clone())?;
        let said = match router.get::<Routes>(&["_routes"], &[]).await {
            Ok(mut status) => {
                if let Some(name) = &args.route {
                    status.routes.retain(|route| route.name == *name);
                }
                Said::Status(Box::new(status))
            }
            Err(failure) => {
                let said = Said::Error(failure.to_string());
                failures.push(failure);
                said
            }
        };
        answers.push(Answer {
            router: router.url().to_owned(),
            said,
        });
    }
    Ok((answers, failures))
}
