//! The options of a route in force: every key of the catalogue, with its value and the layer that
//! supplied it. `/_route_opts` and `llmctl route show` list them.

use proto::admin::RouteOption;
use router_core::layered::{Setting, Source};
use serde_json::Value;

use super::route::DEFAULTABLE;
use super::value::OptionValue;
use super::{Meta, ROUTE_OPTIONS};
use crate::valid::RouteOptions;

/// Every option of a route, each list in the catalogue's order.
#[derive(Clone, Debug)]
pub struct Effective {
    /// Options for operators.
    pub options: Vec<RouteOption>,
    /// Engine internals.
    pub advanced: Vec<RouteOption>,
}

impl Effective {
    /// Both lists.
    pub fn iter(&self) -> impl Iterator<Item = &RouteOption> {
        self.options.iter().chain(&self.advanced)
    }

    /// Overrides the value from the files with a value of the running router.
    pub fn set(&mut self, key: &str, value: Value, source: Source) {
        let mut all = self.options.iter_mut().chain(&mut self.advanced);
        if let Some(row) = all.find(|row| row.key == key) {
            row.value = value;
            row.source = source.as_str().to_owned();
        }
    }
}

/// An option with its catalogue entry.
#[derive(Clone)]
pub(crate) struct Row {
    meta: &'static Meta,
    option: RouteOption,
}

/// Every option of a route. Durations and sizes are written as in the file. The route's own keys
/// are only counted.
pub fn effective(options: &RouteOptions) -> Effective {
    let mut rows = ROUTE_OPTIONS.rows(options);
    rows.sort_by_key(|row| DEFAULTABLE.iter().position(|meta| meta.key == row.meta.key));
    let (advanced, options): (Vec<Row>, Vec<Row>) =
        rows.into_iter().partition(|row| row.meta.advanced);
    let bare = |rows: Vec<Row>| rows.into_iter().map(|row| row.option).collect();
    Effective {
        options: bare(options),
        advanced: bare(advanced),
    }
}

/// One option for the listing.
pub(super) fn row<T: OptionValue>(meta: &'static Meta, setting: &Setting<T>) -> Row {
    let option = RouteOption {
        key: meta.key.to_owned(),
        label: label(meta.key),
        group: meta.group.to_owned(),
        kind: meta.kind.allowed(),
        default: meta.default.to_owned(),
        description: meta.doc.to_owned(),
        value: setting.value.show(),
        source: setting.source.as_str().to_owned(),
    };
    Row { meta, option }
}

/// Parts of keys with a special spelling in labels.
const WORDS: [(&str, &str); 10] = [
    ("api", "API"),
    ("cc", "concurrency"),
    ("ewma", "EWMA"),
    ("frac", "fraction"),
    ("pct", "percent"),
    ("prio", "priority"),
    ("t1", "turn 1"),
    ("tps", "TPS"),
    ("ttft", "TTFT"),
    ("ttl", "TTL"),
];

/// `health_ban_ttl` → `Health ban TTL`.
fn label(key: &str) -> String {
    let word = |part| {
        let known = WORDS.iter().find(|(short, _)| *short == part);
        known.map_or(part, |(_, word)| *word)
    };
    let mut label = key.split('_').map(word).collect::<Vec<_>>().join(" ");
    if let Some(first) = label.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    label
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::options::GROUPS;
    use crate::{Env, RoutesAt, Sources, load};

    /// The options of a route file below a main file.
    fn options(main: &str, route: &str) -> Effective {
        let directory = tempfile::tempdir().unwrap();
        let (config, file) = (
            directory.path().join("router.yaml"),
            directory.path().join("r.yaml"),
        );
        std::fs::write(&config, main).unwrap();
        std::fs::write(&file, route).unwrap();
        let routes = RoutesAt::Files(vec![file]);
        let env = Env::fixed::<String, String>([]);
        let loaded = load(&Sources {
            config: Some(config),
            routes,
            env,
            advise: false,
        });
        effective(&loaded.routes[0].result.as_ref().unwrap().options)
    }

    #[test]
    fn every_key_of_the_catalogue_is_listed_in_its_order() {
        let listed = options("{}", "peers: []");
        let keys = |list: &[RouteOption]| -> Vec<String> {
            list.iter().map(|option| option.key.clone()).collect()
        };
        let known = |advanced: bool| -> Vec<&str> {
            let metas = DEFAULTABLE.iter().filter(|meta| meta.advanced == advanced);
            metas.map(|meta| meta.key).collect()
        };
        assert_eq!(keys(&listed.options), known(false));
        assert_eq!(keys(&listed.advanced), known(true));
    }

    /// `check::tests::catalogue` has the check of every option.
    #[test]
    fn each_option_is_listed_documented_and_in_the_schema() {
        let listed = options("{}", "peers: []");
        let schema = json!(crate::schema::route());
        let reference = crate::options::markdown();
        for meta in DEFAULTABLE.iter() {
            let key = meta.key;
            assert!(listed.iter().any(|row| row.key == key), "{key}");
            assert_eq!(schema["properties"][key]["description"], meta.doc, "{key}");
            assert!(reference.contains(&format!("| `{key}` |")), "{key}");
            assert!(GROUPS.contains(&meta.group), "{key}: {}", meta.group);
        }
    }

    #[test]
    fn a_key_reads_as_words() {
        assert_eq!(
            label("adaptive_cc_min_frac"),
            "Adaptive concurrency min fraction"
        );
        assert_eq!(label("ttft_limit_ms"), "TTFT limit ms");
        assert_eq!(label("balance"), "Balance");
    }

    #[test]
    fn a_default_is_shown_as_its_own_value() {
        let listed = options("{}", "peers: []");
        for meta in DEFAULTABLE.iter().filter(|meta| meta.has_literal_default()) {
            let row = listed.iter().find(|row| row.key == meta.key).unwrap();
            let shown = match &row.value {
                Value::String(text) => text.clone(),
                other => other.to_string(),
            };
            // A value with a unit may have several spellings.
            let seconds = |text: &str| crate::units::duration(text);
            let equal = shown == meta.default
                || seconds(&shown).is_some() && seconds(&shown) == seconds(meta.default);
            let has_parts = row.value.is_array() || row.value.is_object();
            assert!(equal || has_parts, "{}: {shown}", meta.key);
        }
    }

    #[test]
    fn each_value_names_its_layer() {
        let main = "defaults: {hash: rendezvous, health_ban_ttl: 90s}";
        let all = options(main, "peers: []\nhealth_ban_ttl: 2m\nmax_body_size: 1g");
        let of = |key: &str| {
            let option = all.iter().find(|option| option.key == key).unwrap();
            (option.value.clone(), option.source.as_str())
        };
        assert_eq!(of("hash"), (json!("rendezvous"), "global"));
        assert_eq!(of("health_ban_ttl"), (json!("2m"), "route"));
        assert_eq!(of("balance"), (json!("least_conn"), "default"));
    }

    #[test]
    fn keys_are_counted_and_not_shown() {
        let all = options("{}", "peers: []\napi_keys: {sk-secret: me}");
        let text = serde_json::to_string(&all.options).unwrap();
        assert!(
            text.contains("1 of its own") && !text.contains("sk-secret"),
            "{text}"
        );
    }
}
