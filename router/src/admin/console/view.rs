//! The views, and the queries that name them.

use axum::extract::State;
use axum::response::Response;
use http::Uri;
use maud::Markup;

use super::requests::Filter;
use super::{facts, fleet, requests, route, shell};
use crate::admin::query::{Params, Refused};
use crate::admin::{AdminState, IntoAxum, answer};

/// What a browser looks at.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum View {
    /// Every route, and the problems.
    Fleet,
    /// One route with its peers.
    Route(String),
    /// The requests that ended last.
    Requests(Filter),
}

impl View {
    /// Reads `?view=`.
    ///
    /// # Errors
    /// A text for the client.
    pub(super) fn of(uri: &Uri) -> Result<Self, Refused> {
        let params = Params::of(uri)?;
        match params.get("view")? {
            Some("fleet") => {
                params.only(&["view"])?;
                Ok(Self::Fleet)
            }
            Some("route") => {
                params.only(&["view", "name"])?;
                let name = params.get("name")?.ok_or("'name' is missing")?;
                Ok(Self::Route(name.to_owned()))
            }
            Some("requests") => Ok(Self::Requests(Filter::of(&params)?)),
            _ => Err("'view' must be fleet, route or requests".to_owned()),
        }
    }

    /// Renders the view as it is now.
    pub(super) fn render(&self, state: &AdminState) -> Markup {
        match self {
            Self::Fleet => fleet::render(&facts::gather(state)),
            Self::Route(name) => route::render(&facts::gather(state), name),
            Self::Requests(filter) => requests::render(&state.tables.load_full(), filter),
        }
    }
}

/// `GET /console/view`: the view once.
pub(super) async fn once(State(state): State<AdminState>, uri: Uri) -> Response {
    match View::of(&uri) {
        Ok(view) => shell::fragment(view.render(&state)),
        Err(refused) => answer::bad_request(refused).into_axum(),
    }
}
