//! The form in which options of a route are declared: one entry per option, from which everything
//! else follows.

/// Declares a group of options.
///
/// ```text
/// options! {
///     /// What the group is for.
///     pub struct PoliteOptions, declared in POLITE: PoliteTable;
///
///     "polite" {                                  // the heading in listings
///         /// How long to wait before answering.  // the text in docs, schema and listings
///         pause: Duration = option("polite_pause", within(10, 1)).default("2s");
///     }
/// }
/// ```
///
/// makes the struct `PoliteOptions { pause: Setting<Duration> }`, which the rest of the program
/// reads, and the table `POLITE`, from which the check, the JSON Schema, `docs/options.md` and
/// `/_route_opts` are made. `parts` are groups inside a group. `also in TABLE: Type` declares
/// another set of keys for the same struct.
macro_rules! options {
    (
        $(#[doc = $about:literal])+
        pub struct $Options:ident, declared in $TABLE:ident: $Table:ident;

        $(
            $(#[doc = $of_part:literal])+
            $part:ident: $Part:ident in $PART:ident;
        )*

        $($group:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident: $T:ty = $option:expr;
            )*
        })*
    ) => {
        $(#[doc = $about])+
        #[derive(Clone, Debug)]
        pub struct $Options {
            $( $(#[doc = $of_part])+ pub $part: $Part, )*
            $($( $(#[doc = $doc])+ pub $field: $crate::options::Setting<$T>, )*)*
        }

        #[doc = concat!("What the catalogue says about each field of [`", stringify!($Options), "`].")]
        pub(crate) struct $Table {
            $($( pub(crate) $field: $crate::options::OptionDef<$T>, )*)*
        }

        impl $Table {
            /// Every option of the group and of its parts.
            pub(crate) fn metas(&'static self) -> Vec<&'static $crate::options::Meta> {
                let parts: &[Vec<_>] = &[$( $PART.metas(), )*];
                [parts.concat(), vec![$($( &self.$field.meta, )*)*]].concat()
            }

            /// Reads every option.
            pub(crate) fn read(
                &self,
                reader: &mut $crate::check::Reader,
                layers: &$crate::check::Layers<'_>,
            ) -> $Options {
                $Options {
                    $( $part: $PART.read(reader, layers), )*
                    $($( $field: layers.setting(reader, &self.$field), )*)*
                }
            }

            /// Every option with its value and its layer.
            pub(crate) fn rows(&'static self, options: &$Options) -> Vec<$crate::options::effective::Row> {
                use $crate::options::effective::row;
                let parts: &[Vec<_>] = &[$( $PART.rows(&options.$part), )*];
                let own = vec![$($( row(&self.$field.meta, &options.$field), )*)*];
                [parts.concat(), own].concat()
            }
        }

        options! {
            also in $TABLE: $Table;
            $($group { $( $(#[doc = $doc])+ $field = $option; )* })*
        }
    };

    (
        also in $TABLE:ident: $Table:ident;

        $($group:literal {
            $(
                $(#[doc = $doc:literal])+
                $field:ident = $option:expr;
            )*
        })*
    ) => {
        #[doc = concat!("The table of [`", stringify!($Table), "`].")]
        pub(crate) static $TABLE: $Table = $Table {
            $($(
                $field: $option.group($group).comment(concat!($($doc),+).trim_ascii_start()),
            )*)*
        };
    };
}

pub(crate) use options;
