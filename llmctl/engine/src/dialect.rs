//! Which engine is imitated where engines differ: metric names, error bodies, a few fields.

use serde::{Deserialize, Serialize};

/// The engine imitated.
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
    /// Either llama.cpp.
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

    /// Whether a stream's headers leave at once, or with the first token: llama.cpp is silent
    /// while a request waits and prefills, the others answer 200 before the work begins.
    pub(crate) fn headers_first(self) -> bool {
        !self.is_llamacpp()
    }
}
