//! Commands as a shell reads them: words with their places.
//!
//! Nothing is run. Variables become variables of the route file; a command substitution is a flaw of
//! its word.

use crate::tree::Span;

/// One word of a command, after quotes and escapes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Word {
    /// The text, with variables as `${NAME}` and other dollar signs doubled.
    pub(super) text: String,
    /// Its place, quotes included.
    pub(super) span: Span,
    /// Why the word has no value here.
    pub(super) flaw: Option<&'static str>,
}

const SUBSTITUTION: &str = "a command substitution is not evaluated";
const UNCLOSED: &str = "a quote is not closed";

/// Splits a script into its simple commands. Comments and line continuations are understood.
pub(super) fn commands(text: &str) -> Vec<Vec<Word>> {
    let mut lexer = Lexer { text, at: 0 };
    let (mut all, mut current) = (Vec::new(), Vec::new());
    loop {
        lexer.skip_blanks();
        let Some(byte) = lexer.peek() else { break };
        match byte {
            b'#' => lexer.skip_line(),
            b'\n' | b';' | b'&' | b'|' => {
                lexer.at += 1;
                all.push(std::mem::take(&mut current));
            }
            _ => current.push(lexer.word()),
        }
    }
    all.push(current);
    all.retain(|command| !command.is_empty());
    all
}

struct Lexer<'t> {
    text: &'t str,
    at: usize,
}

impl Lexer<'_> {
    fn peek(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn rest(&self) -> &str {
        &self.text[self.at..]
    }

    /// Takes one character.
    fn next(&mut self) -> Option<char> {
        let next = self.rest().chars().next()?;
        self.at += next.len_utf8();
        Some(next)
    }

    fn skip_line(&mut self) {
        self.at += self.rest().find('\n').unwrap_or(self.rest().len());
    }

    fn skip_blanks(&mut self) {
        loop {
            match self.peek() {
                Some(b' ' | b'\t' | b'\r') => self.at += 1,
                Some(b'\\') if self.continues() => {
                    self.at += self.rest().find('\n').map_or(0, |newline| newline + 1);
                }
                _ => break,
            }
        }
    }

    /// Whether a backslash ends the line here.
    fn continues(&self) -> bool {
        self.rest().starts_with("\\\n") || self.rest().starts_with("\\\r\n")
    }

    fn word(&mut self) -> Word {
        let start = self.at;
        let (mut text, mut flaw) = (String::new(), None);
        while let Some(byte) = self.peek() {
            match byte {
                b' ' | b'\t' | b'\r' | b'\n' | b';' | b'&' | b'|' => break,
                b'\\' if self.continues() => break,
                b'\\' => {
                    self.at += 1;
                    text.extend(self.next().map(doubled));
                }
                b'\'' => {
                    self.at += 1;
                    let end = self.rest().find('\'');
                    let inside = &self.rest()[..end.unwrap_or(self.rest().len())];
                    text += &inside.replace('$', "$$");
                    self.at += inside.len() + usize::from(end.is_some());
                    flaw = flaw.or(end.is_none().then_some(UNCLOSED));
                }
                b'"' => {
                    self.at += 1;
                    flaw = flaw.or(self.quoted(&mut text));
                }
                b'$' => flaw = flaw.or(self.variable(&mut text)),
                b'`' => {
                    self.at += 1;
                    flaw = Some(SUBSTITUTION);
                }
                _ => text.extend(self.next()),
            }
        }
        Word {
            text,
            span: start..self.at,
            flaw,
        }
    }

    /// The rest of a double-quoted part.
    fn quoted(&mut self, text: &mut String) -> Option<&'static str> {
        let mut flaw = None;
        loop {
            match self.peek() {
                None => return Some(UNCLOSED),
                Some(b'"') => {
                    self.at += 1;
                    return flaw;
                }
                Some(b'\\') if self.continues() => {
                    self.at += self.rest().find('\n').map_or(0, |newline| newline + 1);
                }
                Some(b'\\') => {
                    self.at += 1;
                    match self.next() {
                        Some(c @ ('"' | '\\' | '$' | '`')) => text.push_str(&doubled(c)),
                        other => {
                            text.push('\\');
                            text.extend(other);
                        }
                    }
                }
                Some(b'$') => flaw = flaw.or(self.variable(text)),
                Some(b'`') => {
                    self.at += 1;
                    flaw = Some(SUBSTITUTION);
                }
                Some(_) => text.extend(self.next()),
            }
        }
    }

    /// `$NAME`, `${NAME}` or `${NAME:-default}`, as `${…}`.
    fn variable(&mut self, text: &mut String) -> Option<&'static str> {
        self.at += 1;
        if self.rest().starts_with('(') {
            return Some(SUBSTITUTION);
        }
        if self.rest().starts_with('{') {
            let Some(end) = self.rest().find('}') else {
                return Some("`${` without its `}`");
            };
            let inside = &self.rest()[..=end];
            text.push('$');
            text.push_str(inside);
            self.at += inside.len();
            return None;
        }
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = self
            .rest()
            .find(|c| !is_name(c))
            .unwrap_or(self.rest().len());
        let name = &self.rest()[..length];
        match name {
            "" => text.push_str("$$"),
            name => {
                text.push_str("${");
                text.push_str(name);
                text.push('}');
            }
        }
        self.at += length;
        None
    }
}

