//! Parameters of `Content-Type` and `Content-Disposition`: `; name=value; name="quoted value"`.

/// A name, and its value without quotes and escapes.
pub(super) type Param<'h> = (&'h [u8], Vec<u8>);

/// The kind before the first `;`, and the parameters in order. `None` where the grammar is broken.
pub(super) fn parse(value: &[u8]) -> Option<(&[u8], Vec<Param<'_>>)> {
    let end = memchr::memchr(b';', value).unwrap_or(value.len());
    let kind = value[..end].trim_ascii();
    let mut rest = &value[end..];
    let mut params = Vec::new();
    loop {
        rest = rest.trim_ascii_start();
        let Some(after) = rest.strip_prefix(b";") else {
            return rest.is_empty().then_some((kind, params));
        };
        let after = after.trim_ascii_start();
        // A `;` at the end is common and harmless.
        if after.is_empty() {
            return Some((kind, params));
        }
        let equals = memchr::memchr(b'=', after)?;
        let name = &after[..equals];
        if name.is_empty() || !name.iter().all(|byte| is_token(*byte)) {
            return None;
        }
        let (text, left) = value_of(&after[equals + 1..])?;
        params.push((name, text));
        rest = left;
    }
}

/// The only value of a parameter. `Err` when it is there twice, or in the encoded form of RFC 8187,
/// which RFC 7578 forbids and some parsers read.
pub(super) fn only<'p>(params: &'p [Param<'_>], name: &str) -> Result<Option<&'p [u8]>, ()> {
    let is_it = |found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
    let is_encoded = |found: &[u8]| {
        let star = memchr::memchr(b'*', found);
        star.is_some_and(|star| is_it(&found[..star]))
    };
    if params.iter().any(|(found, _)| is_encoded(found)) {
        return Err(());
    }
    let mut values = params.iter().filter(|(found, _)| is_it(found));
    let value = values.next().map(|(_, value)| &**value);
    match values.next() {
        Some(_) => Err(()),
        None => Ok(value),
    }
}

/// A token or a quoted string, and what follows it.
fn value_of(text: &[u8]) -> Option<(Vec<u8>, &[u8])> {
    let Some(quoted) = text.strip_prefix(b"\"") else {
        let end = text.iter().position(|byte| !is_token(*byte));
        let end = end.unwrap_or(text.len());
        return (end > 0).then(|| (text[..end].to_vec(), &text[end..]));
    };
    let mut value = Vec::new();
    let mut at = 0;
    loop {
        match *quoted.get(at)? {
            b'"' => return Some((value, &quoted[at + 1..])),
            // Parsers agree about these two escapes. Other backslashes are text to some of them.
            b'\\' if matches!(quoted.get(at + 1), Some(b'"' | b'\\')) => {
                value.push(quoted[at + 1]);
                at += 2;
            }
            byte => {
                value.push(byte);
                at += 1;
            }
        }
    }
}

/// RFC 9110 section 5.6.2, and `:/?` of boundaries that clients leave unquoted.
fn is_token(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~:/?()@".contains(&byte)
}
