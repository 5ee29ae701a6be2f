//! What each engine says about its load: one file per dialect, pure bytes → sample.
//!
//! The names, labels and quirks are those the engines export today; where generations differ both
//! are read. Nothing here does IO: the poller fetches the page.

mod llamacpp;
mod page;
mod sglang;
mod tgi;
mod trtllm;
mod vllm;

use router_core::load::Sample;
use serde::{Deserialize, Serialize};

pub use page::Unusable;

/// Whose page it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Dialect {
    /// llama.cpp's server.
    LlamaCpp,
    /// vLLM.
    Vllm,
    /// SGLang.
    Sglang,
    /// Text Generation Inference.
    Tgi,
    /// `trtllm-serve`.
    TrtLlm,
    /// Triton with the TensorRT-LLM backend.
    Triton,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Self; 6] = [
        Self::LlamaCpp,
        Self::Vllm,
        Self::Sglang,
        Self::Tgi,
        Self::TrtLlm,
        Self::Triton,
    ];

    /// As the `engine` option spells it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::LlamaCpp => "llamacpp",
            Self::Vllm => "vllm",
            Self::Sglang => "sglang",
            Self::Tgi => "tgi",
            Self::TrtLlm => "trtllm",
            Self::Triton => "triton",
        }
    }

    /// What its families start with.
    fn prefixes(self) -> &'static [&'static str] {
        match self {
            Self::LlamaCpp => &["llamacpp:", "llama_"],
            Self::Vllm => &["vllm:"],
            Self::Sglang => &["sglang:"],
            Self::Tgi => &["tgi_"],
            Self::TrtLlm => &["trtllm_"],
            Self::Triton => &["nv_trt_llm_"],
        }
    }

    /// The dialect of the first family that any engine is known to export.
    pub fn detect(page: &[u8]) -> Option<Self> {
        page::series(page).find_map(|series| {
            Self::ALL.into_iter().find(|dialect| {
                let prefixes = dialect.prefixes();
                prefixes.iter().any(|prefix| series.starts_with(prefix))
            })
        })
    }

    /// Reads a page.
    ///
    /// # Errors
    /// When the page lacks the number of running requests, or a wanted number is not a count.
    pub fn sample(self, page: &[u8]) -> Result<Sample, Unusable> {
        match self {
            Self::LlamaCpp => llamacpp::sample(page),
            Self::Vllm => vllm::sample(page),
            Self::Sglang => sglang::sample(page),
            Self::Tgi => tgi::sample(page),
            Self::TrtLlm => trtllm::serve(page),
            Self::Triton => trtllm::triton(page),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_engine_is_known_by_its_first_family() {
        for (page, dialect) in [
            (
                "go_goroutines 7\nllamacpp:requests_processing 0\n",
                Dialect::LlamaCpp,
            ),
            ("llama_slots_busy 1\n", Dialect::LlamaCpp),
            ("vllm_num_requests_running 1\n", Dialect::Vllm),
            ("sglang:num_running_reqs 1\n", Dialect::Sglang),
            ("tgi_queue_size 0\n", Dialect::Tgi),
            ("trtllm_num_requests_running 0\n", Dialect::TrtLlm),
            (
                "nv_trt_llm_request_metrics{request_type=\"active\"} 0\n",
                Dialect::Triton,
            ),
        ] {
            assert_eq!(Dialect::detect(page.as_bytes()), Some(dialect), "{page}");
        }
        assert_eq!(Dialect::detect(b"process_cpu_seconds_total 1\n"), None);
    }
}
