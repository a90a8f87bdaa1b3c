//! Tables as `kubectl get` prints them: columns as wide as they need to be, no lines, the last one open.

use std::fmt::Write as _;

use anstyle::Style;

/// Between two columns.
const GAP: usize = 2;

/// A cell: a text, and how it looks on a terminal.
#[derive(Debug, Clone, Default)]
pub struct Cell {
    text: String,
    style: Style,
}

impl Cell {
    /// A cell that looks like this on a terminal.
    pub fn styled(text: impl Into<String>, style: Style) -> Self {
        Self { text: text.into(), style }
    }
}

impl<T: Into<String>> From<T> for Cell {
    fn from(text: T) -> Self {
        Self { text: text.into(), style: Style::new() }
    }
}

/// Rows under a head.
#[derive(Debug)]
pub struct Table {
    head: Vec<&'static str>,
    rows: Vec<Vec<Cell>>,
}

impl Table {
    /// A table with these columns and no rows.
    pub fn new(head: impl IntoIterator<Item = &'static str>) -> Self {
        Self { head: head.into_iter().collect(), rows: Vec::new() }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// Whether there is no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The text, with escape codes for the styles.
    pub fn text(&self) -> String {
        let width = |column: usize| {
            let cells = self.rows.iter().filter_map(|row| row.get(column)).map(|cell| cell.text.chars().count());
            cells.chain(self.head.get(column).map(|head| head.len())).max().unwrap_or_default()
        };
        let widths: Vec<_> = (0..self.head.len()).map(width).collect();
        let head: Vec<Cell> = self.head.iter().map(|text| Cell::from(*text)).collect();
        let mut text = String::new();
        for row in std::iter::once(&head).chain(&self.rows) {
            let last = row.iter().rposition(|cell| !cell.text.is_empty()).unwrap_or_default();
            for (cell, width) in row.iter().take(last + 1).zip(&widths) {
                let padding = (width + GAP).saturating_sub(cell.text.chars().count());
                // Writing to a string cannot fail.
                let _ = write!(text, "{}{}{:#}", cell.style, cell.text, cell.style);
                // A format's width has 16 bits; a cell can be longer.
                text.push_str(&" ".repeat(padding));
            }
            text.truncate(text.trim_end_matches(' ').len());
            text.push('\n');
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cell_may_be_longer_than_a_format_can_pad() {
        let mut table = Table::new(["A", "B"]);
        table.row([Cell::from("a".repeat(70_000).as_str()), Cell::from("b")]);
        assert_eq!(table.text().lines().map(str::len).collect::<Vec<_>>(), [70_003, 70_003]);
    }

    #[test]
    fn columns_are_aligned_and_nothing_trails() {
        let mut table = Table::new(["NAME", "STATE", "AGE"]);
        table.row(["a-long-name".into(), Cell::styled("ok", crate::cli::output::GOOD), "1s".into()]);
        table.row(["b".into(), "behind".into(), "".into()]);
        let plain = anstream::adapter::strip_str(&table.text()).to_string();
        assert_eq!(plain, "NAME         STATE   AGE\na-long-name  ok      1s\nb            behind\n");
    }
}
