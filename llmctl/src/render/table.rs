//! Tables with aligned columns, for a screen and for `awk`.

use std::borrow::Cow;

use super::escape::tame;
use super::paint::{Paint, painted};

/// Placeholder for an empty cell.
const NOTHING: &str = "-";

/// Blanks between two columns.
const GAP: usize = 2;

/// Indentation of the values below their row.
const INDENT: usize = 4;

/// A table of left-aligned columns, two blanks apart, without rules: readable on a screen, and easy
/// to split with `awk`.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<(String, Paint)>>,
}

impl Table {
    /// The same table, with `spelt` applied to every cell.
    pub(super) fn respelt(mut self, spelt: impl Fn(&str) -> Cow<'_, str>) -> Self {
        for (cell, _) in self.rows.iter_mut().flatten() {
            *cell = spelt(cell).into_owned();
        }
        self
    }

    /// An empty table with these column names.
    pub fn new(head: &[&str]) -> Self {
        Self {
            head: head.iter().map(|h| (*h).to_owned()).collect(),
            rows: Vec::new(),
        }
    }

    /// Adds a row of plain cells.
    pub fn row<S: AsRef<str>>(&mut self, cells: impl IntoIterator<Item = S>) {
        self.painted_row(
            cells
                .into_iter()
                .map(|cell| (cell.as_ref().to_owned(), Paint::Plain))
                .collect(),
        );
    }

    /// Adds a row of coloured cells.
    pub fn painted_row(&mut self, cells: Vec<(String, Paint)>) {
        let tamed = cells
            .into_iter()
            .map(|(cell, paint)| (tame(&cell).into_owned(), paint));
        self.rows.push(tamed.collect());
    }

    /// Whether the table has no rows.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with a newline after each row. Empty columns are left out. Values that do not fit
    /// the width follow below their row, indented, each after its column's name.
    pub fn draw(&self, colour: bool, width: Option<usize>) -> String {
        let shown: Vec<usize> = (0..self.head.len())
            .filter(|column| self.says_something(*column))
            .collect();
        let widths: Vec<usize> = shown.iter().map(|column| self.width_of(*column)).collect();
        let fitting = fitting(&widths, width.unwrap_or(usize::MAX));
        let (beside, below) = shown.split_at(fitting);
        let mut text = String::new();
        let head = |column: &usize| (self.head[*column].to_uppercase(), Paint::Bold);
        let heads: Vec<_> = beside.iter().map(head).collect();
        draw_row(&heads, &widths, colour, &mut text);
        for row in &self.rows {
            let cells: Vec<_> = beside
                .iter()
                .filter_map(|at| row.get(*at).cloned())
                .collect();
            draw_row(&cells, &widths, colour, &mut text);
            self.draw_below(row, below, colour, width, &mut text);
        }
        text
    }

    fn says_something(&self, column: usize) -> bool {
        let mut cells = self.rows.iter().filter_map(|row| row.get(column));
        self.rows.is_empty() || cells.any(|(cell, _)| !matches!(cell.as_str(), "" | NOTHING))
    }

    fn width_of(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        let widths = cells.map(|(cell, _)| cell.chars().count());
        widths
            .max()
            .unwrap_or(0)
            .max(self.head[column].chars().count())
    }

    fn draw_below(
        &self,
        row: &[(String, Paint)],
        below: &[usize],
        colour: bool,
        width: Option<usize>,
        text: &mut String,
    ) {
        let mut column = 0;
        for at in below {
            let Some((cell, paint)) = row.get(*at) else {
                continue;
            };
            if matches!(cell.as_str(), "" | NOTHING) {
                continue;
            }
            let head = &self.head[*at];
            let len = head.chars().count() + 1 + cell.chars().count();
            if column > 0 && column + GAP + len <= width.unwrap_or(usize::MAX) {
                text.push_str("  ");
                column += GAP + len;
            } else {
                text.push_str(if column > 0 { "\n    " } else { "    " });
                column = INDENT + len;
            }
            text.push_str(head);
            text.push(' ');
            text.push_str(&painted(colour, *paint, cell));
        }
        if column > 0 {
            text.push('\n');
        }
    }
}

/// The number of columns that fit side by side, at least one.
fn fitting(widths: &[usize], width: usize) -> usize {
    let mut end = 0_usize;
    let fits = widths.iter().take_while(|column| {
        end += **column;
        let fits = end <= width;
        end += GAP;
        fits
    });
    fits.count().max(1).min(widths.len())
}

fn draw_row(row: &[(String, Paint)], widths: &[usize], colour: bool, text: &mut String) {
    for (column, (cell, paint)) in row.iter().enumerate() {
        text.push_str(&painted(colour, *paint, cell));
        if column + 1 < row.len() {
            let padding = widths[column] - cell.chars().count() + GAP;
            text.extend(std::iter::repeat_n(' ', padding));
        }
    }
    while text.ends_with(' ') {
        text.pop();
    }
    text.push('\n');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_line_up_and_rows_end_without_blanks() {
        let mut table = Table::new(&["peer", "in-flight", "note"]);
        table.row(["gpu-a", "3", ""]);
        table.row(["gpu-long-name", "12", "banned"]);
        insta::assert_snapshot!(table.draw(false, None), @r"
        PEER           IN-FLIGHT  NOTE
        gpu-a          3
        gpu-long-name  12         banned
        ");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&["model"]);
        table.row(["a\x1b[2Jb\n"]);
        assert_eq!(table.draw(false, None), "MODEL\na\\u{1b}[2Jb\\n\n");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let mut table = Table::new(&["a", "b"]);
        table.painted_row(vec![
            ("x".to_owned(), Paint::Red),
            ("y".to_owned(), Paint::Plain),
        ]);
        assert_eq!(
            table.draw(true, None),
            "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[31mx\x1b[0m  y\n"
        );
    }

    #[test]
    fn a_column_without_a_value_is_left_out() {
        let mut table = Table::new(&["peer", "model", "state"]);
        table.row(["gpu-a", "-", "healthy"]);
        table.row(["gpu-b", "", "full"]);
        insta::assert_snapshot!(table.draw(false, None), @r"
        PEER   STATE
        gpu-a  healthy
        gpu-b  full
        ");
    }

    #[test]
    fn what_does_not_fit_stands_below_its_row() {
        let mut table = Table::new(&["peer", "address", "state", "note"]);
        table.row(["gpu-a", "10.0.0.11:8000", "healthy", "-"]);
        table.row(["gpu-b", "10.0.0.12:8000", "full", "its load page is silent"]);
        insta::assert_snapshot!(table.draw(false, Some(40)), @r"
        PEER   ADDRESS         STATE
        gpu-a  10.0.0.11:8000  healthy
        gpu-b  10.0.0.12:8000  full
            note its load page is silent
        ");
    }
}
