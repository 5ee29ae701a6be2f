//! Masks possible secrets in a text that could not be parsed. In doubt it masks.

use super::check::sounds_secret;

/// Text shown at a masked place. Blanks pad it, so that other text does not move.
const MASK: &[u8] = b"***";

/// Masks everything after a key that sounds secret: the rest of its line, and the lines below with
/// deeper indentation.
pub(super) fn mask_lines(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut hidden_below: Option<usize> = None;
    for line in text.split_inclusive('\n') {
        let indent = line.len() - line.trim_start().len();
        let blank = line.trim().is_empty();
        if hidden_below.is_some_and(|above| !blank && indent <= above) {
            hidden_below = None;
        }
        let from = match hidden_below {
            Some(_) => Some(indent),
            None => secret_from(line),
        };
        if hidden_below.is_none() && from.is_some() {
            hidden_below = Some(indent);
        }
        push(&mut bytes, line, from);
    }
    String::from_utf8(bytes).unwrap_or_default()
}

/// Where the value of the first key that sounds secret begins in a line.
fn secret_from(line: &str) -> Option<usize> {
    line.match_indices(':')
        .map(|(colon, _)| colon)
        .find_map(|colon| {
            let before = line[..colon].trim_end_matches(['"', '\'', ' ']);
            let start = before
                .rfind(|c: char| !c.is_alphanumeric() && !matches!(c, '_' | '-'))
                .map_or(0, |at| {
                    at + before[at..].chars().next().map_or(1, char::len_utf8)
                });
            sounds_secret(&before[start..]).then_some(colon + 1)
        })
}

fn push(bytes: &mut Vec<u8>, line: &str, from: Option<usize>) {
    let (shown, hidden) = line.split_at(from.unwrap_or(line.len()));
    bytes.extend_from_slice(shown.as_bytes());
    let lead = hidden.len() - hidden.trim_start_matches(' ').len();
    for (index, byte) in hidden.bytes().enumerate() {
        bytes.push(match byte {
            b'\n' | b'\r' => byte,
            _ if index < lead => b' ',
            _ => MASK.get(index - lead).copied().unwrap_or(b' '),
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn masked(text: &str) -> String {
        let out = mask_lines(text);
        assert_eq!(out.len(), text.len(), "nothing moves");
        out.lines()
            .map(str::trim_end)
            .collect::<Vec<_>>()
            .join("\n")
    }

    #[test]
    fn values_of_secret_keys_go_and_the_rest_stays() {
        assert_eq!(
            masked("peers:\n- {address: a:1, api_key: sk-1}\n"),
            "peers:\n- {address: a:1, api_key: ***"
        );
        assert_eq!(masked("api_key: sk-1\nname: x\n"), "api_key: ***\nname: x");
        assert_eq!(masked("\"api_key\": sk-1\n"), "\"api_key\": ***");
        assert_eq!(masked("hash: crc32\n"), "hash: crc32");
    }

    #[test]
    fn what_is_indented_below_goes_too() {
        let text = "api_keys:\n  sk-1: bob\n\n  sk-2: eve\nhash: crc32\n";
        assert_eq!(masked(text), "api_keys:\n  ***\n\n  ***\nhash: crc32");
        assert!(!masked("a:\n  api_key:\n    - sk-é1\n  b: 1\n").contains("sk-"));
    }
}
