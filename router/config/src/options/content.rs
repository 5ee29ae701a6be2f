//! The keys of the transforms that put requests right, besides `include_usage`.

use super::{Kind, OptionDef};
use crate::check::{self, Choice};
use crate::valid::IdStrategy;

/// `cch_strip`.
pub(crate) static CCH_STRIP: OptionDef<bool> =
    OptionDef::new("content", "cch_strip", Kind::Bool, check::boolean)
        .default("true")
        .doc("The `x-anthropic-billing-header: …` that coding agents put at the start of a prompt, different in every request, is taken out, so that prefix caches hit.");
/// `kimi_normalize`.
pub(crate) static KIMI_NORMALIZE: OptionDef<bool> =
    OptionDef::new("content", "kimi_normalize", Kind::Bool, check::boolean)
        .default("true")
        .doc("Tool-call ids in requests for Kimi K2.5 and K2.6 are written as the model writes them, `functions.<name>:<number>`.");
/// `kimi_normalize_strategy`.
pub(crate) static KIMI_NORMALIZE_STRATEGY: OptionDef<IdStrategy> = OptionDef::new(
    "content",
    "kimi_normalize_strategy",
    Kind::Choice(IdStrategy::words),
    check::choice,
)
.default("rerank")
.doc("The number in such an id: `rerank`: the call's position in the conversation; `hash`: a checksum of the call; `rerank_maxlast`: the position, but the last call gets the greatest number that was there; `keepinc`: ids of the right form stay while their numbers rise, the others get the next number.")
.advanced();
/// `system_hoist`.
pub(crate) static SYSTEM_HOIST: OptionDef<bool> =
    OptionDef::new("content", "system_hoist", Kind::Bool, check::boolean)
        .default("true")
        .doc("On `/v1/messages`, messages with `role: system` move to the top-level `system`, where that API has them.");

impl Choice for IdStrategy {
    const WORDS: &'static [(&'static str, Self)] = &[
        ("rerank", Self::Rerank),
        ("hash", Self::Hash),
        ("rerank_maxlast", Self::RerankMaxlast),
        ("keepinc", Self::Keepinc),
    ];
}
