//! Asking every route of every router: commands that change something everywhere they can.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use proto::admin::{Pool, RouteStatus, Routes};
use serde::Serialize;

use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::Screen;
use crate::settings::Settings;

/// One router, and the routes of it that are meant.
pub(super) struct Member {
    /// The router.
    pub(super) router: Router,
    /// Their names.
    pub(super) routes: Vec<String>,
}

/// What one route of one router said; its JSON form is stable.
#[derive(Debug, Serialize)]
pub(super) struct Answer<T> {
    /// The router's URL.
    pub(super) router: String,
    /// Absent when a router as a whole was asked, or could not even be asked for its routes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<String>,
    /// What it said.
    #[serde(flatten)]
    pub(super) said: Said<T>,
}

/// An answer, or why there is none.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Said<T> {
    /// The answer.
    Fine(T),
    /// Why there is none.
    Failed {
        /// For people.
        error: String,
    },
}

/// What came of asking everybody.
pub(super) struct Round<T> {
    /// In the order the routers were given, routes by name.
    pub(super) answers: Vec<Answer<T>>,
    failures: Vec<Failure>,
}

/// Asks `ask` of every router, all at once. One that fails does not keep the others from being asked.
///
/// # Errors
/// When TLS cannot be set up.
pub(super) async fn each<T>(
    settings: &Settings,
    ask: impl AsyncFn(&Router) -> Result<T, Failure>,
) -> Result<Round<T>, Failure> {
    let routers = settings
        .routers
        .iter()
        .map(|url| Router::new(url, settings.token.clone()))
        .collect::<Result<Vec<_>, _>>()?;
    let said = join_all(routers.iter().map(|router| ask(router))).await;
    let mut round = Round {
        answers: Vec::new(),
        failures: Vec::new(),
    };
    for (router, said) in routers.iter().zip(said) {
        match said {
            Ok(said) => round.answers.push(Answer {
                router: router.url().to_owned(),
                route: None,
                said: Said::Fine(said),
            }),
            Err(failure) => round.failed(router.url(), None, failure),
        }
    }
    Ok(round)
}

/// Asks `ask` of the route that was named, or of every route, on every router; with `model` of
/// those routes alone that have it. One that fails does not keep the others from being asked.
///
/// # Errors
/// When TLS cannot be set up, or nobody has the model.
pub(super) async fn round<T>(
    settings: &Settings,
    route: Option<&str>,
    model: Option<&str>,
    ask: impl AsyncFn(&Router, &str) -> Result<T, Failure>,
) -> Result<Round<T>, Failure> {
    let mut round = Round {
        answers: Vec::new(),
        failures: Vec::new(),
    };
    let mut asked = BTreeSet::new();
    for url in &settings.routers {
        let router = Router::new(url, settings.token.clone())?;
        let member = match member(router, route, model).await {
            Ok(member) => member,
            Err((router, failure)) => {
                round.failed(router.url(), None, failure);
                continue;
            }
        };
        for name in &member.routes {
            asked.insert(name.clone());
            match ask(&member.router, name).await {
                Ok(said) => round.answers.push(Answer {
                    router: member.router.url().to_owned(),
                    route: Some(name.clone()),
                    said: Said::Fine(said),
                }),
                Err(failure) => round.failed(member.router.url(), Some(name), failure),
            }
        }
    }
    if asked.is_empty() && round.failures.is_empty() {
        return Err(Failure::Wrong(match model {
            Some(model) => format!("no route has peers of its own for the model `{model}`"),
            None => "no router has a route".to_owned(),
        }));
    }
    Ok(round)
}

