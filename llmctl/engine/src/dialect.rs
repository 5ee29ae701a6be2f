//! The imitated engine, where engines differ: metric names, error bodies, a few fields.

use serde::{Deserialize, Serialize};

/// The imitated engine.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::ValueEnum, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// vLLM.
    #[default]
    Vllm,
    /// SGLang.
    Sglang,
    /// llama.cpp's server with its current metric names.
    Llamacpp,
    /// llama.cpp's server with the metric names of old builds.
    LlamacppOld,
}

impl Dialect {
    /// Whether this is llama.cpp, in either version.
    pub fn is_llamacpp(self) -> bool {
        matches!(self, Self::Llamacpp | Self::LlamacppOld)
    }

    /// `owned_by` of a model.
    pub(crate) fn owner(self) -> &'static str {
        match self {
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Llamacpp | Self::LlamacppOld => "llamacpp",
        }
    }

    /// Whether a stream's headers are sent at once. llama.cpp sends them with the first token,
    /// after the queue and the prefill; the others answer 200 before the work begins.
    pub(crate) fn headers_first(self) -> bool {
        !self.is_llamacpp()
    }
}
