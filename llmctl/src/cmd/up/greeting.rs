//! The greeting of `llmctl up`: the addresses, and commands to try. Pure text.

use std::fmt::Write as _;
use std::net::SocketAddr;
use std::path::PathBuf;

use serde::Serialize;

use super::files::ROUTE;
use crate::settings::ROUTER_DEFAULT;

/// The addresses and paths; the JSON form is stable.
#[derive(Clone, Debug, Serialize)]
pub(super) struct Up {
    /// Base URL of the OpenAI API; the Anthropic API is at the same URL without `/v1`.
    pub openai_base_url: String,
    /// The public port.
    pub public: SocketAddr,
    /// The admin port.
    pub admin: SocketAddr,
    /// The route's name.
    pub route: String,
    /// A model that clients can request; `None` when no peer has listed its models yet.
    pub model: Option<String>,
    /// The simulated engines, or the URLs given with `--backend`.
    pub peers: Vec<String>,
    /// Whether the peers are simulated.
    pub simulated: bool,
    /// Directory of `router.yaml` and `routes/`.
    pub dir: PathBuf,
    /// Whether the directory is removed at the end.
    pub dir_is_temporary: bool,
    /// Directory of the records; `None` when the main file names no listener that `up` runs.
    pub records: Option<PathBuf>,
    /// URL of the metrics from these records.
    pub exporter: Option<String>,
}

impl Up {
    /// The greeting. `program` is the path by which this program was called, so that the operator
    /// can copy every command.
    pub(super) fn greeting(&self, program: &str) -> String {
        let mut text = self.places();
        let (base, model) = (
            &self.openai_base_url,
            self.model.as_deref().unwrap_or("MODEL"),
        );
        let options = self.options();
        // Writing to a String cannot fail.
        let _ = write!(
            text,
            "\nTry it:\n\n  \
             curl {base}/chat/completions -H 'content-type: application/json' -H 'x-session-id: demo' \\\n    \
             -d '{{\"model\": \"{model}\", \"messages\": [{{\"role\": \"user\", \"content\": \"Hello\"}}]}}'\n\n  \
             python3 -c 'import openai; print(openai.OpenAI(base_url=\"{base}\", api_key=\"none\").chat.completions.create(\
             model=\"{model}\", messages=[{{\"role\": \"user\", \"content\": \"Hello\"}}], \
             extra_headers={{\"x-session-id\": \"demo\"}}).choices[0].message.content)'\n\n  \
             {program} status{options}\n  \
             {program} route explain {ROUTE} --session demo{options}{live}\n\
             {logs}\n\
             Ctrl-C stops everything. What affinity is worth, in another terminal:\n\n  \
             {program} replay{replay}\n",
            live = if options.is_empty() {
                format!(" --router {ROUTER_DEFAULT}")
            } else {
                String::new()
            },
            logs = self.logs(program),
            replay = self.replay_options(),
        );
        text
    }

    fn logs(&self, program: &str) -> String {
        let of =
            |dir: &PathBuf| format!("  {program} logs --dir {} --session demo\n", dir.display());
        self.records.as_ref().map(of).unwrap_or_default()
    }

    /// The location of the records and of their metrics.
    fn recorded(&self) -> String {
        let (Some(records), Some(exporter)) = (&self.records, &self.exporter) else {
            return String::new();
        };
        format!(
            "  records        {}\n  exporter       {exporter}\n",
            records.display()
        )
    }

    fn places(&self) -> String {
        let peers = if self.simulated {
            "engines"
        } else {
            "backends"
        };
        let kept = if self.dir_is_temporary {
            " (removed at the end; --dir DIR keeps them)"
        } else {
            ""
        };
        format!(
            "llm-router is up: route `{ROUTE}` over {count} {kind}.\n\n  \
             OpenAI API     {base}\n  \
             Anthropic API  http://{public}\n  \
             admin port     http://{admin}\n  \
             {peers:<13}  {list}\n  \
             files          {dir}{kept}\n{recorded}",
            recorded = self.recorded(),
            count = self.peers.len(),
            kind = match (self.simulated, self.peers.len()) {
                (true, 1) => "simulated engine",
                (true, _) => "simulated engines",
                (false, 1) => "backend",
                (false, _) => "backends",
            },
            base = self.openai_base_url,
            public = self.public,
            admin = self.admin,
            list = self.peers.join(" "),
            dir = self.dir.display(),
        )
    }

    /// ` --router …` when the default address is not that of this router.
    fn options(&self) -> String {
        let router = format!("http://{}", self.admin);
        if router == ROUTER_DEFAULT {
            String::new()
        } else {
            format!(" --router {router}")
        }
    }

    fn replay_options(&self) -> String {
        let url = if self.public.port() == 8080 {
            String::new()
        } else {
            format!(" --url http://{}", self.public)
        };
        format!("{url}{}", self.options())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn up(public: u16, admin: u16) -> Up {
        Up {
            openai_base_url: format!("http://127.0.0.1:{public}/v1"),
            public: SocketAddr::from(([127, 0, 0, 1], public)),
            admin: SocketAddr::from(([127, 0, 0, 1], admin)),
            route: ROUTE.to_owned(),
            model: Some("sim".to_owned()),
            peers: vec![
                "http://127.0.0.1:41001".to_owned(),
                "http://127.0.0.1:41002".to_owned(),
            ],
            simulated: true,
            dir: "/tmp/llm-router-up.x".into(),
            dir_is_temporary: true,
            records: Some("/tmp/llm-router-up.x/bodylog".into()),
            exporter: Some("http://127.0.0.1:9110/metrics".to_owned()),
        }
    }

    #[test]
    fn the_greeting_ends_with_the_replay_command() {
        insta::assert_snapshot!("greeting", up(8080, 8090).greeting("llmctl"));
        let other = up(9000, 9010).greeting("target/release/llmctl");
        let last = other.lines().last().unwrap();
        assert_eq!(
            last.trim(),
            "target/release/llmctl replay --url http://127.0.0.1:9000 --router http://127.0.0.1:9010"
        );
    }
}
