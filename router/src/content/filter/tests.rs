use proptest::prelude::*;

use super::*;
use router_config::valid::Postprocess;

use crate::content::postprocess::handler;

fn vllm(usage_filter: bool) -> Filter {
    Filter::new(usage_filter, handler(Postprocess::VllmFormat))
}

fn passed(mut filter: Filter, stream: &[u8], cuts: &[usize]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut from = 0;
    for to in cuts.iter().copied().chain([stream.len()]) {
        out.extend_from_slice(&filter.feed(&Bytes::copy_from_slice(&stream[from..to])));
        from = to;
    }
    out.extend_from_slice(&filter.finish());
    assert!(!filter.holds());
    out
}

/// Feeds a stream whole, cut at every place and at every few others, and byte by byte.
fn expect(of: impl Fn() -> Filter, stream: &str, expected: &str) {
    let bytes = stream.as_bytes();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    assert_eq!(text(passed(of(), bytes, &[])), expected);
    for first in 0..=bytes.len() {
        for second in (first..=bytes.len()).step_by(1 + bytes.len() / 40) {
            let out = text(passed(of(), bytes, &[first, second]));
            assert_eq!(out, expected, "cut at {first} and {second}");
        }
    }
    let every: Vec<usize> = (1..bytes.len()).collect();
    assert_eq!(text(passed(of(), bytes, &every)), expected);
}

const V41: &str = r#"data: {"choices":[{"delta":{"reasoning":"A"},"logprobs":null,"stop_reason":null,"finish_reason":null}],"system_fingerprint":"f"}"#;
const V41_OUT: &str =
    r#"data: {"choices":[{"delta":{"reasoning_content":"A"},"finish_reason":null}]}"#;

#[test]
fn a_line_is_rewritten_and_keeps_its_end() {
    for end in ["\r\n", "\n", "\r", ""] {
        expect(
            || vllm(false),
            &format!("{V41}{end}"),
            &format!("{V41_OUT}{end}"),
        );
    }
}

#[test]
fn a_line_that_a_chunk_cuts_leaves_with_its_end() {
    let line = format!("{V41}\r\n");
    let mut filter = vllm(false);
    assert_eq!(
        filter.feed(&Bytes::copy_from_slice(&line.as_bytes()[..18])),
        ""
    );
    assert!(filter.holds());
    let rest = Bytes::copy_from_slice(&line.as_bytes()[18..]);
    assert_eq!(filter.feed(&rest), format!("{V41_OUT}\r\n"));
}

#[test]
fn what_has_nothing_to_change_passes() {
    for stay in [
        r#"data: {"choices":[{"delta":{"content":"ok"}}]}"#,
        "data: [DONE]",
        ": ping",
        "event: x",
        r#"event: {"choices":[],"service_tier":1}"#,
        r#" data: {"choices":[],"service_tier":1}"#,
        r#"data: {"choices":[],"service_tier":1"#,
        r#"data: {"choices":[],"service_tier":}"#,
        r#"data: {"choices":[],"service_tier":1}}"#,
        r#"data: [{"choices":[],"service_tier":1}]"#,
        "data:",
        "data",
    ] {
        let stream = format!("{stay}\n\n");
        expect(|| vllm(false), &stream, &stream);
    }
}

#[test]
fn data_of_several_lines_passes() {
    let event = "data: {\"choices\":[],\ndata: \"service_tier\":1}\n\n";
    expect(|| vllm(false), event, event);
}

#[test]
fn blanks_around_the_payload_stay() {
    expect(
        || vllm(false),
        "data:{\"choices\":[],\"service_tier\":1}\ndata:\t { \"choices\" : [ ] , \"service_tier\" : 1 }  \n\n",
        "data:{\"choices\":[]}\ndata:\t { \"choices\" : [ ] }  \n\n",
    );
}

#[test]
fn the_usage_chunk_is_left_out_of_a_stream_that_is_rewritten() {
    let usage = r#"data: {"choices":[],"usage":{"prompt_tokens":1},"system_fingerprint":"f"}"#;
    let stream = format!("{V41}\n\n{usage}\n\ndata: [DONE]\n\n");
    expect(
        || vllm(true),
        &stream,
        &format!("{V41_OUT}\n\ndata: [DONE]\n\n"),
    );
    let seen = r#"data: {"choices":[],"usage":{"prompt_tokens":1}}"#;
    expect(
        || vllm(false),
        &stream,
        &format!("{V41_OUT}\n\n{seen}\n\ndata: [DONE]\n\n"),
    );
}

