//! Closed sets of words for files, answers and labels. Each word is written once.

/// Declares an enum whose variants each have a word. The list, the words, `serde` and the parser of
/// options come from the one declaration, so a new variant cannot be forgotten in one of them.
macro_rules! words {
    (
        $(#[$meta:meta])*
        pub enum $name:ident {
            $($(#[$variant_meta:meta])* $variant:ident = $word:literal,)+
        }
    ) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize, serde::Deserialize)]
        pub enum $name {
            $($(#[$variant_meta])* #[serde(rename = $word)] $variant,)+
        }

        impl $name {
            /// Every variant, in the order they are shown.
            pub const ALL: &'static [Self] = &[$(Self::$variant),+];

            /// Every word with its variant, in the order they are shown.
            pub const WORDS: &'static [(&'static str, Self)] = &[$(($word, Self::$variant)),+];

            /// The word in files, answers and labels.
            pub const fn as_str(self) -> &'static str {
                match self {
                    $(Self::$variant => $word,)+
                }
            }
        }
    };
}
