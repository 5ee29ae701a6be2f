//! Converts configurations of other routers to route files.
//!
//! Nothing is lost silently. A setting that has no place in a route file is reported with its own
//! place. A value that the other program would reject prevents the conversion.

mod command;
mod gateway;
mod lite_llm;
mod llm_proxy;
mod openresty;
mod route_tree;
mod source;
#[cfg(test)]
mod tests;

use std::path::Path;

use super::env::{Env, expand_known};
use super::load::{parse, read};
use super::report::{Problem, Severity};
use crate::check::{Base, Reader, route_file};

/// A router whose command line is its configuration.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Router {
    Vllm,
    Sglang,
}

/// The name of a command line in problems, where no file has it.
const COMMAND_LINE: &str = "command line";

/// Converts a file of one of the known routers; its content says which. `env` completes its
/// variables, but only for the check: in the result they stay variables.
///
/// `name` is the route's; without it the file says it, or its stem does.
pub fn file(path: &Path, name: Option<&str>, env: &Env) -> Imported {
    let text = match read(path) {
        Ok(read) => read.text,
        Err(problem) => return Imported::refused(*problem),
    };
    let name = |registered: Option<String>| match name {
        Some(name) => name.to_owned(),
        None => registered.unwrap_or_else(|| file_name(path)),
    };
    if openresty::is_route(&text) {
        let name = name(openresty::registered_name(&text));
        return openresty::openresty(path, &name, env).named(name);
    }
    let name = name(None);
    let imported = match parse(path, text.clone()) {
        Ok((_, root)) if lite_llm::is_config(&root) => lite_llm::lite_llm(path, &name, env),
        Ok((_, root)) if llm_proxy::is_config(&root) => llm_proxy::llm_proxy(path, &name, env),
        _ if gateway::is_command(&text) => gateway::gateway(path, &text, &name, env),
        Ok(_) => Imported::refused(unknown(path)),
        Err(problem) => Imported::refused(*problem),
    };
    imported.named(name)
}

/// Converts a command line of vllm-router or of the SGLang router, one item a word.
pub fn command(words: &[String], name: &str, env: &Env) -> Imported {
    let script = command::joined(words);
    gateway::gateway(Path::new(COMMAND_LINE), &script, name, env).named(name.to_owned())
}

/// The file's stem as a route name.
fn file_name(path: &Path) -> String {
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    let allowed = |c: char| match c.to_ascii_lowercase() {
        c if c.is_ascii_alphanumeric() || matches!(c, '.' | '_' | '-') => c,
        _ => '-',
    };
    stem.chars().map(allowed).collect()
}

/// A file that holds nothing that can be converted.
fn unknown(path: &Path) -> Problem {
    let message = "this is none of the configurations that can be imported: a route of llm-openresty (`register_route`), llm-proxy (`backends`), LiteLLM (`model_list`), or a script with a command of vllm-router or of the SGLang router";
    Problem::of_file(Severity::Error, path, message)
}

/// The first error that the router would report for the text as a route file of this name.
/// Variables may be unset here.
fn flaw(name: &str, text: &str, env: &Env) -> Option<String> {
    let path = Path::new(name).with_extension("yaml");
    let (text, mut root) = match parse(&path, text.to_owned()) {
        Ok(parsed) => parsed,
        Err(problem) => return Some(problem.title()),
    };
    let mut reader = Reader::new();
    expand_known(&mut root, env, &mut reader);
    route_file(&mut reader, &path, &root, &Base::of_no_file());
    let problems = reader.finish(&path, &text);
    problems.iter().find(|p| p.is_error()).map(Problem::title)
}

/// The result for one file.
#[derive(Debug)]
pub struct Imported {
    /// The route's name.
    pub name: String,
    /// The text of the route file; `None` if an error prevents it.
    pub text: Option<String>,
    /// Whether the text contains a credential in plain form.
    pub holds_secret: bool,
    /// Errors, and as warnings the settings that could not be converted; in file order.
    pub problems: Vec<Problem>,
}

impl Imported {
    fn refused(problem: Problem) -> Self {
        Self::with_errors(vec![problem])
    }

    fn with_errors(problems: Vec<Problem>) -> Self {
        Self {
            name: String::new(),
            text: None,
            holds_secret: false,
            problems,
        }
    }

    fn named(mut self, name: String) -> Self {
        self.name = name;
        self
    }

    /// The first error that a router would report for the resulting file, such as a name that no
    /// route can have.
    pub fn flaw(&self, env: &Env) -> Option<String> {
        flaw(&self.name, self.text.as_deref()?, env)
    }

    fn of(text: String, holds_secret: bool, problems: Vec<Problem>) -> Self {
        let is_sound = problems.iter().all(|p| p.severity == Severity::Warning);
        Self {
            name: String::new(),
            text: is_sound.then_some(text),
            holds_secret,
            problems,
        }
    }
}
