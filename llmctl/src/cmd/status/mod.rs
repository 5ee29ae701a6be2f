//! `llmctl status`: what running routers are doing. One question to each router, one page.

mod page;
#[cfg(test)]
mod tests;

use clap::Args;
use proto::admin::Routes;
use serde::Serialize;

use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Screen};
use crate::settings::Settings;

/// What `llmctl status` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Every --router is asked. With several, one that cannot be reached does not hide the others;
the exit code is then 3.

Examples:
  llmctl status
  llmctl status --router http://10.0.0.5:8090 --router http://10.0.0.6:8090 --token-file token
  llmctl status --output json"
)]
pub struct StatusArgs {
    /// Show this route only
    #[arg(long, value_name = "NAME")]
    pub route: Option<String>,
}

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
    Status(Routes),
    Error(String),
}

/// Asks and shows.
///
/// # Errors
/// When the page cannot be written, or a router did not answer: the last such failure, after the
/// answers of the others.
pub async fn run(
    args: &StatusArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let (mut answers, mut failed) = (Vec::new(), None);
    for url in &settings.routers {
        let router = Router::new(url, settings.token.clone())?;
        let said = match router.get::<Routes>(&["_routes"], &[]).await {
            Ok(mut status) => {
                if let Some(name) = &args.route {
                    status.routes.retain(|route| route.name == *name);
                }
                Said::Status(status)
            }
            Err(failure) => {
                let said = Said::Error(failure.to_string());
                failed = Some(failure);
                said
            }
        };
        answers.push(Answer {
            router: router.url().to_owned(),
            said,
        });
    }
    if screen.format() == Format::Json {
        screen.json(&answers)?;
    } else {
        for answer in &answers {
            // The failure itself is reported once, at the end.
            if let Said::Status(status) = &answer.said {
                page::show(&answer.router, status, screen);
            }
        }
    }
    if let Some(name) = &args.route {
        let known = |answer: &Answer| matches!(&answer.said, Said::Status(status) if !status.routes.is_empty());
        if failed.is_none() && !answers.iter().any(known) {
            return Err(Failure::Wrong(format!("no router has a route `{name}`")));
        }
    }
    match failed {
        Some(failure) => Err(failure),
        None => Ok(Ended::Fine),
    }
}
