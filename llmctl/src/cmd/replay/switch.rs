//! The route's affinity switch: set for a replay, and restored afterwards.

use http::HeaderMap;
use serde::Deserialize;

use crate::client::Router;
use crate::exit::Failure;

const ENDPOINT: &str = "_affinity_toggle";

/// The router's answer about the switch.
#[derive(Debug, Deserialize)]
struct View {
    enabled: bool,
    source: String,
}

/// The switch and its previous state.
#[derive(Debug)]
pub(super) struct Switch<'a> {
    admin: &'a Router,
    route: &'a str,
    /// The operator's own override, if there was one.
    before: Option<bool>,
}

impl<'a> Switch<'a> {
    /// Reads the current state of the switch.
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

    /// Sets the switch.
    ///
    /// # Errors
    /// When the router cannot be reached or refuses.
    pub(super) async fn set(&self, on: bool) -> Result<(), Failure> {
        self.send(&[("on", if on { "1" } else { "0" })]).await
    }

    /// Restores the previous state.
    ///
    /// # Errors
    /// When restoring fails; the text says how to do it by hand.
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
