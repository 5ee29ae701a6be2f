//! Finds the few members of an answer that are measured, in one pass over JSON cut anywhere.
//!
//! A document that arrives in one chunk is read by `whole`. Any other goes through a state
//! machine, byte by byte at its joints. Only the wanted values are kept. The places where they may occur form a small tree of [`Node`]s;
//! a value outside it is skipped by counting brackets. A wanted value within one chunk is borrowed
//! from it. Input that is not one JSON object ends the reading; nothing else is validated.
//! Duplicate members are all reported, so the last one counts.

use memchr::memchr2;

use crate::json::{is_blank, unescaped};

mod whole;

/// The most bytes kept of a wanted object. A usage object has a few hundred bytes.
pub(super) const OBJECT_MAX: usize = 16 << 10;

/// The most bytes kept of a wanted string or number, without the quotes.
pub(super) const TEXT_MAX: usize = 256;

/// The most bytes of a key that are examined. A longer key is never a wanted one, even with
/// escapes.
const KEY_MAX: usize = 120;

/// A wanted member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Member {
    /// `id`.
    Id,
    /// `model`.
    Model,
    /// `type` of a stream's event.
    Type,
    /// `usage`, an object.
    Usage,
    /// `actual_usage`, an object.
    ActualUsage,
    /// `timings`, an object.
    Timings,
    /// `finish_reason` of a choice, or an Anthropic `stop_reason`.
    Finish,
    /// `status` of a Responses answer.
    Status,
    /// `incomplete_details.reason` of a Responses answer.
    Incomplete,
    /// `stop_type` of llama.cpp's own API.
    StopType,
    /// `tokens_evaluated` of llama.cpp's own API.
    Evaluated,
}

/// A container that may hold wanted members.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    /// The answer, or an event of its stream.
    Root,
    /// `response` (Responses API) or `message` (Anthropic) of an event: the answer inside it.
    Inner,
    /// `choices`.
    Choices,
    /// One item of `choices`.
    Choice,
    /// `delta` of an Anthropic event.
    Delta,
    /// `incomplete_details`.
    Details,
}

/// How the reader treats a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Role {
    Skip,
    Take(Member),
    Enter(Node),
}

impl Node {
    fn member(self, key: &[u8]) -> Role {
        use Member::{
            ActualUsage, Evaluated, Finish, Id, Incomplete, Model, Status, StopType, Timings, Type,
            Usage,
        };
        match (self, key) {
            (Self::Root | Self::Inner, b"id") => Role::Take(Id),
            (Self::Root | Self::Inner, b"model") => Role::Take(Model),
            (Self::Root | Self::Inner, b"usage") => Role::Take(Usage),
            (Self::Root | Self::Inner, b"actual_usage") => Role::Take(ActualUsage),
            (Self::Root | Self::Inner, b"timings") => Role::Take(Timings),
            (Self::Root | Self::Inner, b"status") => Role::Take(Status),
            (Self::Root | Self::Inner | Self::Delta, b"stop_reason")
            | (Self::Choice, b"finish_reason") => Role::Take(Finish),
            (Self::Root | Self::Inner, b"incomplete_details") => Role::Enter(Self::Details),
            (Self::Root, b"stop_type") => Role::Take(StopType),
            (Self::Root, b"tokens_evaluated") => Role::Take(Evaluated),
            (Self::Root, b"choices") => Role::Enter(Self::Choices),
            (Self::Root, b"type") => Role::Take(Type),
            (Self::Root, b"delta") => Role::Enter(Self::Delta),
            (Self::Root, b"response" | b"message") => Role::Enter(Self::Inner),
            (Self::Details, b"reason") => Role::Take(Incomplete),
            _ => Role::Skip,
        }
    }

    fn is_array(self) -> bool {
        self == Self::Choices
    }
}

/// The deepest chain of nodes: root, `choices`, one choice.
const DEPTH_MAX: usize = 3;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// Before a value.
    Value(Role),
    /// In a node: before a key, an item, a comma or the end.
    Between,
    /// In a key.
    Key,
    /// After a key.
    Colon(Role),
    /// In a string.
    Text(Role),
    /// In a number or a literal.
    Scalar(Role),
    /// In a container that is skipped or taken whole, with the number of open brackets.
    Inside(Role, u32),
    /// In a string inside such a container.
    InsideText(Role, u32),
    /// The object is closed, or the input is not such an object.
    End,
}

