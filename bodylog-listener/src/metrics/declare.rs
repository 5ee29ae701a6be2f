//! `metrics!` makes the struct of all metrics, its registration and its zero series from one entry for
//! each family.

use prometheus_client::metrics::family::Family as Series;
use prometheus_client::registry::{Metric, Registry};
use service::families::Family;

/// The labels of one series.
type LabelSet<const N: usize> = [(&'static str, &'static str); N];

/// A metric with labels from closed sets. Every combination has its series from the start.
#[derive(Debug)]
pub(crate) struct Vector<M, const N: usize> {
    names: [&'static str; N],
    pub(super) series: Series<LabelSet<N>, M, fn() -> M>,
}

impl<M: Clone, const N: usize> Vector<M, N> {
    /// The series of every combination of `words`, each made by `make`.
    pub(super) fn new(family: &Family<N>, words: &[Vec<&'static str>; N], make: fn() -> M) -> Self {
        let vector = Self {
            names: family.labels,
            series: Series::new_with_constructor(make),
        };
        let mut sets = vec![[""; N]];
        for (label, words) in words.iter().enumerate() {
            let longer = sets.iter().flat_map(|set| {
                words.iter().map(move |word| {
                    let mut set = *set;
                    set[label] = word;
                    set
                })
            });
            sets = longer.collect();
        }
        for set in sets {
            vector.of(set);
        }
        vector
    }

    /// The series with these label values, in the order of the declaration.
    pub(super) fn of(&self, values: [&'static str; N]) -> M {
        let mut names = self.names.into_iter();
        let labels = values.map(|value| (names.next().unwrap_or_default(), value));
        self.series.get_or_create_owned(&labels)
    }
}

/// Registers a metric. The registry appends a full stop to each help text.
pub(super) fn register<const N: usize>(
    registry: &mut Registry,
    family: &Family<N>,
    metric: impl Metric,
) {
    registry.register(family.name, family.help.trim_end_matches('.'), metric);
}

macro_rules! metrics {
    ($(
        $(#[doc = $help:literal])+
        $field:ident: $Type:ty = $kind:ident $name:literal
            [$($label:ident in $words:expr),*] $unit:ident $(, $make:expr)?;
    )*) => {
        service::families! {
            #[expect(non_upper_case_globals, reason = "named like the fields of `Metrics`")]
            mod families {
                $( $(#[doc = $help])+ $field = $kind $name [$($label),*] $unit; )*
            }
        }

        /// All metrics. One instance per listener.
        #[derive(Debug)]
        pub(crate) struct Metrics {
            registry: Registry,
            $( $(#[doc = $help])+ pub(crate) $field: metrics!(@type $Type; $($label)*), )*
        }

        impl Metrics {
            /// Adds every family to `registry`.
            fn registered(mut registry: Registry) -> Self {
                $(
                    let $field = metrics!(@new $field, $Type; [$($words),*] $($make)?);
                    let metric = metrics!(@metric $field; $($label)*);
                    declare::register(&mut registry, &families::$field, metric);
                )*
                Self { registry, $($field),* }
            }
        }
    };

    (@type $Type:ty;) => { $Type };
    (@type $Type:ty; $($label:ident)+) => {
        declare::Vector<$Type, { <[&str]>::len(&[$(stringify!($label)),+]) }>
    };

    (@new $field:ident, $Type:ty; []) => { <$Type>::default() };
    (@new $field:ident, $Type:ty; [] $make:expr) => { $make() };
    (@new $field:ident, $Type:ty; [$($words:expr),+]) => {
        metrics!(@new $field, $Type; [$($words),+] <$Type>::default)
    };
    (@new $field:ident, $Type:ty; [$($words:expr),+] $make:expr) => {{
        let words = [$($words.into_iter().map(|word| word.as_str()).collect()),+];
        declare::Vector::new(&families::$field, &words, $make)
    }};

    (@metric $field:ident;) => { $field.clone() };
    (@metric $field:ident; $($label:ident)+) => { $field.series.clone() };
}

pub(super) use metrics;
