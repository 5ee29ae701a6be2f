//! Tables: columns that line up, on a screen and for `awk`.

use std::borrow::Cow;

use super::escape::tame;
use super::paint::{Paint, painted};

/// A table of left-aligned columns, two blanks apart, without rules: it reads on a screen and cuts
/// with `awk`.
#[derive(Clone, Debug, Default)]
pub struct Table {
    head: Vec<String>,
    rows: Vec<Vec<(String, Paint)>>,
}

impl Table {
    /// The same table with every cell written otherwise.
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

    /// Adds a row of painted cells.
    pub fn painted_row(&mut self, cells: Vec<(String, Paint)>) {
        let tamed = cells
            .into_iter()
            .map(|(cell, paint)| (tame(&cell).into_owned(), paint));
        self.rows.push(tamed.collect());
    }

    /// True without a row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with a newline after each row.
    pub fn draw(&self, colour: bool) -> String {
        let head = self
            .head
            .iter()
            .map(|h| (h.to_uppercase(), Paint::Bold))
            .collect::<Vec<_>>();
        let mut widths: Vec<usize> = Vec::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            for (column, (cell, _)) in row.iter().enumerate() {
                let width = cell.chars().count();
                match widths.get_mut(column) {
                    Some(widest) => *widest = width.max(*widest),
                    None => widths.push(width),
                }
            }
        }
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            draw_row(row, &widths, colour, &mut text);
        }
        text
    }
}

fn draw_row(row: &[(String, Paint)], widths: &[usize], colour: bool, text: &mut String) {
    for (column, (cell, paint)) in row.iter().enumerate() {
        text.push_str(&painted(colour, *paint, cell));
        if column + 1 < row.len() {
            let padding = widths[column] - cell.chars().count() + 2;
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
        insta::assert_snapshot!(table.draw(false), @r"
        PEER           IN-FLIGHT  NOTE
        gpu-a          3
        gpu-long-name  12         banned
        ");
    }

    #[test]
    fn control_characters_do_not_reach_the_terminal() {
        let mut table = Table::new(&["model"]);
        table.row(["a\x1b[2Jb\n"]);
        assert_eq!(table.draw(false), "MODEL\na\\u{1b}[2Jb\\n\n");
    }

    #[test]
    fn colour_does_not_move_columns() {
        let mut table = Table::new(&["a", "b"]);
        table.painted_row(vec![
            ("x".to_owned(), Paint::Red),
            ("y".to_owned(), Paint::Plain),
        ]);
        assert_eq!(
            table.draw(true),
            "\x1b[1mA\x1b[0m  \x1b[1mB\x1b[0m\n\x1b[31mx\x1b[0m  y\n"
        );
    }
}
