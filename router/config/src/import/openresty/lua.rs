//! Reads Lua table literals: tables, texts, numbers, booleans, `nil`, and `os.getenv`.
//!
//! Nothing is evaluated. `local NAME = <literal>` is understood, because route files name their peer
//! lists so. Everything else is an error with its place.

use crate::check::short;
use crate::tree::Span;

/// How deep tables may be nested.
const DEPTH_MAX: usize = 32;

/// A value.
#[derive(Clone, Debug)]
pub(super) struct Lua {
    pub(super) kind: Kind,
    pub(super) span: Span,
}

#[derive(Clone, Debug)]
pub(super) enum Kind {
    Nil,
    /// A number or a boolean, as written.
    Plain(String),
    /// A text, with variables as `${NAME}` and other dollar signs doubled.
    Text(String),
    Table {
        /// The values without a key, in order.
        items: Vec<Lua>,
        /// The values with a key, in order.
        fields: Vec<(String, Span, Lua)>,
    },
}

/// Why a text is no literal.
#[derive(Debug)]
pub(super) struct Flaw {
    pub(super) at: Span,
    pub(super) message: String,
}

#[derive(Clone, Debug, PartialEq)]
enum Token {
    Name(String),
    Text(String),
    Number(String),
    Symbol(&'static str),
    End,
}

/// Parses the body of a function that returns one table: `local` declarations, then `return {…}`.
/// Returns the table.
pub(super) fn returned(text: &str, from: usize) -> Result<Lua, Flaw> {
    let mut parser = Parser::at(text, from)?;
    let mut locals: Vec<(String, Lua)> = Vec::new();
    loop {
        match parser.token.clone() {
            Token::Name(word) if word == "local" => {
                parser.advance()?;
                let Token::Name(name) = parser.token.clone() else {
                    return Err(parser.unexpected("a name after `local`"));
                };
                parser.advance()?;
                parser.expect("=")?;
                let value = parser.value(&locals, 0)?;
                locals.push((name, value));
            }
            Token::Name(word) if word == "return" => {
                parser.advance()?;
                return parser.value(&locals, 0);
            }
            Token::Symbol(";") => parser.advance()?,
            _ => return Err(parser.unexpected("`return` and a table of literals")),
        }
    }
}

struct Parser<'t> {
    text: &'t str,
    /// Behind the current token.
    at: usize,
    token: Token,
    span: Span,
}

impl<'t> Parser<'t> {
    fn at(text: &'t str, from: usize) -> Result<Self, Flaw> {
        let mut parser = Self {
            text,
            at: from,
            token: Token::End,
            span: from..from,
        };
        parser.advance()?;
        Ok(parser)
    }

    fn value(&mut self, locals: &[(String, Lua)], depth: usize) -> Result<Lua, Flaw> {
        if depth > DEPTH_MAX {
            return Err(self.flaw(format!("tables are nested deeper than {DEPTH_MAX}")));
        }
        let span = self.span.clone();
        let kind = match self.token.clone() {
            Token::Symbol("{") => return self.table(locals, depth),
            Token::Text(text) => Kind::Text(text),
            Token::Number(number) => Kind::Plain(number),
            Token::Symbol("-") => {
                self.advance()?;
                let Token::Number(number) = &self.token else {
                    return Err(self.unexpected("a number after `-`"));
                };
                Kind::Plain(format!("-{number}"))
            }
            Token::Name(word) => match word.as_str() {
                "nil" => Kind::Nil,
                "true" | "false" => Kind::Plain(word),
                "os" => return self.variable(),
                name => match locals.iter().rev().find(|(local, _)| local == name) {
                    Some((_, value)) => {
                        let value = value.clone();
                        self.advance()?;
                        return Ok(value);
                    }
                    None => return Err(self.unexpected("a literal")),
                },
            },
            _ => return Err(self.unexpected("a literal")),
        };
        let span = span.start..self.span.end;
        self.advance()?;
        Ok(Lua { kind, span })
    }

