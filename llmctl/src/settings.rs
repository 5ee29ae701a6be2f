//! The settings of a run: resolves the command line, the environment and `llmctl`'s own file, in
//! that order.
//!
//! `llmctl`'s own file has defaults for the router and the token file. It is not `router.yaml`,
//! which `--config` names.

mod own;

use std::path::PathBuf;

use clap::parser::ValueSource;
use clap::{ArgMatches, Args};
use reqwest::Url;

use self::own::{Own, own_file};
use crate::client::Token;
use crate::exit::Failure;
use crate::render::Format;

/// The default address of a router's admin port.
pub const ROUTER_DEFAULT: &str = "http://127.0.0.1:8090";

/// Options of every command.
#[derive(Clone, Debug, Default, Args)]
#[command(next_help_heading = "Global options")]
pub struct Global {
    /// Admin URL of a running router; repeat it for several. Default http://127.0.0.1:8090
    #[arg(
        long,
        global = true,
        value_name = "URL",
        env = "LLMCTL_ROUTER",
        value_delimiter = ',',
        hide_env_values = true
    )]
    pub router: Vec<String>,
    /// File with the admin token, for routers that are not on this machine
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LLMCTL_TOKEN_FILE",
        hide_env_values = true
    )]
    pub token_file: Option<PathBuf>,
    /// How results are written
    #[arg(
        long,
        global = true,
        value_enum,
        value_name = "FORMAT",
        env = "LLMCTL_OUTPUT",
        default_value_t,
        hide_env_values = true
    )]
    pub output: Format,
    /// The router.yaml to read; else ./router.yaml, /etc/llm-router/router.yaml
    #[arg(
        long,
        global = true,
        value_name = "FILE",
        env = "LLM_ROUTER_CONFIG",
        hide_env_values = true
    )]
    pub config: Option<PathBuf>,
    /// Directory of route files, instead of the one router.yaml names
    #[arg(
        long,
        global = true,
        value_name = "DIR",
        env = "LLMCTL_ROUTES",
        hide_env_values = true
    )]
    pub routes: Option<PathBuf>,
    /// Print results and failures only
    #[arg(long, short, global = true)]
    pub quiet: bool,
}

/// The source of an answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Subject {
    /// Running routers.
    Live,
    /// Files on this machine.
    Files,
}

/// The resolved settings.
#[derive(Debug)]
pub struct Settings {
    /// Admin URLs, at least one.
    pub routers: Vec<Url>,
    /// The admin token.
    pub token: Option<Token>,
    /// `--config`, or its environment variable.
    pub config: Option<PathBuf>,
    /// `--routes`, or its environment variable.
    pub routes: Option<PathBuf>,
    /// Routers or files; the error when the command line asks for both.
    subject: Result<Subject, &'static str>,
}

impl Settings {
    /// Resolves the command line, the environment and the file.
    ///
    /// # Errors
    /// [`Failure::Usage`] for an invalid URL or own file, [`Failure::Wrong`] for a file that cannot
    /// be read.
    pub fn resolve(global: &Global, matches: &ArgMatches) -> Result<Self, Failure> {
        let typed = |id| matches.value_source(id) == Some(ValueSource::CommandLine);
        let own = match own_file() {
            Some((path, required)) => Own::read(&path, required)?,
            None => Own::default(),
        };
        let subject = subject(
            typed("router"),
            typed("config") || typed("routes"),
            !global.router.is_empty() || !own.router.0.is_empty(),
        );
        let given = if global.router.is_empty() {
            own.router.0
        } else {
            global.router.clone()
        };
        let routers = if given.is_empty() {
            vec![parse_router(ROUTER_DEFAULT)?]
        } else {
            given
                .iter()
                .map(|text| parse_router(text))
                .collect::<Result<_, _>>()?
        };
        let token_file = global.token_file.clone().or(own.token_file);
        Ok(Self {
            routers,
            token: token_file.as_deref().map(Token::read).transpose()?,
            config: global.config.clone(),
            routes: global.routes.clone(),
            subject,
        })
    }

    /// Settings that read these files, for tests.
    #[cfg(test)]
    pub fn of_files(config: Option<PathBuf>, routes: Option<PathBuf>) -> Self {
        Self {
            routers: Vec::new(),
            token: None,
            config,
            routes,
            subject: Ok(Subject::Files),
        }
    }

    /// Selects routers or files, for commands that support both. The default is files unless a
    /// router was given; a flag takes precedence over the environment and the own file.
    ///
    /// # Errors
    /// [`Failure::Usage`] when the command line asks for both.
    pub fn subject(&self) -> Result<Subject, Failure> {
        self.subject.map_err(|why| Failure::Usage(why.to_owned()))
    }

    /// The router, for commands that support only one.
    ///
    /// # Errors
    /// [`Failure::Usage`] when several were given.
    pub fn one_router(&self) -> Result<&Url, Failure> {
        match self.routers.as_slice() {
            [one] => Ok(one),
            several => Err(Failure::Usage(format!(
                "this asks one router, but {} were given: pass --router once",
                several.len()
            ))),
        }
    }
}

fn subject(
    router_typed: bool,
    files_typed: bool,
    router_given: bool,
) -> Result<Subject, &'static str> {
    match (router_typed, files_typed) {
        (true, true) => Err(
            "--router asks a running router, --config and --routes read files: give one or the other",
        ),
        (false, true) => Ok(Subject::Files),
        (true, false) => Ok(Subject::Live),
        (false, false) if router_given => Ok(Subject::Live),
        (false, false) => Ok(Subject::Files),
    }
}

/// Parses an admin URL; `host:port` alone means http.
fn parse_router(text: &str) -> Result<Url, Failure> {
    let wrong = |why: &str| {
        Failure::Usage(format!(
            "--router {text}: {why}; expected a URL like {ROUTER_DEFAULT}"
        ))
    };
    let full = if text.contains("://") {
        text.to_owned()
    } else {
        format!("http://{text}")
    };
    let url = Url::parse(&full).map_err(|error| wrong(&error.to_string()))?;
    if !matches!(url.scheme(), "http" | "https") {
        return Err(wrong("not http or https"));
    }
    if !url.username().is_empty() || url.password().is_some() {
        return Err(wrong("a URL is no place for a secret, use --token-file"));
    }
    Ok(url)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_are_read_unless_a_router_was_given_and_a_flag_beats_the_environment() {
        assert_eq!(subject(false, false, false), Ok(Subject::Files));
        assert_eq!(subject(false, false, true), Ok(Subject::Live));
        assert_eq!(subject(false, true, true), Ok(Subject::Files));
        assert_eq!(subject(true, false, true), Ok(Subject::Live));
        assert!(subject(true, true, true).is_err());
    }

    #[test]
    fn a_router_url_must_be_http_and_hold_no_secret() {
        assert_eq!(
            parse_router("10.0.0.5:8090").unwrap().as_str(),
            "http://10.0.0.5:8090/"
        );
        assert_eq!(
            parse_router("https://r.example/x").unwrap().as_str(),
            "https://r.example/x"
        );
        for wrong in ["ftp://x", "http://user:pw@x", "http://", "http://x:99999"] {
            assert_eq!(parse_router(wrong).unwrap_err().code(), 2, "{wrong}");
        }
    }
}
