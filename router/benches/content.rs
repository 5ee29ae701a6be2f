//! What it costs to look at a request's body, and to put one right, and an answer: `cargo bench -p router`. The goal
//! is a gigabyte a second on one core for bodies without an edit.

use std::hint::black_box;

use answers::cursor::Cursor;
use bytes::Bytes;
use criterion::{BenchmarkId, Criterion, Throughput, criterion_group, criterion_main};
use router::content::filter::Filter;
use router::content::postprocess::handler;
use router::content::transform::{IdStrategy, SystemHoist, Transformed, Wanted, transform};
use router::content::{Fields, Inspection, Wanted as WantedFacts};
use router_config::valid::Postprocess;
use router_core::rules::{Condition, Field, Literal, Order, Pattern, RuleSpec, Rules, Test};

const KIB: usize = 1 << 10;

const NOTHING: Wanted = Wanted::NOTHING;

/// As for `/v1/chat/completions`.
const CHAT: Wanted = Wanted {
    include_usage: true,
    cch_strip: true,
    ..NOTHING
};

const KIMI: Wanted = Wanted {
    kimi_normalize: Some(IdStrategy::Rerank),
    ..CHAT
};

/// As for `/v1/messages`.
const MESSAGES: Wanted = Wanted {
    cch_strip: true,
    system_hoist: SystemHoist::Leading,
    ..NOTHING
};

/// A text with an escape every line, as prose has them.
fn prose(len: usize) -> String {
    let line = "The quick brown fox jumps over the lazy dog, and it does so again and again.\\n";
    line.repeat(len.div_ceil(line.len()))
}

/// A text with an escape every few bytes, as code has them.
fn code(len: usize) -> String {
    let line = "\\tif (name == \\\"x\\\") {\\n\\t\\treturn \\\"y\\\";\\n\\t}\\n";
    line.repeat(len.div_ceil(line.len()))
}

/// A conversation of this size in turns of a kilobyte, with a tool call each.
fn conversation(size: usize, text: fn(usize) -> String, model: &str) -> String {
    let turn = |number: usize| {
        let text = text(560);
        format!(
            r#"{{"role":"user","content":"{number} {text}"}},{{"role":"assistant","content":null,"tool_calls":[{{"id":"call_{number}","type":"function","function":{{"name":"read_file","arguments":"{{\"path\":\"src/{number}.rs\",\"limit\":200}}"}}}}]}},{{"role":"tool","tool_call_id":"call_{number}","content":"ok"}}"#
        )
    };
    let turns: Vec<_> = (0..size.div_ceil(KIB)).map(turn).collect();
    format!(
        r#"{{"model":"{model}","temperature":0.5,"max_tokens":1024,"messages":[{}],"tools":[{{"type":"function","function":{{"name":"read_file","parameters":{{"type":"object","properties":{{"path":{{"type":"string"}}}}}}}}}}]}}"#,
        turns.join(",")
    )
}

