//! Colours.

/// A colour or weight. It never carries meaning alone: the words say the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Paint {
    /// Without colour.
    Plain,
    /// Headings.
    Bold,
    /// Good state.
    Green,
    /// Needs attention.
    Yellow,
    /// Broken.
    Red,
    /// Less important.
    Dim,
}

impl Paint {
    fn code(self) -> &'static str {
        match self {
            Self::Plain => "",
            Self::Bold => "\x1b[1m",
            Self::Green => "\x1b[32m",
            Self::Yellow => "\x1b[33m",
            Self::Red => "\x1b[31m",
            Self::Dim => "\x1b[2m",
        }
    }
}

/// The text in its colour, when colour is on.
pub(super) fn painted(colour: bool, paint: Paint, text: &str) -> String {
    if colour && paint != Paint::Plain && !text.is_empty() {
        format!("{}{text}\x1b[0m", paint.code())
    } else {
        text.to_owned()
    }
}
