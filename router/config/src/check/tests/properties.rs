//! Every file is read to its end, whatever it contains, and every problem can be rendered.

use std::fs;

use proptest::prelude::*;

use crate::load::{RoutesAt, Sources, load};
use crate::options::{MAIN, PEER, ROUTE};
use crate::report::{Style, render};
use crate::{Env, keys};

/// Fragments of files, valid and broken.
fn piece() -> impl Strategy<Value = String> {
    let keys = ROUTE
        .iter()
        .chain(PEER)
        .chain(MAIN)
        .map(|meta| format!("{}: ", meta.key))
        .collect::<Vec<_>>();
    let values = [
        "[",
        "]",
        "{",
        "}",
        "- ",
        "\n",
        "\n  ",
        "\n    ",
        ", ",
        ": ",
        "#",
        "|\n",
        ">-\n",
        "&a ",
        "*a",
        "<<: ",
        "---\n",
        "!!str ",
        "\"",
        "'",
        "${",
        "${A}",
        "${A:-5}",
        "$$",
        "5",
        "-1",
        ".nan",
        "true",
        "yes",
        "~",
        "ü",
        "\u{feff}",
        "\t",
        "\r\n",
        "10.0.0.1:80",
        "http://u:p@h",
        "SECRET",
        "sha256:12",
        "..",
        "?",
        "%",
    ];
    prop_oneof![
        prop::sample::select(keys),
        prop::sample::select(values.to_vec()).prop_map(str::to_owned),
        "\\PC{0,6}",
    ]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(256))]

    #[test]
    fn any_file_is_checked_and_shown_without_a_panic(pieces in prop::collection::vec(piece(), 0..40)) {
        let text = pieces.concat();
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("chat.yaml");
        fs::write(&path, &text).unwrap();
        let sources = Sources {
            config: Some(path.clone()),
            routes: RoutesAt::Files(vec![path]),
            env: Env::fixed([("A", "x")]),
            advise: true,
        };
        let loaded = load(&sources);
        for problem in &loaded.problems {
            let (line, column) = problem.position();
            prop_assert!(line >= 1 && column >= 1 && line <= text.lines().count().max(1) + 1);
            prop_assert!(!problem.message.contains('\n'), "{:?}", problem.message);
            prop_assert!(!problem.github().contains('\n'));
        }
        render(&loaded.problems, Style::Plain);
        // A route and a main file have no key in common, so the text cannot be both.
        prop_assert!(loaded.main.result.is_err() || loaded.routes[0].result.is_err());
    }

    #[test]
    fn any_bytes_are_a_key_file_or_say_why_not(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        let read = keys::file::parse(&bytes);
        prop_assert_eq!(read.keys.is_empty(), read.status != keys::KeyFileStatus::Ok);
    }
}
