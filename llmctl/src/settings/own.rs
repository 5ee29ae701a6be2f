//! `llmctl`'s own file: its location and its content.

use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::{env, fmt, fs};

use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

use crate::exit::Failure;

/// Maximum size of the file, bytes; it holds two keys.
const OWN_FILE_BYTES_MAX: u64 = 64 * 1024;

/// The path of `llmctl`'s own file, and whether the file must exist: a named file must, the one at
/// the default place need not.
pub(super) fn own_file() -> Option<(PathBuf, bool)> {
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
pub(super) struct Own {
    /// Admin URLs.
    pub(super) router: Routers,
    /// The path of the admin token's file, relative to this file.
    pub(super) token_file: Option<PathBuf>,
}

impl Own {
    /// Reads the file.
    ///
    /// # Errors
    /// When the file is invalid, or is required and missing.
    pub(super) fn read(path: &Path, required: bool) -> Result<Self, Failure> {
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
        let mut own: Self =
            serde_saphyr::from_str(&text).map_err(|error| unusable(path, &error))?;
        if let (Some(token_file), Some(base)) = (&mut own.token_file, path.parent()) {
            *token_file = base.join(&*token_file);
        }
        Ok(own)
    }
}

/// The location and the parser's message, without the parser's excerpt, which lacks the file name.
fn unusable(path: &Path, error: &serde_saphyr::Error) -> Failure {
    let text = error.without_snippet().to_string();
    let words = text.split(" at line ").next().unwrap_or_default();
    let place = error.location().map_or(String::new(), |at| {
        format!(":{}:{}", at.line(), at.column())
    });
    Failure::Usage(format!("{}{place}: {words}", path.display()))
}

/// One URL, or a list of them.
#[derive(Debug, Default)]
pub(super) struct Routers(pub(super) Vec<String>);

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
        let told = error.to_string();
        assert!(
            told.ends_with(
                "config.yaml:1:1: unknown field `rooter`, expected one of router, token_file"
            ),
            "{told}"
        );
    }

    #[test]
    fn a_named_own_file_must_exist_and_the_usual_one_need_not() {
        let nowhere = Path::new("/nonexistent/llmctl.yaml");
        assert!(Own::read(nowhere, true).is_err());
        assert!(Own::read(nowhere, false).is_ok());
    }
}
