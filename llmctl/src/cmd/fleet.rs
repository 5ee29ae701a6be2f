//! Requests to every route of every router, for commands that change all of them.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use proto::admin::{Pool, RouteStatus, Routes};
use serde::Serialize;

use crate::client::Router;
use crate::exit::{Ended, Failure};
use crate::render::Screen;
use crate::settings::Settings;

/// One router, with the routes that the command is about.
pub(super) struct Member {
    /// The client of the router.
    pub(super) router: Router,
    /// The names of the routes.
    pub(super) routes: Vec<String>,
}

/// The answer of one route of one router; its JSON form is stable.
#[derive(Debug, Serialize)]
pub(super) struct Answer<T> {
    /// The router's URL.
    pub(super) router: String,
    /// Absent when the question went to the router as a whole, or when its routes could not be
    /// listed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(super) route: Option<String>,
    /// The answer itself.
    #[serde(flatten)]
    pub(super) said: Said<T>,
}

/// An answer, or the reason why it is missing.
#[derive(Debug, Serialize)]
#[serde(untagged)]
pub(super) enum Said<T> {
    /// The answer.
    Fine(T),
    /// The reason why there is no answer.
    Failed {
        /// The reason, for people.
        error: String,
    },
}

/// The answers of all routers.
pub(super) struct Round<T> {
    /// In the order of the routers on the command line, then by route name.
    pub(super) answers: Vec<Answer<T>>,
    failures: Vec<Failure>,
}

/// Sends a question to every router concurrently. A router that fails does not stop the others.
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

/// Sends a question to the named route, or to every route, of every router. With `model`, only to
/// the routes that have this model. A route or router that fails does not stop the others.
///
/// # Errors
/// When TLS cannot be set up, or no route has the model.
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

/// A router with the requested routes. Invalid routes are left out: they have no switches and no
/// limits.
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

    /// Router, route and answer of every successful answer.
    pub(super) fn fine(&self) -> impl Iterator<Item = (&str, &str, &T)> {
        self.answers.iter().filter_map(|answer| match &answer.said {
            Said::Fine(said) => Some((&*answer.router, answer.route.as_deref()?, said)),
            Said::Failed { .. } => None,
        })
    }

    /// Router and answer of the routers that answered as a whole.
    pub(super) fn whole(&self) -> impl Iterator<Item = (&str, &T)> {
        self.answers.iter().filter_map(|answer| match &answer.said {
            Said::Fine(said) => Some((&*answer.router, said)),
            Said::Failed { .. } => None,
        })
    }

    /// How the command ends: fine, or with the worst failure. All other failures are reported
    /// first.
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

/// Rounds without routers, for tests.
#[cfg(test)]
pub(super) mod testing {
    use super::{Answer, Round, Said};

    /// A round with one answer per router.
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

    /// A round with one answer per route.
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
