use http::HeaderValue;
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::*;

const TYPE: &str = "multipart/form-data; boundary=XX";

fn headers(content_type: &str) -> HeaderMap {
    let value = HeaderValue::from_str(content_type).unwrap();
    HeaderMap::from_iter([(header::CONTENT_TYPE, value)])
}

fn read(body: &str) -> Result<Form, FormError> {
    Form::read(&headers(TYPE), body.as_bytes()).unwrap()
}

fn part(disposition: &str, value: &str) -> String {
    format!("--XX\r\nContent-Disposition: form-data; {disposition}\r\n\r\n{value}\r\n")
}

fn form(parts: &[(&str, &str)]) -> String {
    let parts = parts.iter().map(|(head, value)| part(head, value));
    parts.collect::<String>() + "--XX--\r\n"
}

fn json(body: &str) -> Value {
    serde_json::from_slice(&read(body).unwrap().json).unwrap()
}

#[test]
fn text_fields_become_json_and_files_do_not() {
    let body = form(&[
        (r#"name="file"; filename="a.wav""#, "RIFF\r\n--X\r\nmore"),
        (r#"name="model""#, "whisper-1"),
        ("name=stream", "true"),
        (r#"name="temperature""#, "0.5"),
        (r#"name="user""#, "123456789012345678901234567890"),
        (r#"name="a\"b""#, "x;\r\ny"),
    ]);
    assert_eq!(
        json(&body),
        serde_json::json!({
            "model": "whisper-1", "stream": true, "temperature": 0.5,
            "user": "123456789012345678901234567890", "a\"b": "x;\r\ny",
        })
    );
}

#[test]
fn other_bodies_are_no_forms() {
    for other in ["application/json", "multipart/mixed; boundary=XX", "x"] {
        assert_eq!(Form::read(&headers(other), b"{}"), None, "{other}");
    }
    assert_eq!(Form::read(&HeaderMap::new(), b"{}"), None);
}

#[test]
fn only_the_model_is_replaced() {
    let parts = [
        ("name=\"model\"", "gpt"),
        (r#"name="file"; filename="m""#, "gpt\r\n"),
    ];
    for parts in [parts, [parts[1], parts[0]]] {
        let body = form(&parts);
        let mut form = read(&body).unwrap();
        let replaced = form.replace_model(body.as_bytes(), |asked| {
            (asked == "gpt").then(|| "qwen3".into())
        });
        let (alias, edited) = replaced.unwrap();
        assert_eq!((&*alias.asked, &*alias.served), ("gpt", "qwen3"));
        let head = "name=\"model\"\r\n\r\n";
        let expected = body.replace(&format!("{head}gpt"), &format!("{head}qwen3"));
        assert_eq!(str::from_utf8(&edited), Ok(&*expected));
        assert_eq!(&form.json[..], br#"{"model":"qwen3"}"#);
        assert_eq!(read(&expected).unwrap(), form);
    }
    let body = form(&[("name=\"model\"", "llama")]);
    let mut form = read(&body).unwrap();
    assert_eq!(form.replace_model(body.as_bytes(), |_| None), None);
}

#[test]
fn boundaries_are_read_as_the_grammar_says() {
    for declared in [
        "multipart/form-data; boundary=\"a b;c\"",
        "Multipart/Form-Data; charset=utf-8; BOUNDARY=\"a b;c\";",
    ] {
        let body =
            b"\r\n--a b;c \t\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--a b;c--";
        let form = Form::read(&headers(declared), body).unwrap().unwrap();
        assert_eq!(&form.json[..], br#"{"model":"m"}"#, "{declared}");
    }
    let long = format!("multipart/form-data; boundary={}", "x".repeat(71));
    for declared in [
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-data; boundary=\"\"",
        "multipart/form-data; boundary=\"a\tb\"",
        "multipart/form-data; boundary=\"a ",
        "multipart/form-data; boundary=a; boundary=b",
        "multipart/form-data; boundary=a; boundary*=utf-8''b",
        &long,
    ] {
        let found = Form::read(&headers(declared), b"--a--");
        assert_eq!(found, Some(Err(FormError::Boundary)), "{declared}");
    }
    let mut two = headers(TYPE);
    two.append(header::CONTENT_TYPE, HeaderValue::from_static(TYPE));
    assert_eq!(Form::read(&two, b"--XX--"), Some(Err(FormError::Boundary)));
}

#[test]
fn a_form_that_parsers_read_in_several_ways_is_refused() {
    use FormError::*;
    let model = "name=\"model\"";
    let head = |lines: &str| format!("--XX\r\n{lines}\r\n\r\nm\r\n--XX--");
    let disposition = "Content-Disposition: form-data; name=\"model\"";
    let cases = [
        ("preamble\r\n--XX--".to_owned(), Begin),
        ("--XY--".to_owned(), Begin),
        ("--XXY\r\n".to_owned(), BoundaryLine),
        (form(&[(model, "m")]).replace("\r\n", "\n"), BoundaryLine),
        (String::new(), Cut),
        (part(model, "m"), Cut),
        (form(&[(model, "a"), (model, "b")]), TwoModels),
        (form(&[("name=\"model\"; filename=\"f\"", "m")]), Model),
        (form(&[("name=\"model\"; filename*=utf-8''f", "m")]), Model),
        (form(&[(model, "")]), Model),
        (form(&[(model, "m\r\n")]), Model),
        (form(&[(model, &"m".repeat(257))]), Model),
        (
            head(&format!(
                "{disposition}\r\nContent-Transfer-Encoding: base64"
            )),
            Model,
        ),
        (head("Content-Type: text/plain"), Disposition),
        (
            head(&format!("{disposition}\r\n{disposition}")),
            Disposition,
        ),
        (head(&disposition.replace("; ", ";\r\n ")), Disposition),
        (head(&disposition.replace("name", "name*")), Disposition),
        (head(&format!("{disposition}; name=x")), Disposition),
        (
            head(&disposition.replace("form-data", "attachment")),
            Disposition,
        ),
        ("--XX\r\n\r\nm\r\n--XX--\r\n\r\n".to_owned(), Disposition),
        (
            head(&format!("{disposition}\r\nX: {}", "x".repeat(HEAD_MAX))),
            HeadTooLarge,
        ),
        (form(&[("name=x", &"x".repeat(TEXT_MAX + 1))]), TextTooLong),
        (form(&[("name=x", ""); PARTS_MAX + 1]), TooManyParts),
    ];
    for (body, expected) in cases {
        let shown: String = body.chars().take(80).collect();
        assert_eq!(read(&body), Err(expected), "{shown}");
    }
}

#[test]
fn a_file_is_not_held() {
    let mut scan = FormScan::new(&headers(TYPE)).unwrap();
    scan.feed(part("name=f; filename=f", "").trim_end().as_bytes())
        .unwrap();
    scan.feed(b"\r\n\r\n").unwrap();
    assert!(scan.has_file());
    for _ in 0..100 {
        scan.feed(&[b'\r'; 10_000]).unwrap();
        assert!(scan.held() < 100);
    }
    scan.feed(b"\n--XX\r\nContent-Disposition: form-data; name=model\r\n\r\nm\r\n--XX--")
        .unwrap();
    let form = scan.end().unwrap();
    assert_eq!(&form.json[..], br#"{"model":"m"}"#);
    assert!(form.model.unwrap().start > 1_000_000);
}

/// Pieces of forms, whole and torn.
const PIECES: &[&[u8]] = &[
    b"--XX\r\nContent-Disposition: form-data; name=\"model\"\r\n\r\nm\r\n",
    b"--XX\r\nContent-Disposition: form-data; name=f; filename=\"f\"\r\n\r\n",
    b"--XX\r\nContent-Disposition: form-data; name=",
    b"--XX--\r\n",
    b"\r\n--XX",
    b"\r\n\r\n",
    b"\r\n",
    b"\r",
    b"--",
    b"\"",
    b"\\",
    b"; filename*=x",
    b"user",
    b"\0",
    b"\xff",
];

proptest! {
    #[test]
    fn no_form_breaks_the_scan(pieces in vec(select(PIECES), 0..40), size in 1_usize..30) {
        let body = pieces.concat();
        let whole = Form::read(&headers(TYPE), &body).unwrap();
        let mut scan = FormScan::new(&headers(TYPE)).unwrap();
        let fed = body.chunks(size).try_for_each(|chunk| scan.feed(chunk));
        let found = fed.and_then(|()| scan.end());
        prop_assert_eq!(&found, &whole);
        if let Ok(mut form) = whole
            && let Some((alias, edited)) = form.replace_model(&body, |_| Some("served".into()))
        {
            prop_assert_eq!(&*alias.served, "served");
            prop_assert_eq!(Form::read(&headers(TYPE), &edited), Some(Ok(form)));
        }
    }

    #[test]
    fn chunks_make_no_difference(
        file in "[\r\nX-]{0,40}", value in "[a-zX\r\n-]{0,12}", after in "[X-]{0,4}", size in 1_usize..20,
    ) {
        let body = form(&[("name=f; filename=f", &file), ("name=model", &value)]) + &after;
        let mut scan = FormScan::new(&headers(TYPE)).unwrap();
        let fed = body.as_bytes().chunks(size).try_for_each(|chunk| scan.feed(chunk));
        let found = fed.and_then(|()| scan.end());
        prop_assert_eq!(found, read(&body));
    }
}