/// Reads one answer.
#[derive(Debug)]
pub(super) struct Answer {
    nodes: [Node; DEPTH_MAX],
    depth: usize,
    state: State,
    /// Whether the last byte of the string was an unpaired backslash.
    escaped: bool,
    /// The part of the key, or of the wanted value, that came in earlier chunks.
    held: Vec<u8>,
    /// Whether the held bytes exceeded their bound.
    over: bool,
    closed: bool,
}

impl Default for Answer {
    fn default() -> Self {
        Self {
            nodes: [Node::Root; DEPTH_MAX],
            depth: 0,
            state: State::Value(Role::Enter(Node::Root)),
            escaped: false,
            held: Vec::new(),
            over: false,
            closed: false,
        }
    }
}

impl Answer {
    /// Whether the object has been closed, so that the answer is complete.
    pub(super) fn is_closed(&self) -> bool {
        self.closed
    }

    /// Calls `on` for every wanted value that ends in `chunk`. `on` gets the content of a string
    /// with its escapes, the text of a number or literal, or a whole object. `null` and values
    /// beyond their bound are not reported.
    pub(super) fn feed(&mut self, chunk: &[u8], mut on: impl FnMut(Member, &[u8])) {
        if self.is_at_start() && whole::read(chunk, &mut on) {
            self.closed = true;
            self.state = State::End;
            return;
        }
        let mut at = 0;
        while at < chunk.len() && self.state != State::End {
            at = self.step(chunk, at, &mut on);
        }
    }

    /// Whether no byte has been read.
    fn is_at_start(&self) -> bool {
        self.depth == 0 && self.state == State::Value(Role::Enter(Node::Root))
    }

    /// Handles the token, or the part of one, at `at`. Returns the position to continue at.
    fn step(&mut self, chunk: &[u8], at: usize, on: &mut impl FnMut(Member, &[u8])) -> usize {
        let rest = &chunk[at..];
        match self.state {
            State::Value(role) => self.value(chunk, at, role),
            State::Between => self.between(chunk[at], at),
            State::Colon(role) => {
                match chunk[at] {
                    b':' => self.state = State::Value(role),
                    byte if is_blank(byte) => {}
                    _ => self.state = State::End,
                }
                at + 1
            }
            State::Key => {
                let (end, closed) = self.text_end(rest);
                let node = self.nodes[self.depth - 1];
                if let Some(key) = self.whole(&rest[..end], closed, KEY_MAX) {
                    let role = key.map_or(Role::Skip, |key| node.member(&unescaped(key)));
                    self.state = State::Colon(role);
                    self.held.clear();
                }
                at + end + usize::from(closed)
            }
            State::Text(role) => {
                let (end, closed) = self.text_end(rest);
                self.keep(role, &rest[..end], closed, TEXT_MAX, on);
                if closed {
                    self.state = State::Between;
                }
                at + end + usize::from(closed)
            }
            State::Scalar(role) => {
                let ends = |byte: &u8| is_blank(*byte) || matches!(byte, b',' | b'}' | b']');
                let found = rest.iter().position(ends);
                let end = found.unwrap_or(rest.len());
                // `null` means the same as a missing member.
                let mut told = |member, value: &[u8]| {
                    if value != b"null" {
                        on(member, value);
                    }
                };
                self.keep(role, &rest[..end], found.is_some(), TEXT_MAX, &mut told);
                if found.is_some() {
                    self.state = State::Between;
                }
                at + end
            }
            State::Inside(role, _) | State::InsideText(role, _) => {
                let end = self.inside_end(rest);
                let closed = self.state == State::Between;
                self.keep(role, &rest[..end], closed, OBJECT_MAX, on);
                at + end
            }
            State::End => chunk.len(),
        }
    }

    fn value(&mut self, chunk: &[u8], at: usize, role: Role) -> usize {
        let byte = chunk[at];
        if is_blank(byte) {
            return at + 1;
        }
        self.held.clear();
        self.over = false;
        match (byte, role) {
            (b'{', Role::Enter(node)) if !node.is_array() => return self.enter(node, at),
            (b'[', Role::Enter(node)) if node.is_array() => return self.enter(node, at),
            _ if self.depth == 0 => self.state = State::End,
            (b'{' | b'[', _) => self.state = State::Inside(object_only(role, byte), 0),
            (b'"', _) => {
                self.state = State::Text(text_only(role));
                return at + 1;
            }
            (b',' | b'}' | b']' | b':', _) => self.state = State::End,
            (_, _) => self.state = State::Scalar(text_only(role)),
        }
        at
    }

