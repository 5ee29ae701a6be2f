use std::time::Duration;

use router_core::decision::{Choice, Facts};

use super::*;
use crate::settled::Times;
use crate::testing::{attempt, settled};

fn example() -> Settled {
    let example = settled();
    let ended = example.times.arrived + Duration::from_micros(424_200);
    let first_chunk = example.times.arrived + Duration::from_millis(31);
    Settled {
        rid: "a1b2c3d4".into(),
        route: Some("chat".into()),
        attempts: vec![attempt("10.0.0.11:8000")],
        peer_name: Some("gpu-a".into()),
        choice: Some(Choice::Send {
            mode: Mode::Hash,
            facts: Facts::default(),
        }),
        owner: Some("team-a".into()),
        model: Some("m1".into()),
        bytes_in: 812,
        bytes_out: 4711,
        times: Times {
            ended,
            first_chunk: Some(first_chunk),
            first_token: Some(first_chunk),
            ..example.times
        },
        trace_id: Some("4bf92f3577b34da6a3ce929d0e0e4736".into()),
        ..example
    }
}

fn rendered(settled: &Settled, format: LogFormat) -> String {
    Line(settled).render(format)
}

#[test]
fn text_has_its_fixed_form() {
    assert_eq!(
        rendered(&example(), LogFormat::Text),
        "rid=a1b2c3d4 POST /chat/v1/chat/completions -> 200 \
         (0.42s, route=chat, peer=gpu-a, mode=hash, retries=0)\n"
    );
}

#[test]
fn an_absent_fact_is_a_dash() {
    let settled = Settled {
        status: 404,
        rid: "a1b2c3d4".into(),
        ..settled()
    };
    assert_eq!(
        rendered(&settled, LogFormat::Text),
        "rid=a1b2c3d4 POST /chat/v1/chat/completions -> 404 (0.00s, route=-, peer=-, mode=-, retries=0)\n"
    );
}

#[test]
fn json_has_every_key_always() {
    insta::assert_snapshot!(rendered(&example(), LogFormat::Json), @r#"{"time":"2026-09-21T14:13:31.400Z","level":"info","rid":"a1b2c3d4","method":"POST","path":"/chat/v1/chat/completions","status":200,"seconds":0.424,"route":"chat","peer":"gpu-a","mode":"hash","retries":0,"owner":"team-a","model":"m1","served_model":null,"bytes_in":812,"bytes_out":4711,"ttft_ms":31,"tokens":null,"trace_id":"4bf92f3577b34da6a3ce929d0e0e4736"}"#);
}

#[test]
fn no_field_can_end_the_line_or_steer_a_terminal() {
    let settled = Settled {
        rid: "a\n\u{1b}[2J\u{2028}\u{202e}é".into(),
        owner: Some("a\nb".into()),
        ..example()
    };
    let text = rendered(&settled, LogFormat::Text);
    assert_eq!(text.matches('\n').count(), 1);
    assert!(
        text.starts_with(r"rid=a\u{a}\u{1b}[2J\u{2028}\u{202e}é POST "),
        "{text}"
    );
    let json = rendered(&settled, LogFormat::Json);
    assert_eq!(json.matches('\n').count(), 1);
}
