//! `llmctl reload`: running routers read their files again and report the problems in them.

use clap::Args;
use http::{HeaderMap, StatusCode};
use proto::admin::Reload;

use super::fleet::{self, Round};
use super::problem::excerpt;
use crate::exit::{Ended, Failure};
use crate::render::{Format, Paint, Screen, Table};
use crate::settings::Settings;

/// What `llmctl reload` takes.
#[derive(Debug, Args)]
#[command(
    after_help = "Routers reload changed files by themselves. This command makes them look now
and shows the result. A file with an error keeps its last good version in
force; valid files are loaded all the same, and the exit code is 1. `llmctl
route check` finds the same problems beforehand, with the same code.

Examples:
  llmctl reload
  llmctl reload --router http://10.0.0.5:8090 --router http://10.0.0.6:8090 --token-file token
  llmctl route check && llmctl reload"
)]
pub struct ReloadArgs {}

/// Asks the routers and prints their answers.
///
/// # Errors
/// The worst failure, after the answers of the other routers.
pub async fn run(
    _args: &ReloadArgs,
    settings: &Settings,
    screen: &mut Screen,
) -> Result<Ended, Failure> {
    let round = fleet::each(settings, async |router| {
        let (headers, body) = (HeaderMap::new(), Vec::new());
        router
            .post_or::<Reload>(
                &["_reload"],
                &[],
                headers,
                body,
                StatusCode::UNPROCESSABLE_ENTITY,
            )
            .await
    })
    .await?;
    if screen.format() == Format::Json {
        screen.json(&round.answers)?;
    } else {
        show(&round, screen);
    }
    let refused = round.whole().any(|(_, reload)| !reload.ok);
    round
        .end(screen)
        .map(|fine| if refused { Ended::Wrong } else { fine })
}

fn show(round: &Round<Reload>, screen: &mut Screen) {
    let mut table = Table::new(&["router", "reload", "routes", "errors", "warnings"]);
    for (router, reload) in round.whole() {
        let (word, paint) = if reload.ok {
            ("done", Paint::Green)
        } else {
            ("not all in force", Paint::Red)
        };
        let plain = |text: String| (text, Paint::Plain);
        table.painted_row(vec![
            plain(router.to_owned()),
            (word.to_owned(), paint),
            plain(reload.routes.len().to_string()),
            plain(reload.errors.len().to_string()),
            plain(reload.warnings.len().to_string()),
        ]);
    }
    if !table.is_empty() {
        screen.table(&table);
    }
    for (router, reload) in round.whole() {
        for problem in reload.errors.iter().chain(&reload.warnings) {
            screen.line("");
            let whose = (round.answers.len() > 1).then_some(router);
            excerpt(problem, whose, screen);
        }
    }
}

#[cfg(test)]
mod tests {
    use proto::admin::Problem;

    use super::*;
    use crate::cmd::fleet::testing::routers;
    use crate::render::testing::capture;

    fn reload(errors: Vec<Problem>) -> Reload {
        Reload {
            ok: errors.is_empty(),
            routes: vec!["chat".to_owned(), "embed".to_owned()],
            errors,
            warnings: Vec::new(),
        }
    }

    #[test]
    fn each_replica_has_a_row_and_each_refused_file_its_place() {
        let problem = Problem {
            file: "routes/chat.yaml".to_owned(),
            line: 3,
            column: 5,
            message: "unknown key `peerz` (did you mean `peers`?)".to_owned(),
            severity: "error".to_owned(),
            code: None,
        };
        let round = routers([
            ("http://10.0.0.5:8090", reload(Vec::new())),
            ("http://10.0.0.6:8090", reload(vec![problem])),
        ]);
        let shown = capture(Format::Human, |screen| show(&round, screen));
        insta::assert_snapshot!("reload", shown);
        insta::assert_snapshot!(
            "reload_json",
            serde_json::to_string_pretty(&round.answers).unwrap()
        );
    }
}