#[test]
fn a_text_cut_between_the_halves_of_a_surrogate_pair_stays_whole() {
    let line = r#"data: {"choices":[{"delta":{"content":"\ud83d\ude00 \ud83d"},"stop_reason":1}]}"#;
    let out = r#"data: {"choices":[{"delta":{"content":"\ud83d\ude00 \ud83d"}}]}"#;
    expect(|| vllm(false), line, out);
}

#[test]
fn a_complete_line_leaves_with_its_chunk_and_only_data_is_held() {
    for (start, held) in [
        ("dat", true),
        ("data: ", true),
        ("data: {\"id\":\"c\",\"choi", true),
        (": ping", false),
        ("event: x", false),
        ("data: [DON", false),
    ] {
        let mut filter = vllm(false);
        let chunk = Bytes::from(format!("{V41}\n{start}"));
        let open = if held { "" } else { start };
        assert_eq!(filter.feed(&chunk), format!("{V41_OUT}\n{open}"));
        assert_eq!(filter.holds(), held, "{start}");
    }
}

#[test]
fn a_chunk_with_nothing_to_change_passes_without_a_copy() {
    let mut filter = vllm(true);
    let chunk = Bytes::from("data: {\"choices\":[{}]}\n\ndata: [DONE]\n\n".to_owned());
    let out = filter.feed(&chunk);
    assert_eq!((out.as_ptr(), out.len()), (chunk.as_ptr(), chunk.len()));
    assert_eq!(filter.outcome(), Outcome::Unchanged);
}

#[test]
fn a_line_of_20_mib_passes_and_the_next_one_is_rewritten() {
    let long = format!(
        "data: {{\"choices\":[],\"service_tier\":\"{}\"}}\n",
        "x".repeat(20 << 20)
    );
    let stream = format!("{long}{V41}\n");
    let cuts: Vec<usize> = (1..stream.len() >> 16).map(|n| n << 16).collect();
    let out = passed(vllm(true), stream.as_bytes(), &cuts);
    assert!(out == format!("{long}{V41_OUT}\n").into_bytes());
}

#[test]
fn a_line_within_the_bound_is_rewritten_however_long() {
    let line = |tier: &str| {
        let text = "x".repeat((8 << 20) - 200);
        format!("data: {{\"choices\":[]{tier},\"x\":\"{text}\"}}\n")
    };
    let stream = line(r#","service_tier":1"#);
    let cuts: Vec<usize> = (1..stream.len() >> 16).map(|n| n << 16).collect();
    assert!(passed(vllm(false), stream.as_bytes(), &cuts) == line("").into_bytes());
}

fn line() -> impl Strategy<Value = String> {
    prop_oneof![
        Just(V41.to_owned()),
        Just(r#"data: {"choices":[],"usage":{"prompt_tokens":1},"service_tier":"x"}"#.to_owned()),
        Just(
            r#"data: {"usage":{},"actual_usage":{},"choices":[{"message":{"audio":null}}]}"#
                .to_owned()
        ),
        Just("data: [DONE]".to_owned()),
        Just(String::new()),
        "(data|event|:|id)?:? ?[{}\\[\\]\",a-z\\\\]{0,12}",
    ]
}

proptest! {
    #[test]
    fn any_cut_of_a_stream_gives_what_the_whole_gives(
        lines in prop::collection::vec((line(), prop_oneof![Just("\n"), Just("\r\n"), Just("\r"), Just("\n\n")]), 0..8),
        mut cuts in prop::collection::vec(any::<prop::sample::Index>(), 0..12),
        usage_filter in any::<bool>(),
        postprocess in prop_oneof![
            Just(Postprocess::None),
            Just(Postprocess::VllmFormat),
            Just(Postprocess::StripActualUsage),
        ],
    ) {
        let stream: String = lines.iter().flat_map(|(text, end)| [text.as_str(), end]).collect();
        let filter = || Filter::new(usage_filter, handler(postprocess));
        let mut cuts: Vec<usize> = cuts.drain(..).map(|cut| cut.index(stream.len() + 1)).collect();
        cuts.sort_unstable();
        let whole = passed(filter(), stream.as_bytes(), &[]);
        prop_assert_eq!(passed(filter(), stream.as_bytes(), &cuts), whole);
    }

    #[test]
    fn no_bytes_break_the_filter(stream in prop::collection::vec(any::<u8>(), 0..200), at in any::<prop::sample::Index>()) {
        let at = at.index(stream.len() + 1);
        prop_assert_eq!(passed(vllm(true), &stream, &[at]), stream);
    }
}
