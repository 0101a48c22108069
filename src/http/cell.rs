//! Fields of tables, whatever kind of file the table becomes.

/// One field of a table.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Cell {
    /// Nothing.
    Empty,
    /// Words, also those that look like a number or a formula.
    Text(String),
    /// A decimal number of ours.
    Number(String),
}

impl Cell {
    /// A text, if there is one.
    pub(super) fn text(text: Option<impl ToString>) -> Self {
        text.map_or(Self::Empty, |text| Self::Text(text.to_string()))
    }

    /// A number, if there is one.
    pub(super) fn number(number: Option<impl ToString>) -> Self {
        number.map_or(Self::Empty, |number| Self::Number(number.to_string()))
    }
}
