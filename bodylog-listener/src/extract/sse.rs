//! Splits an event stream into the data of its events. Partial lines, at either end or around a
//! gap, are dropped because they do not parse.

use memchr::memchr_iter;

/// Calls `each` with the data of every event: its `data:` lines, joined by line feeds. If `each`
/// cannot use the joined data of several lines, it gets them one by one. Returns whether there was
/// any `data:` line.
pub(super) fn each_data<'b>(body: &'b str, mut each: impl FnMut(&str) -> bool) -> bool {
    let mut is_stream = false;
    let mut event: Vec<&'b str> = Vec::new();
    let mut line = |line: &'b str| {
        let line = line.strip_suffix('\r').unwrap_or(line);
        if line.is_empty() {
            finish(&mut event, &mut each);
        } else if let Some(data) = line.strip_prefix("data:") {
            is_stream = true;
            let data = data.trim_ascii();
            if !data.is_empty() && data != "[DONE]" {
                event.push(data);
            }
        }
    };
    let mut from = 0;
    for end in memchr_iter(b'\n', body.as_bytes()) {
        line(&body[from..end]);
        from = end + 1;
    }
    line(&body[from..]);
    finish(&mut event, &mut each);
    is_stream
}

fn finish(event: &mut Vec<&str>, each: &mut impl FnMut(&str) -> bool) {
    let used = match &event[..] {
        [] => return,
        [one] => each(one),
        several => each(&several.join("\n")),
    };
    if !used && event.len() > 1 {
        for line in &*event {
            each(line);
        }
    }
    event.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    fn data(body: &str) -> Vec<String> {
        let mut out = Vec::new();
        each_data(body, |data| {
            out.push(data.to_owned());
            serde_json::from_str::<serde_json::Value>(data).is_ok()
        });
        out
    }

    #[test]
    fn events_are_told_apart_by_empty_lines() {
        assert_eq!(
            data("data: 1\n\ndata:2\r\n\r\n: note\nevent: x\ndata:\t3\n\ndata: [DONE]\n\n"),
            ["1", "2", "3"]
        );
    }

    #[test]
    fn lines_of_one_event_are_joined_and_taken_apart_when_that_is_no_json() {
        assert_eq!(data("data: {\ndata: }\n\n"), ["{\n}"]);
        assert_eq!(data("data: 1\ndata: 2\n"), ["1\n2", "1", "2"]);
    }

    #[test]
    fn a_body_without_data_lines_is_no_stream() {
        assert!(!each_data("{\"a\":1}\n", |_| true));
        assert!(each_data("data: [DONE]", |_| true));
    }
}