    /// `os.getenv("NAME")`, or the same with `or "default"`.
    fn variable(&mut self) -> Result<Lua, Flaw> {
        let start = self.span.start;
        self.advance()?;
        self.expect(".")?;
        if self.token != Token::Name("getenv".to_owned()) {
            return Err(self.unexpected("`os.getenv(\"NAME\")`"));
        }
        self.advance()?;
        self.expect("(")?;
        let Token::Text(name) = self.token.clone() else {
            return Err(self.unexpected("the name of a variable"));
        };
        self.advance()?;
        let mut end = self.span.end;
        self.expect(")")?;
        let mut text = format!("${{{name}}}");
        if self.token == Token::Name("or".to_owned()) {
            self.advance()?;
            let (Token::Text(default) | Token::Number(default)) = self.token.clone() else {
                return Err(self.unexpected("a text or a number after `or`"));
            };
            end = self.span.end;
            text = format!("${{{name}:-{default}}}");
            self.advance()?;
        }
        Ok(Lua {
            kind: Kind::Text(text),
            span: start..end,
        })
    }

    fn table(&mut self, locals: &[(String, Lua)], depth: usize) -> Result<Lua, Flaw> {
        let start = self.span.start;
        self.advance()?;
        let (mut items, mut fields) = (Vec::new(), Vec::new());
        while self.token != Token::Symbol("}") {
            let at = self.span.clone();
            match self.token.clone() {
                Token::Symbol("[") => {
                    self.advance()?;
                    let (Token::Text(key) | Token::Number(key)) = self.token.clone() else {
                        return Err(self.unexpected("a text or a number as a key"));
                    };
                    let at = self.span.clone();
                    self.advance()?;
                    self.expect("]")?;
                    self.expect("=")?;
                    fields.push((key, at, self.value(locals, depth + 1)?));
                }
                Token::Name(key) if self.is_field() => {
                    self.advance()?;
                    self.expect("=")?;
                    fields.push((key, at, self.value(locals, depth + 1)?));
                }
                _ => items.push(self.value(locals, depth + 1)?),
            }
            match self.token {
                Token::Symbol("," | ";") => self.advance()?,
                Token::Symbol("}") => {}
                _ => return Err(self.unexpected("`,` or `}`; only literals are understood")),
            }
        }
        let span = start..self.span.end;
        self.advance()?;
        let kind = Kind::Table { items, fields };
        Ok(Lua { kind, span })
    }

    /// Whether `=` follows the current name.
    fn is_field(&self) -> bool {
        let rest = &self.text[skip_blanks(self.text, self.at)..];
        rest.starts_with('=') && !rest.starts_with("==")
    }

    fn expect(&mut self, symbol: &'static str) -> Result<(), Flaw> {
        match self.token == Token::Symbol(symbol) {
            true => self.advance(),
            false => Err(self.unexpected(&format!("`{symbol}`"))),
        }
    }

    fn advance(&mut self) -> Result<(), Flaw> {
        let start = skip_blanks(self.text, self.at);
        let (token, end) = token(self.text, start).map_err(|message| Flaw {
            at: start..self.text.len().min(start + 1),
            message,
        })?;
        (self.token, self.span, self.at) = (token, start..end, end);
        Ok(())
    }

    fn unexpected(&self, allowed: &str) -> Flaw {
        let found = match &self.token {
            Token::End => "the end of the file".to_owned(),
            _ => format!("`{}`", short(&self.text[self.span.clone()])),
        };
        self.flaw(format!("expected {allowed}, found {found}"))
    }

    fn flaw(&self, message: String) -> Flaw {
        Flaw {
            at: self.span.clone(),
            message,
        }
    }
}

/// Skips white space and comments.
pub(super) fn skip_blanks(text: &str, mut at: usize) -> usize {
    loop {
        let rest = &text[at..];
        at += rest.len() - rest.trim_start().len();
        let Some(comment) = text[at..].strip_prefix("--") else {
            return at;
        };
        at += 2 + match long_bracket(comment) {
            Some((_, length)) => length,
            None => comment.find('\n').unwrap_or(comment.len()),
        };
    }
}

/// The inside of `[[…]]` or `[=[…]=]` at the start of the text, and the length of the whole.
fn long_bracket(text: &str) -> Option<(&str, usize)> {
    let inner = text.strip_prefix('[')?;
    let level = inner.len() - inner.trim_start_matches('=').len();
    let inside = inner[level..].strip_prefix('[')?;
    let close = format!("]{}]", "=".repeat(level));
    let end = inside.find(&close)?;
    let whole = text.len() - inside.len() + end + close.len();
    Some((&inside[..end], whole))
}

