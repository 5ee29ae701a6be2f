//! Handles escapes of half a surrogate pair in JSON text. Senders that keep UTF-16 write them, and
//! `serde_json` rejects the whole document because of one.

use std::ops::RangeInclusive;

const HIGH: RangeInclusive<u32> = 0xd800..=0xdbff;
const LOW: RangeInclusive<u32> = 0xdc00..=0xdfff;

/// The text with `\ufffd` in place of each lone half; `None` if there is none.
pub(super) fn mended(json: &str) -> Option<String> {
    let mut mended: Option<String> = None;
    let (mut at, mut copied) = (0, 0);
    while let Some(found) = json[at..].find('\\') {
        let escape = at + found;
        match unit(json, escape) {
            Some(unit) if HIGH.contains(&unit) => {
                let follower = self::unit(json, escape + 6);
                if follower.is_some_and(|low| LOW.contains(&low)) {
                    at = escape + 12;
                    continue;
                }
            }
            Some(unit) if LOW.contains(&unit) => {}
            Some(_) => {
                at = escape + 6;
                continue;
            }
            None => {
                // The escaped character may be a backslash, or longer than one byte.
                let escaped = json[escape + 1..].chars().next();
                at = escape + 1 + escaped.map_or(0, char::len_utf8);
                continue;
            }
        }
        let mended = mended.get_or_insert_with(|| String::with_capacity(json.len()));
        mended.push_str(&json[copied..escape]);
        mended.push_str("\\ufffd");
        at = escape + 6;
        copied = at;
    }
    let mut mended = mended?;
    mended.push_str(&json[copied..]);
    Some(mended)
}

/// The code unit of the escape `\uXXXX` that begins at `at`.
fn unit(json: &str, at: usize) -> Option<u32> {
    let digits = json.get(at..at + 6)?.strip_prefix("\\u")?;
    let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
    is_hex.then(|| u32::from_str_radix(digits, 16).ok())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_halves_that_stand_alone_are_replaced() {
        for (json, expected) in [
            (r#"{"a":"x\ud800y"}"#, Some(r#"{"a":"x\ufffdy"}"#)),
            (r#""\udc00""#, Some(r#""\ufffd""#)),
            (r#""\ud83d\ud83d\ude00""#, Some(r#""\ufffd\ud83d\ude00""#)),
            (r#""\ud800\u0041\udfff""#, Some(r#""\ufffd\u0041\ufffd""#)),
            (r#""\uD83D\uDE00""#, None),
            (r#""\\ud800""#, None),
            (r#""\\\ud800""#, Some(r#""\\\ufffd""#)),
            (r#""\ud8""#, None),
            (r#""\é\"#, None),
            ("plain", None),
        ] {
            assert_eq!(mended(json).as_deref(), expected, "{json}");
        }
    }
}
