//! The route's affinity switch, borrowed for a replay and given back as it was.

use http::HeaderMap;
use serde::Deserialize;

use crate::client::Router;
use crate::exit::Failure;

const ENDPOINT: &str = "_affinity_toggle";

/// What the switch says of itself.
#[derive(Debug, Deserialize)]
struct View {
    enabled: bool,
    source: String,
}

/// The switch, and how it stood.
#[derive(Debug)]
pub(super) struct Switch<'a> {
    admin: &'a Router,
    route: &'a str,
    /// The operator's own override, if there was one.
    before: Option<bool>,
}

impl<'a> Switch<'a> {
    /// Remembers how the switch stands.
    ///
    /// # Errors
    /// When the router cannot be reached or does not know the route.
    pub(super) async fn read(admin: &'a Router, route: &'a str) -> Result<Self, Failure> {
        let view: View = admin.get(&[route, ENDPOINT], &[]).await?;
        Ok(Self {
            admin,
            route,
            before: (view.source == "runtime").then_some(view.enabled),
        })
    }

    /// Sets it.
    ///
    /// # Errors
    /// When the router cannot be reached or refuses.
    pub(super) async fn set(&self, on: bool) -> Result<(), Failure> {
        self.send(&[("on", if on { "1" } else { "0" })]).await
    }

    /// Puts it back.
    ///
    /// # Errors
    /// When that fails, with what to do by hand.
    pub(super) async fn restore(&self) -> Result<(), Failure> {
        let restored = match self.before {
            Some(on) => self.set(on).await,
            None => self.send(&[("reset", "1")]).await,
        };
        restored.map_err(|failure| {
            let query = match self.before {
                Some(on) => format!("on={}", u8::from(on)),
                None => "reset=1".to_owned(),
            };
            Failure::Wrong(format!(
                "affinity of route {route} may still be switched off: {failure}\n\
                 put it back with: curl -X POST '{url}/{route}/{ENDPOINT}?{query}'",
                route = self.route,
                url = self.admin.url(),
            ))
        })
    }

    async fn send(&self, query: &[(&str, &str)]) -> Result<(), Failure> {
        let _: serde::de::IgnoredAny = self
            .admin
            .post(&[self.route, ENDPOINT], query, HeaderMap::new(), Vec::new())
            .await?;
        Ok(())
    }
}