fn token(text: &str, start: usize) -> Result<(Token, usize), String> {
    const SYMBOLS: [&str; 14] = [
        "{", "}", "[", "]", "(", ")", "=", ",", ";", ".", "-", "+", "*", "/",
    ];
    let rest = &text[start..];
    let Some(first) = rest.chars().next() else {
        return Ok((Token::End, start));
    };
    if first.is_ascii_alphabetic() || first == '_' {
        let is_name = |c: char| c.is_ascii_alphanumeric() || c == '_';
        let length = rest.find(|c| !is_name(c)).unwrap_or(rest.len());
        return Ok((Token::Name(rest[..length].to_owned()), start + length));
    }
    if first.is_ascii_digit() {
        let is_number = |c: char| c.is_ascii_alphanumeric() || c == '.';
        let length = rest.find(|c| !is_number(c)).unwrap_or(rest.len());
        return match rest[..length].parse::<f64>() {
            Ok(_) => Ok((Token::Number(rest[..length].to_owned()), start + length)),
            Err(_) => Err(format!(
                "expected a number, found `{}`",
                short(&rest[..length])
            )),
        };
    }
    if let Some((inside, length)) = long_bracket(rest) {
        let text = inside.strip_prefix('\n').unwrap_or(inside);
        return Ok((Token::Text(text.replace('$', "$$")), start + length));
    }
    if matches!(first, '"' | '\'') {
        return quoted(rest, first).map(|(text, length)| (Token::Text(text), start + length));
    }
    match SYMBOLS.iter().find(|symbol| rest.starts_with(**symbol)) {
        Some(symbol) => Ok((Token::Symbol(symbol), start + symbol.len())),
        None => Err(format!("expected a literal, found `{first}`")),
    }
}

/// A text in quotes at the start, and its length.
fn quoted(text: &str, quote: char) -> Result<(String, usize), String> {
    let mut out = String::new();
    let mut chars = text.char_indices().skip(1);
    while let Some((at, c)) = chars.next() {
        match c {
            c if c == quote => return Ok((out, at + 1)),
            '\n' => break,
            '$' => out.push_str("$$"),
            '\\' => match chars.next() {
                Some((_, 'n')) => out.push('\n'),
                Some((_, 't')) => out.push('\t'),
                Some((_, c @ ('\\' | '"' | '\'' | '/'))) => out.push(c),
                Some((_, c)) => return Err(format!("the escape `\\{c}` is not understood")),
                None => break,
            },
            c => out.push(c),
        }
    }
    Err("a quote is not closed".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(lua: &Lua) -> String {
        match &lua.kind {
            Kind::Nil => "nil".to_owned(),
            Kind::Plain(text) => text.clone(),
            Kind::Text(text) => format!("{text:?}"),
            Kind::Table { items, fields } => {
                let mut all: Vec<_> = items.iter().map(shown).collect();
                all.extend(
                    fields
                        .iter()
                        .map(|(key, _, value)| format!("{key}={}", shown(value))),
                );
                format!("{{{}}}", all.join(" "))
            }
        }
    }

    #[test]
    fn literals_of_every_kind_are_read() {
        let text = "local peers = { {\"10.0.0.1\", 8000, 'a', 0, -1.5e2}, } -- hosts\n--[[ long\ncomment ]] return { peers = peers, ['by.name'] = true; off = nil, t = [[x$]], e = os.getenv('A') or '1', }";
        let table = returned(text, 0).unwrap();
        assert_eq!(
            shown(&table),
            "{peers={{\"10.0.0.1\" 8000 \"a\" 0 -1.5e2}} by.name=true off=nil t=\"x$$\" e=\"${A:-1}\"}"
        );
    }

    #[test]
    fn code_is_refused_where_it_stands() {
        for (text, why) in [
            ("return { a = f(1) }", "expected a literal, found `f`"),
            ("return { a = 1 + 2 }", "found `+`"),
            ("for i = 1, 2 do end", "found `for`"),
            ("return { a = 'x }", "a quote is not closed"),
            ("return { a = os.execute('x') }", "os.getenv"),
            ("return {", "the end of the file"),
            ("return { a = 1x }", "expected a number"),
        ] {
            let flaw = returned(text, 0).unwrap_err();
            assert!(flaw.message.contains(why), "{text}: {}", flaw.message);
        }
        let deep = format!("return {}", "{".repeat(100));
        assert!(
            returned(&deep, 0)
                .unwrap_err()
                .message
                .contains("nested deeper")
        );
    }
}
