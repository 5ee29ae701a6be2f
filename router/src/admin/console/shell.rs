//! The frame around the views: one page, one script, one stylesheet.

use axum::extract::State;
use axum::response::Response;
use http::StatusCode;
use maud::{DOCTYPE, Markup, html};

use crate::admin::{AdminState, IntoAxum, answer};

const HTML: &str = "text/html; charset=utf-8";

pub(super) async fn page(State(state): State<AdminState>) -> Response {
    let needs_token = state.tables.load().server.admin_token_file.is_some();
    answer::typed(StatusCode::OK, HTML, shell(needs_token).into_string()).into_axum()
}

pub(super) async fn script() -> Response {
    let script = include_str!("console.js");
    answer::typed(StatusCode::OK, "text/javascript; charset=utf-8", script).into_axum()
}

pub(super) async fn stylesheet() -> Response {
    let stylesheet = include_str!("console.css");
    answer::typed(StatusCode::OK, "text/css; charset=utf-8", stylesheet).into_axum()
}

pub(super) async fn icon() -> Response {
    let icon = include_str!("icon.svg");
    answer::typed(StatusCode::OK, "image/svg+xml", icon).into_axum()
}

/// A fragment of a view.
pub(super) fn fragment(markup: Markup) -> Response {
    answer::typed(StatusCode::OK, HTML, markup.into_string()).into_axum()
}

fn shell(has_token: bool) -> Markup {
    html! {
        (DOCTYPE)
        html lang="en" {
            head {
                meta charset="utf-8";
                meta name="viewport" content="width=device-width, initial-scale=1";
                meta name="color-scheme" content="dark light";
                title { "llm-router" }
                link rel="icon" href="icon.svg" type="image/svg+xml";
                link rel="stylesheet" href="console.css";
                script src="console.js" defer {}
            }
            body {
                a.skip href="#main" { "Skip to content" }
                header.top {
                    a.brand href="#/fleet" { "llm-router" }
                    nav aria-label="Views" {
                        a href="#/fleet" { "Fleet" }
                        a href="#/requests" { "Requests" }
                    }
                    p #state role="status" { "connecting" }
                    button #pause type="button" aria-pressed="false" { "Pause" }
                    @if has_token { button #login type="button" { "Token" } }
                }
                main #main tabindex="-1" { p.quiet { "Loading." } }
                noscript { p { "The console needs JavaScript. The same data is at /_routes and /_findings." } }
                (dialogs())
            }
        }
    }
}

fn dialogs() -> Markup {
    html! {
        dialog #token aria-labelledby="token-title" {
            form method="dialog" {
                h2 #token-title { "Admin token" }
                p #token-note { "This tab keeps it until it is closed." }
                label for="token-field" { "Token" }
                input #token-field type="password" autocomplete="off" spellcheck="false";
                div.buttons {
                    button value="cancel" { "Cancel" }
                    button.primary value="ok" { "Use" }
                }
            }
        }
        dialog #confirm aria-labelledby="confirm-title" {
            form method="dialog" {
                h2 #confirm-title {}
                p.change { span #before {} " → " strong #after {} }
                div #ttl-row {
                    label for="ttl" { "For" }
                    select #ttl {
                        option value="900" { "15 minutes" }
                        option value="7200" selected { "2 hours" }
                        option value="86400" { "1 day" }
                        option value="0" { "until reset" }
                    }
                }
                p #confirm-note.quiet {}
                div.buttons {
                    button value="cancel" { "Cancel" }
                    button.primary value="ok" { "Change" }
                }
            }
        }
        p #toast role="alert" hidden {}
    }
}