    fn enter(&mut self, node: Node, at: usize) -> usize {
        self.nodes[self.depth] = node;
        self.depth += 1;
        self.state = State::Between;
        at + 1
    }

    fn between(&mut self, byte: u8, at: usize) -> usize {
        let Some(node) = self.depth.checked_sub(1).map(|top| self.nodes[top]) else {
            self.state = State::End;
            return at;
        };
        match byte {
            b',' => {}
            _ if is_blank(byte) => {}
            b'}' | b']' => {
                self.depth -= 1;
                if self.depth == 0 {
                    self.closed = byte == b'}';
                    self.state = State::End;
                }
            }
            _ if node.is_array() => {
                self.state = State::Value(Role::Enter(Node::Choice));
                return at;
            }
            b'"' => {
                self.held.clear();
                self.over = false;
                self.state = State::Key;
            }
            _ => self.state = State::End,
        }
        at + 1
    }

    /// The end of a string in `rest`, and whether the string ends there.
    fn text_end(&mut self, rest: &[u8]) -> (usize, bool) {
        let mut at = 0;
        if self.escaped && !rest.is_empty() {
            self.escaped = false;
            at = 1;
        }
        while let Some(found) = memchr2(b'"', b'\\', &rest[at..]) {
            at += found;
            if rest[at] == b'"' {
                return (at, true);
            }
            if at + 1 == rest.len() {
                self.escaped = true;
                return (rest.len(), false);
            }
            at += 2;
        }
        (rest.len(), false)
    }

    /// Advances to the end of the skipped container, or of `rest`.
    fn inside_end(&mut self, rest: &[u8]) -> usize {
        let mut at = 0;
        while at < rest.len() {
            match self.state {
                State::InsideText(role, depth) => {
                    let (end, closed) = self.text_end(&rest[at..]);
                    at += end + usize::from(closed);
                    if closed {
                        self.state = State::Inside(role, depth);
                    }
                }
                State::Inside(role, depth) => {
                    let mark = |byte: &u8| MARKS[usize::from(*byte)];
                    let Some(found) = rest[at..].iter().position(mark) else {
                        return rest.len();
                    };
                    at += found + 1;
                    self.state = match rest[at - 1] {
                        b'"' => State::InsideText(role, depth),
                        b'{' | b'[' => State::Inside(role, depth.saturating_add(1)),
                        _ if depth <= 1 => State::Between,
                        _ => State::Inside(role, depth - 1),
                    };
                    if self.state == State::Between {
                        return at;
                    }
                }
                _ => return at,
            }
        }
        at
    }

    fn keep(
        &mut self,
        role: Role,
        part: &[u8],
        closed: bool,
        limit: usize,
        on: &mut impl FnMut(Member, &[u8]),
    ) {
        let Role::Take(member) = role else { return };
        if let Some(Some(value)) = self.whole(part, closed, limit) {
            on(member, value);
        }
    }

    /// The value that ends with `part`, if it is `closed`. The inner `None` means that the value
    /// exceeds its bound.
    fn whole<'a>(
        &'a mut self,
        part: &'a [u8],
        closed: bool,
        limit: usize,
    ) -> Option<Option<&'a [u8]>> {
        self.over |= self.held.len() + part.len() > limit;
        if self.over {
            return closed.then_some(None);
        }
        if closed && self.held.is_empty() {
            return Some(Some(part));
        }
        self.held.extend_from_slice(part);
        closed.then_some(Some(&self.held))
    }
}

/// Bytes that open or close something. Only these matter in a skipped value.
static MARKS: [bool; 256] = {
    let mut marks = [false; 256];
    let mut at = 0;
    while at < 5 {
        marks[b"\"{}[]"[at] as usize] = true;
        at += 1;
    }
    marks
};

/// Skips an array where an object is wanted, and a container where a text is wanted.
fn object_only(role: Role, byte: u8) -> Role {
    match role {
        Role::Take(Member::Usage | Member::ActualUsage | Member::Timings) if byte == b'{' => role,
        _ => Role::Skip,
    }
}

