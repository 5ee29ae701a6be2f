//! Tests of the HTTP port.

use serde_json::{Value, json};

use super::harness::Home;
use crate::config::Secret;
use service::renewed::Renewed;

fn parsed(body: &str) -> Value {
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {body}"))
}

#[tokio::test]
async fn a_record_is_found_by_its_request_id() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    wire.data(1..=3).await;
    wire.acked(3).await;
    let (status, body) = listener.local("/records?request_id=r2").await;
    assert_eq!(status, 200);
    assert_eq!(
        (&parsed(&body)["seq"], &parsed(&body)["resp_body"]),
        (&json!(2), &json!("Hi"))
    );
    assert_eq!(listener.local("/records?request_id=r9").await.0, 404);
    assert_eq!(listener.local("/records?request_id=").await.0, 400);
    assert_eq!(listener.local("/records").await.0, 400);
    for wrong in [
        "/records?request_id=r2&hours=many",
        "/summary?minutes=few",
        "/records?x",
    ] {
        let (status, body) = listener.local(wrong).await;
        assert_eq!(status, 400, "{wrong}");
        assert!(parsed(&body)["error"]["message"].is_string(), "{body}");
    }
    assert_eq!(listener.local("/healthz").await, (200, "OK\n".to_owned()));
}

#[tokio::test]
async fn statistics_and_summary_say_what_is_there() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 4, 1).await;
    wire.send(&proto::frame::Frame::Data(super::harness::with_meta(1,
        r#"{"v":2,"ts":"2026-01-02T10:29:00.000Z","rt":1.5,"status":200,"peer":"10.0.0.1:8000","usage":{"prompt":7}}"#))).await;
    wire.acked(1).await;
    let stats = parsed(&listener.local("/stats").await.1);
    assert_eq!(
        (&stats["disk"], &stats["connections"], &stats["time_zone"]),
        (&json!("normal"), &json!(1), &json!("UTC"))
    );
    assert_eq!(stats["outputs"]["records"]["file"], "2026-01-02/10.jsonl");
    assert_eq!(stats["outputs"]["details"]["lines"], 1);
    assert_eq!(
        (
            &stats["streams"][0]["producer"],
            &stats["streams"][0]["epoch"],
            &stats["streams"][0]["records"]
        ),
        (&json!("p"), &json!(4), &json!(1))
    );
    let summary = parsed(&listener.local("/summary?minutes=5&breakdown=true").await.1);
    assert_eq!(
        (
            &summary["peers"][0]["peer"],
            &summary["peers"][0]["prompt_tokens"]
        ),
        (&json!("10.0.0.1:8000"), &json!(7))
    );
    assert_eq!(summary["buckets"].as_array().unwrap().len(), 1);
}

#[tokio::test]
async fn rows_come_page_by_page() {
    let home = Home::new();
    let listener = home.start().await;
    let mut wire = listener.sender("p", 1, 1).await;
    for seq in 1..=3 {
        let meta: &'static str = [
            r#"{"v":2,"request_id":"r1","ts":"2026-01-02T10:29:01.000Z","rt":1,"status":200}"#,
            r#"{"v":2,"request_id":"r2","ts":"2026-01-02T10:29:02.000Z","rt":1,"status":429}"#,
            r#"{"v":2,"request_id":"r3","ts":"2026-01-02T10:29:03.000Z","rt":1,"status":200}"#,
        ][seq as usize - 1];
        let data = super::harness::with_meta(seq, meta);
        wire.send(&proto::frame::Frame::Data(data)).await;
    }
    wire.acked(3).await;
    let window = "start=2026-01-02T10:00:00Z&end=2026-01-02T11:00:00Z&limit=1";
    let page = parsed(&listener.local(&format!("/details?{window}")).await.1);
    assert_eq!(
        (&page["count"], &page["rows"][0]["request_id"]),
        (&json!(1), &json!("r1"))
    );
    let cursor = page["next_cursor"].as_str().unwrap();
    let query = format!("/details?end=2026-01-02T11:00:00Z&cursor={cursor}&status=200");
    let page = parsed(&listener.local(&query).await.1);
    assert_eq!(
        (&page["truncated"], &page["rows"][0]["request_id"]),
        (&json!(false), &json!("r3"))
    );
    let (status, body) = listener.local("/details?start=today&end=1").await;
    assert_eq!(status, 400);
    assert!(body.contains("'start' must be a time"), "{body}");
    // The path where version 1 served rows.
    let (status, body) = listener.local(&format!("/metrics?{window}")).await;
    assert_eq!((status, &parsed(&body)["count"]), (200, &json!(1)));
}

#[tokio::test]
async fn what_is_stored_is_for_callers_on_this_host_or_with_the_token() {
    let mut home = Home::new();
    let listener = home.start().await;
    for path in [
        "/stats",
        "/summary",
        "/records?request_id=r",
        "/details?start=1&end=2",
        "/metrics?start=1&end=2",
    ] {
        assert_eq!(
            listener.get(path, "host: logs.example\r\n").await.0,
            403,
            "{path}"
        );
    }
    for path in ["/healthz", "/readyz", "/metrics"] {
        assert_eq!(
            listener.get(path, "host: logs.example\r\n").await.0,
            200,
            "{path}"
        );
    }
    listener.stop().await;
    home.config.token = Some(Renewed::fixed(Secret::new("sesame")));
    let listener = home.start().await;
    for (shown, status) in [
        ("", 401),
        ("authorization: Bearer Sesame\r\n", 401),
        ("authorization: bearer sesame\r\n", 200),
    ] {
        let headers = format!("host: logs.example\r\n{shown}");
        assert_eq!(listener.get("/stats", &headers).await.0, status, "{shown}");
    }
    // A token in a URL is not accepted, because logs would keep it.
    assert_eq!(
        listener
            .get("/stats?token=sesame", "host: logs.example\r\n")
            .await
            .0,
        401
    );
    assert_eq!(listener.local("/nothing").await.0, 404);
}

#[tokio::test]
async fn a_wrong_parameter_is_named() {
    let home = Home::new();
    let listener = home.start().await;
    for (path, name) in [
        ("/records", "'request_id'"),
        ("/records?request_id=r&hours=many", "'hours'"),
        ("/summary?minutes=few", "'minutes'"),
        ("/summary?breakdown=yes", "'breakdown'"),
        ("/details?start=1&end=never", "'end'"),
    ] {
        let (status, body) = listener.local(path).await;
        let message = parsed(&body)["error"]["message"].to_string();
        assert!(status == 400 && message.contains(name), "{path}: {body}");
    }
    assert_eq!(listener.local("/summary?breakdown=1").await.0, 200);
}

#[tokio::test]
async fn metrics_come_in_the_format_asked_for() {
    let home = Home::new();
    let listener = home.start().await;
    let (_, text) = listener.local("/metrics").await;
    for series in [
        r#"bodylog_listener_frames_total{proto="v1",result="stored"} 0"#,
        r#"bodylog_listener_frame_errors_total{kind="header_crc"} 0"#,
        r#"bodylog_listener_write_errors_total{output="details"} 0"#,
        r#"bodylog_listener_shed_total{reason="disk"} 0"#,
        r#"bodylog_listener_commit_seconds_count{output="records"} 0"#,
        r#"bodylog_listener_extract_total{shape="stream"} 0"#,
        "bodylog_listener_ack_lag_seconds_count 0",
        "bodylog_listener_disk_free_bytes 500",
        "bodylog_listener_disk_size_bytes 1000",
        r#"bodylog_listener_files{class="quarantine"} 0"#,
    ] {
        assert!(
            text.lines().any(|line| line == series),
            "{series} in\n{text}"
        );
    }
    let (_, open) = listener
        .get(
            "/metrics",
            "host: x\r\naccept: application/openmetrics-text\r\n",
        )
        .await;
    assert!(open.ends_with("# EOF\n"));
}