/// A prompt of token ids.
fn token_ids(size: usize) -> String {
    let ids: Vec<_> = (0..size / 6)
        .map(|n| (10_000 + n % 90_000).to_string())
        .collect();
    format!(r#"{{"model":"m","prompt":[{}]}}"#, ids.join(","))
}

fn bodies() -> Vec<(String, String)> {
    let mut bodies = Vec::new();
    for (size, name) in [(KIB, "1KiB"), (32 * KIB, "32KiB"), (KIB * KIB, "1MiB")] {
        bodies.push((format!("prose/{name}"), conversation(size, prose, "m")));
        bodies.push((format!("code/{name}"), conversation(size, code, "m")));
        bodies.push((format!("ids/{name}"), token_ids(size)));
    }
    bodies
}

/// Bodies without an edit.
fn scan(c: &mut Criterion) {
    let mut group = c.benchmark_group("scan");
    for (name, body) in bodies() {
        let body = body.as_bytes();
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_with_input(BenchmarkId::new("skip", &name), body, |b, body| {
            b.iter(|| Cursor::new(black_box(body)).skip());
        });
        for (path, wanted) in [("chat", CHAT), ("messages", MESSAGES)] {
            let body = Bytes::copy_from_slice(body);
            group.bench_with_input(BenchmarkId::new(path, &name), &body, |b, body| {
                b.iter(|| {
                    let done = read_and_edit(body, wanted);
                    assert!(done.body.is_none());
                });
            });
        }
        let fields = Fields::new(["metadata", "user"]);
        group.bench_with_input(BenchmarkId::new("inspect", &name), body, |b, body| {
            b.iter(|| Inspection::read(&fields, black_box(body)).is_object());
        });
    }
    group.finish();
}

/// What a request's body costs from its last byte to the edited body.
fn read_and_edit(body: &Bytes, wanted: Wanted) -> Transformed {
    let fields = Fields::new(["metadata", "user"]);
    let places = Inspection::read(&fields, black_box(body)).places();
    transform(body, &places.expect("an object"), wanted)
}

/// One transform with something to do, over 32 KiB.
fn edit(c: &mut Criterion) {
    const HEADER: &str = "x-anthropic-billing-header: cc_version=1; cc_entrypoint=cli; cch=abc;";
    let chat = conversation(32 * KIB, prose, "m");
    let kimi = conversation(32 * KIB, prose, "kimi-k2.6");
    let stream = chat.replacen('{', r#"{"stream":true,"#, 1);
    let billed = chat.replacen('{', &format!(r#"{{"system":"{HEADER} You are","#), 1);
    let system = chat.replacen(
        r#""messages":["#,
        &format!(
            r#""messages":[{{"role":"system","content":"{}"}},"#,
            prose(2 * KIB)
        ),
        1,
    );
    let mut group = c.benchmark_group("edit");
    for (name, body, wanted) in [
        ("none", &chat, CHAT),
        ("include_usage", &stream, CHAT),
        ("cch_strip", &billed, CHAT),
        ("kimi_normalize", &kimi, KIMI),
        ("system_hoist", &system, MESSAGES),
    ] {
        group.throughput(Throughput::Bytes(body.len() as u64));
        group.bench_function(name, |b| {
            let body = Bytes::copy_from_slice(body.as_bytes());
            b.iter(|| {
                let done = read_and_edit(&body, wanted);
                assert_eq!(done.body.is_none(), name == "none");
                done
            });
        });
    }
    group.finish();
}

/// Fifty rules of five kinds, none of which holds.
fn fifty_rules() -> Rules {
    let leaf = |field: &str, test| Condition::Leaf(Field::parse(field).expect("a path"), test);
    let regex = |text: &str| Pattern::regex(text).expect("a pattern");
    Rules::new((0..50).map(|i| RuleSpec {
        name: format!("rule{i}").into(),
        status: None,
        message: None,
        when: match i % 5 {
            0 => leaf("input_chars", Test::Number(Order::Gt, 1e9)),
            1 => leaf("model", Test::Matches(regex(&format!("^x{i}.*z$")))),
            2 => leaf(
                "messages.-1.content",
                Test::Equals(Literal::Text("no".into())),
            ),
            3 => leaf(
                "messages_count",
                Test::Number(Order::Gt, 1e6 + f64::from(i)),
            ),
            _ => leaf(&format!("metadata.k{i}"), Test::Exists),
        },
    }))
}

/// What the content rules of a route look at.
fn facts(c: &mut Criterion) {
    let rules = fifty_rules();
    let wanted = WantedFacts::new(&rules);
    let mut group = c.benchmark_group("facts");
    for (name, text) in [("prose", prose as fn(usize) -> String), ("code", code)] {
        let body = conversation(32 * KIB, text, "m");
        group.throughput(Throughput::Bytes(body.len() as u64));
        let fields = Fields::new(["metadata", "user"]);
        group.bench_function(BenchmarkId::new("one walk", name), |b| {
            b.iter(|| {
                let body = black_box(body.as_bytes());
                let inspection = Inspection::read_for(&fields, Some(&wanted), body);
                let facts = inspection.facts().expect("JSON");
                assert!(rules.first_match(facts).is_none());
            });
        });
    }
    group.finish();
}

/// A stream of 64 chunks as engines send them, one a token, through the filters of answers.
fn answer(c: &mut Criterion) {
    const CHUNKS: u64 = 64;
    let chunk = Bytes::from_static(
        b"data: {\"id\":\"chatcmpl-1\",\"object\":\"chat.completion.chunk\",\"created\":1700000000,\"model\":\"m\",\"choices\":[{\"index\":0,\"delta\":{\"content\":\" token\"},\"logprobs\":null,\"finish_reason\":null}]}\n\n",
    );
    let mut group = c.benchmark_group("answer");
    group.throughput(Throughput::Elements(CHUNKS));
    for (name, postprocess) in [
        ("include_usage", Postprocess::None),
        ("strip_actual_usage", Postprocess::StripActualUsage),
        ("vllm_format", Postprocess::VllmFormat),
    ] {
        group.bench_function(name, |b| {
            b.iter(|| {
                let mut filter = Filter::new(true, handler(postprocess));
                for _ in 0..CHUNKS {
                    black_box(filter.feed(black_box(&chunk)));
                }
            });
        });
    }
    group.finish();
}

criterion_group!(benches, scan, edit, facts, answer);
criterion_main!(benches);