fn text_only(role: Role) -> Role {
    match role {
        Role::Take(Member::Usage | Member::ActualUsage | Member::Timings) => Role::Skip,
        Role::Take(_) => role,
        _ => Role::Skip,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn members(chunks: &[&[u8]]) -> (Vec<(Member, String)>, bool) {
        let mut answer = Answer::default();
        let mut found = Vec::new();
        for chunk in chunks {
            answer.feed(chunk, |member, value| {
                found.push((member, String::from_utf8(value.to_vec()).unwrap()));
            });
        }
        (found, answer.is_closed())
    }

    fn expect(json: &str, expected: &[(Member, &str)]) {
        let expected: Vec<_> = expected.iter().map(|(m, v)| (*m, (*v).into())).collect();
        assert_eq!(
            members(&[json.as_bytes()]),
            (expected.clone(), true),
            "{json}"
        );
        let bytes: Vec<&[u8]> = json.as_bytes().chunks(1).collect();
        assert_eq!(members(&bytes), (expected.clone(), true), "{json}");
        for cut in 0..=json.len() {
            let (a, b) = json.as_bytes().split_at(cut);
            assert_eq!(
                members(&[a, b]),
                (expected.clone(), true),
                "{json} at {cut}"
            );
        }
    }

    #[test]
    fn wanted_members_are_found_where_they_belong() {
        use Member::*;
        expect(
            r#" {"id":"c1" , "model" :"m","choices":[{"index":0,"message":{"content":"a \"usage\":{} b","finish_reason":"no"},"finish_reason":"stop"},{"finish_reason":null}],"usage":{"prompt_tokens":1,"d":{"x":["}"]}},"x":[1,{"usage":{}}]}"#,
            &[
                (Id, "c1"),
                (Model, "m"),
                (Finish, "stop"),
                (Usage, r#"{"prompt_tokens":1,"d":{"x":["}"]}}"#),
            ],
        );
        expect(
            r#"{"type":"message_start","message":{"id":"m1","type":"message","usage":{"input_tokens":3},"stop_reason":null}}"#,
            &[
                (Type, "message_start"),
                (Id, "m1"),
                (Usage, r#"{"input_tokens":3}"#),
            ],
        );
        expect(
            r#"{"type":"response.incomplete","response":{"status":"incomplete","incomplete_details":{"reason":"max_output_tokens"},"usage":{}}}"#,
            &[
                (Type, "response.incomplete"),
                (Status, "incomplete"),
                (Incomplete, "max_output_tokens"),
                (Usage, "{}"),
            ],
        );
        expect(
            r#"{"delta":{"stop_reason":"end_turn","text":"\\"},"timings":{"prompt_n":1},"actual_usage":{}}"#,
            &[
                (Finish, "end_turn"),
                (Timings, r#"{"prompt_n":1}"#),
                (ActualUsage, "{}"),
            ],
        );
    }

    #[test]
    fn escapes_hide_no_key_and_end_no_string() {
        expect(
            r#"{"\u006dodel":"a\"b\\","x\"model":"no","y":"\\\"}","id":"\\"}"#,
            &[(Member::Model, r#"a\"b\\"#), (Member::Id, r"\\")],
        );
    }

    #[test]
    fn a_value_of_the_wrong_kind_is_not_told() {
        expect(
            r#"{"usage":[1],"usage":7,"usage":"x","model":{"id":"no"},"model":["m"],"choices":{"finish_reason":"x"},"delta":3,"response":"r","choices":[[{"finish_reason":"no"}],5]}"#,
            &[],
        );
    }

    #[test]
    fn a_value_beyond_its_bound_is_not_told_and_the_next_one_is() {
        let long = "x".repeat(OBJECT_MAX);
        let json = format!(r#"{{"usage":{{"x":"{long}"}},"id":"{long}","{long}":1,"model":"m"}}"#);
        for size in [1, 100, json.len()] {
            let chunks: Vec<&[u8]> = json.as_bytes().chunks(size).collect();
            assert_eq!(members(&chunks), (vec![(Member::Model, "m".into())], true));
        }
    }

    #[test]
    fn what_is_not_one_object_ends_the_reading() {
        for json in [
            "",
            "null",
            "[{\"id\":\"a\"}]",
            "\"id\"",
            "7",
            "{",
            "{\"id\"",
            "{x",
            "{\"id\" 1}",
            "{\"a\":}",
            "{\"a\":[}",
        ] {
            assert_eq!(members(&[json.as_bytes()]), (vec![], false), "{json}");
        }
    }

    #[test]
    fn depth_costs_nothing() {
        let json = format!(
            r#"{{"x":{}{},"model":"m"}}"#,
            "[".repeat(200_000),
            "]".repeat(200_000)
        );
        expect_once(&json);
    }

    fn expect_once(json: &str) {
        assert_eq!(
            members(&[json.as_bytes()]),
            (vec![(Member::Model, "m".into())], true)
        );
    }
}