/// A literal character; a dollar sign is doubled.
fn doubled(c: char) -> String {
    match c {
        '$' => "$$".to_owned(),
        c => c.to_string(),
    }
}

/// A command line of one word each, as a script would spell it.
pub(super) fn joined(words: &[String]) -> String {
    let quoted = words.iter().map(|word| {
        let is_bare = |b: u8| b.is_ascii_alphanumeric() || b"-_./:=,@%+[]".contains(&b);
        if !word.is_empty() && word.bytes().all(is_bare) {
            word.clone()
        } else {
            format!("'{}'", word.replace('\'', "'\\''"))
        }
    });
    quoted.collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn texts(script: &str) -> Vec<Vec<String>> {
        let commands = commands(script).into_iter();
        let text = |word: Word| word.text;
        commands
            .map(|command| command.into_iter().map(text).collect())
            .collect()
    }

    #[test]
    fn quotes_continuations_comments_and_variables_are_read_as_a_shell_reads_them() {
        let script = "#!/bin/sh\n# a comment\nexport A=1; exec router \\\n  --a 'x y' --b=\"$HOST:80\" --c ${P:-1} \\$5 '$6' # end\n";
        let expected = [
            &["export", "A=1"][..],
            &[
                "exec",
                "router",
                "--a",
                "x y",
                "--b=${HOST}:80",
                "--c",
                "${P:-1}",
                "$$5",
                "$$6",
            ],
        ];
        assert_eq!(texts(script), expected);
    }

    #[test]
    fn a_word_without_a_value_says_why() {
        let flaws = |script: &str| commands(script)[0][0].flaw;
        assert_eq!(flaws("$(hostname)x"), Some(SUBSTITUTION));
        assert_eq!(flaws("\"`hostname`\""), Some(SUBSTITUTION));
        assert_eq!(flaws("'open"), Some(UNCLOSED));
        assert_eq!(flaws("\"open"), Some(UNCLOSED));
        assert_eq!(flaws("${open"), Some("`${` without its `}`"));
    }

    #[test]
    fn a_joined_command_splits_into_the_same_words() {
        let words = ["a", "it's", "$x", "", "b c", "--u=http://h:1"].map(str::to_owned);
        let again = texts(&joined(&words)).remove(0);
        assert_eq!(again, ["a", "it's", "$$x", "", "b c", "--u=http://h:1"]);
    }

    #[test]
    fn places_include_the_quotes() {
        let script = "run 'a b'";
        let word = &commands(script)[0][1];
        assert_eq!(&script[word.span.clone()], "'a b'");
    }
}
