//! The text of replies: two readable sentences, repeated, the same for every prompt.
//!
//! A reply is planned as a whole before its first token is due. So its length, its stop sequence
//! and its finish reason are known, and only the pace remains. Every piece is one token of
//! [`tokens`](crate::tokens), so a reply that returns as history splits into the same tokens.

use std::borrow::Cow;

use crate::length::Drawn;
use crate::tokens;

/// Maximum number of tokens of one reply, whatever the request asks for: a plan is held in memory.
pub const REPLY_MAX: usize = 131_072;

/// Two sentences. When they repeat, a space is put before the first word.
pub(crate) const SENTENCES: [&str; 29] = [
    "The",
    " quick",
    " brown",
    " fox",
    " jumps",
    " over",
    " the",
    " lazy",
    " dog",
    ".",
    " A",
    " router",
    " keeps",
    " each",
    " conversation",
    " on",
    " the",
    " engine",
    " that",
    " remembers",
    " it",
    ",",
    " and",
    " spreads",
    " the",
    " rest",
    " by",
    " load",
    ".",
];

/// Why a reply ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Finish {
    /// The text reached its natural end.
    Stop,
    /// The text reached the limit of the request.
    Length,
    /// The text contained this stop sequence of the request.
    StopSequence(String),
    /// The reply is a tool call.
    ToolCall,
}

/// A planned reply.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// One token each; joined they are the text, or the arguments of the tool call.
    pub(crate) pieces: Vec<Cow<'static, str>>,
    /// Why the reply will end.
    pub(crate) finish: Finish,
}

impl Plan {
    /// The sentences, up to the drawn length or the request's limit.
    pub(crate) fn sentences(drawn: Drawn, limit: Option<usize>) -> Self {
        let (tokens, finish) = match (drawn, limit) {
            (Drawn::Natural(tokens), Some(limit)) if limit < tokens => (limit, Finish::Length),
            (Drawn::Filled(_), Some(limit)) => (limit, Finish::Length),
            (Drawn::Natural(tokens) | Drawn::Filled(tokens), _) => (tokens, Finish::Stop),
        };
        let pieces = (0..tokens.min(REPLY_MAX)).map(sentence_piece).collect();
        Self { pieces, finish }
    }

    /// A given text, cut at the limit.
    pub(crate) fn text(text: &str, limit: Option<usize>, finish: Finish) -> Self {
        let mut pieces: Vec<Cow<'static, str>> = tokens::pieces(text)
            .map(|p| Cow::Owned(p.to_owned()))
            .collect();
        let limit = limit.unwrap_or(REPLY_MAX).min(REPLY_MAX);
        let finish = if pieces.len() > limit {
            Finish::Length
        } else {
            finish
        };
        pieces.truncate(limit);
        Self { pieces, finish }
    }

    /// Ends the reply before the earliest of the stop sequences; empty ones never match.
    pub(crate) fn stopped_by(mut self, stops: &[String]) -> Self {
        let text = self.pieces.concat();
        let earliest = stops
            .iter()
            .filter(|stop| !stop.is_empty())
            .filter_map(|stop| Some((text.find(stop.as_str())?, stop)))
            .min_by_key(|(at, _)| *at);
        if let Some((at, stop)) = earliest {
            self.cut_at(at);
            self.finish = Finish::StopSequence(stop.clone());
        }
        self
    }

    fn cut_at(&mut self, mut bytes: usize) {
        let kept = self.pieces.iter().take_while(|piece| {
            let whole = bytes >= piece.len();
            bytes -= if whole { piece.len() } else { 0 };
            whole
        });
        let kept = kept.count();
        let part = self.pieces.get(kept).map(|piece| piece[..bytes].to_owned());
        self.pieces.truncate(kept);
        self.pieces
            .extend(part.filter(|part| !part.is_empty()).map(Cow::Owned));
    }
}

fn sentence_piece(index: usize) -> Cow<'static, str> {
    match (index, index % SENTENCES.len()) {
        (0, 0) => Cow::Borrowed(SENTENCES[0]),
        (_, 0) => Cow::Borrowed(" The"),
        (_, within) => Cow::Borrowed(SENTENCES[within]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_piece_of_a_reply_is_one_token_when_it_comes_back() {
        let plan = Plan::sentences(Drawn::Filled(100), None);
        let text = plan.pieces.concat();
        assert_eq!(tokens::pieces(&text).collect::<Vec<_>>(), plan.pieces);
        assert!(text.starts_with("The quick brown fox jumps over the lazy dog. A router"));
        assert!(text.contains("by load. The quick"));
    }

    #[test]
    fn a_limit_decides_length_and_reason() {
        assert_eq!(
            Plan::sentences(Drawn::Filled(16), None).finish,
            Finish::Stop
        );
        let limited = Plan::sentences(Drawn::Filled(16), Some(40));
        assert_eq!((limited.pieces.len(), limited.finish), (40, Finish::Length));
        assert_eq!(
            Plan::sentences(Drawn::Filled(16), Some(usize::MAX))
                .pieces
                .len(),
            REPLY_MAX
        );
    }

    #[test]
    fn a_stop_sequence_ends_the_text_before_itself_even_inside_a_token() {
        let plan = Plan::sentences(Drawn::Filled(16), None).stopped_by(&[
            "umps".into(),
            "dog".into(),
            String::new(),
        ]);
        assert_eq!(plan.pieces.concat(), "The quick brown fox j");
        assert_eq!(plan.finish, Finish::StopSequence("umps".into()));
        let none = Plan::sentences(Drawn::Filled(16), None).stopped_by(&["zebra".into()]);
        assert_eq!((none.pieces.len(), none.finish), (16, Finish::Stop));
        assert_eq!(
            Plan::sentences(Drawn::Filled(16), None)
                .stopped_by(&["The".into()])
                .pieces,
            [] as [&str; 0]
        );
    }

    #[test]
    fn a_given_text_keeps_its_reason_unless_cut() {
        let whole = Plan::text("{\"a\": 1}", None, Finish::ToolCall);
        assert_eq!(
            (whole.pieces.concat().as_str(), whole.finish),
            ("{\"a\": 1}", Finish::ToolCall)
        );
        assert_eq!(
            Plan::text("a b c", Some(2), Finish::Stop).finish,
            Finish::Length
        );
    }

    #[test]
    fn a_natural_reply_stops_before_its_limit_or_is_cut_there() {
        let ended = Plan::sentences(Drawn::Natural(58), Some(32_000));
        assert_eq!((ended.pieces.len(), ended.finish), (58, Finish::Stop));
        assert!(ended.pieces.concat().ends_with("by load."));
        let cut = Plan::sentences(Drawn::Natural(58), Some(40));
        assert_eq!((cut.pieces.len(), cut.finish), (40, Finish::Length));
    }
}
