//! What the operator meant: the command line, the environment and `llmctl`'s own file, in that
//! order, resolved once.
//!
//! `llmctl`'s own file gives defaults for the router and the token file. It is not `router.yaml`,
//! which `--config` names.

use std::env;
use std::fmt;
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

use clap::ArgMatches;
use clap::parser::ValueSource;
use reqwest::Url;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::cli::Global;
use crate::client::Token;
use crate::exit::Failure;

/// Where a router's admin port is when nobody said.
pub const ROUTER_DEFAULT: &str = "http://127.0.0.1:8090";
/// Bytes of `llmctl`'s own file; it holds two keys.
const OWN_FILE_BYTES_MAX: u64 = 64 * 1024;

/// Where an answer comes from.
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
    /// Whether the choice between router and files was made, and how.
    subject: Result<Subject, &'static str>,
}

impl Settings {
    /// Resolves what was typed with what stands in the environment and in the file.
    ///
    /// # Errors
    /// [`Failure::Usage`] for a URL or an own file that makes no sense, [`Failure::Wrong`] for a
    /// file that cannot be read.
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

    /// Settings that read these files.
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

    /// Whether to ask routers or to read files, for commands that can do both. Files are read
    /// unless a router was given; a flag beats what the environment or a file gives.
    ///
    /// # Errors
    /// [`Failure::Usage`] when both were asked for on the command line.
    pub fn subject(&self) -> Result<Subject, Failure> {
        self.subject.map_err(|why| Failure::Usage(why.to_owned()))
    }

    /// The one router of commands that make no sense for several.
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

/// `llmctl`'s own file and whether it has to exist: one that was named must, the usual place may be
/// empty.
fn own_file() -> Option<(PathBuf, bool)> {
    let named = |variable| {
        env::var_os(variable)
            .filter(|value| !value.is_empty())
            .map(PathBuf::from)
    };
    if let Some(path) = named("LLMCTL_CONFIG") {
        return Some((path, true));
    }
    let base =
        named("XDG_CONFIG_HOME").or_else(|| named("HOME").map(|home| home.join(".config")))?;
    Some((base.join("llmctl/config.yaml"), false))
}

/// The content of `llmctl`'s own file.
#[derive(Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Own {
    router: Routers,
    token_file: Option<PathBuf>,
}

impl Own {
    fn read(path: &Path, required: bool) -> Result<Self, Failure> {
        let text = match fs::metadata(path) {
            Ok(found) if found.len() > OWN_FILE_BYTES_MAX => {
                return Err(Failure::Usage(format!(
                    "{}: {} bytes; at most {OWN_FILE_BYTES_MAX} are allowed",
                    path.display(),
                    found.len()
                )));
            }
            Ok(_) => {
                fs::read_to_string(path).map_err(|error| Failure::file("read", path, &error))?
            }
            Err(error) if error.kind() == ErrorKind::NotFound && !required => {
                return Ok(Self::default());
            }
            Err(error) => return Err(Failure::file("read", path, &error)),
        };
        if text.trim().is_empty() {
            return Ok(Self::default());
        }
        let mut own: Self = serde_saphyr::from_str(&text)
            .map_err(|error| Failure::Usage(format!("{}: {error}", path.display())))?;
        if let (Some(token_file), Some(base)) = (&mut own.token_file, path.parent()) {
            *token_file = base.join(&*token_file);
        }
        Ok(own)
    }
}

/// One URL, or a list of them.
#[derive(Debug, Default)]
struct Routers(Vec<String>);

impl<'de> Deserialize<'de> for Routers {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct OneOrMany;

        impl<'de> Visitor<'de> for OneOrMany {
            type Value = Routers;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a URL or a list of URLs")
            }

            fn visit_str<E>(self, one: &str) -> Result<Routers, E> {
                Ok(Routers(vec![one.to_owned()]))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Routers, A::Error> {
                let mut many = Vec::new();
                while let Some(one) = seq.next_element()? {
                    many.push(one);
                }
                Ok(Routers(many))
            }
        }

        deserializer.deserialize_any(OneOrMany)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn own(text: &str) -> Result<Own, Failure> {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("config.yaml");
        fs::write(&path, text).unwrap();
        Own::read(&path, true).map(|mut own| {
            let relative = |file: PathBuf| {
                file.strip_prefix(directory.path())
                    .map(Path::to_owned)
                    .unwrap_or(file)
            };
            own.token_file = own.token_file.map(relative);
            own
        })
    }

    #[test]
    fn own_file_takes_one_router_or_a_list() {
        assert_eq!(
            own("router: http://a:1\n").unwrap().router.0,
            ["http://a:1"]
        );
        assert_eq!(
            own("router: [http://a:1, b:2]\n").unwrap().router.0,
            ["http://a:1", "b:2"]
        );
        assert!(own("# nothing\n").unwrap().router.0.is_empty());
    }

    #[test]
    fn a_relative_token_file_is_beside_the_own_file() {
        assert_eq!(
            own("token_file: admin\n").unwrap().token_file.unwrap(),
            Path::new("admin")
        );
        assert_eq!(
            own("token_file: /t\n").unwrap().token_file.unwrap(),
            Path::new("/t")
        );
    }

    #[test]
    fn an_unknown_key_of_the_own_file_is_an_error_that_names_it() {
        let error = own("rooter: x\n").unwrap_err();
        assert_eq!(error.code(), 2);
        assert!(error.to_string().contains("rooter"), "{error}");
    }

    #[test]
    fn a_named_own_file_must_exist_and_the_usual_one_need_not() {
        let nowhere = Path::new("/nonexistent/llmctl.yaml");
        assert!(Own::read(nowhere, true).is_err());
        assert!(Own::read(nowhere, false).is_ok());
    }

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