/// A router with the routes that are meant. An invalid route has no switches and no limits.
async fn member(
    router: Router,
    route: Option<&str>,
    model: Option<&str>,
) -> Result<Member, (Router, Failure)> {
    if let Some(name) = route {
        return Ok(Member {
            router,
            routes: vec![name.to_owned()],
        });
    }
    let status: Routes = match router.get(&["_routes"], &[]).await {
        Ok(status) => status,
        Err(failure) => return Err((router, failure)),
    };
    let serves = |pools: &[Pool]| {
        model.is_none_or(|model| {
            let mut models = pools.iter().filter_map(|pool| pool.model.as_deref());
            models.any(|served| served == model)
        })
    };
    let routes = status
        .routes
        .into_iter()
        .filter(|route| route.status != RouteStatus::Invalid && serves(&route.pools))
        .map(|route| route.name);
    Ok(Member {
        routes: routes.collect(),
        router,
    })
}

impl<T> Round<T> {
    fn failed(&mut self, router: &str, route: Option<&String>, failure: Failure) {
        self.answers.push(Answer {
            router: router.to_owned(),
            route: route.cloned(),
            said: Said::Failed {
                error: failure.to_string(),
            },
        });
        self.failures.push(failure);
    }

    /// Router, route and answer of those that answered.
    pub(super) fn fine(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.answers.iter().filter_map(|answer| match &answer.said {
            Said::Fine(said) => Some((&*answer.router, answer.route.as_deref()?, said)),
            Said::Failed { .. } => None,
        })
    }

    /// Router and answer of the routers that answered for themselves.
    pub(super) fn whole(&self) -> impl Iterator<Item = (&str, &T)> {
        self.answers.iter().filter_map(|answer| match &answer.said {
            Said::Fine(said) => Some((&*answer.router, said)),
            Said::Failed { .. } => None,
        })
    }

    /// The exit: fine, or the worst failure after the others were told.
    ///
    /// # Errors
    /// The worst of the failures.
    pub(super) fn end(self, screen: &mut Screen) -> Result<Ended, Failure> {
        let mut failures = self.failures;
        failures.sort_by_key(Failure::code);
        let Some(worst) = failures.pop() else {
            return Ok(Ended::Fine);
        };
        for failure in failures {
            screen.error(&failure.to_string());
        }
        Err(worst)
    }
}

/// Rounds without routers.
#[cfg(test)]
pub(super) mod testing {
    use super::{Answer, Round, Said};

    /// What these routers said of themselves.
    pub(in crate::cmd) fn routers<T>(
        said: impl IntoIterator<Item = (&'static str, T)>,
    ) -> Round<T> {
        let answers = said.into_iter().map(|(router, said)| Answer {
            router: router.to_owned(),
            route: None,
            said: Said::Fine(said),
        });
        Round {
            answers: answers.collect(),
            failures: Vec::new(),
        }
    }

    /// What these said.
    pub(in crate::cmd) fn round<T>(
        said: impl IntoIterator<Item = (&'static str, &'static str, T)>,
    ) -> Round<T> {
        let answers = said.into_iter().map(|(router, route, said)| Answer {
            router: router.to_owned(),
            route: Some(route.to_owned()),
            said: Said::Fine(said),
        });
        Round {
            answers: answers.collect(),
            failures: Vec::new(),
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::render::Format;
    use crate::render::testing::capture_async;

    #[tokio::test]
    async fn the_worst_failure_ends_it_and_answers_stay() {
        let mut round = testing::round([("a", "chat", json!({"x": 1}))]);
        let unreachable = Failure::Unreachable {
            router: "b".to_owned(),
            reason: "refused".to_owned(),
        };
        round.failed("b", None, unreachable);
        round.failed(
            "c",
            Some(&"chat".to_owned()),
            Failure::Wrong("no".to_owned()),
        );
        assert_eq!(
            json!(round.answers),
            json!([
                {"router": "a", "route": "chat", "x": 1},
                {"router": "b", "error": "could not reach b: refused"},
                {"router": "c", "route": "chat", "error": "no"},
            ])
        );
        let (_, ended) = capture_async(Format::Human, async |screen| round.end(screen)).await;
        assert_eq!(ended.unwrap_err().code(), 3);
    }
}
