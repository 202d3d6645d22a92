// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Tables of text: words to the left, numbers to the right.

/// A table with a heading for each column.
#[derive(Debug)]
pub struct Table {
    rows: Vec<Vec<String>>,
}

impl Table {
    /// An empty table.
    pub fn new<S: Into<String>>(headings: impl IntoIterator<Item = S>) -> Table {
        Table { rows: vec![headings.into_iter().map(Into::into).collect()] }
    }

    /// Adds a row.
    pub fn row(&mut self, cells: impl IntoIterator<Item = String>) {
        self.rows.push(cells.into_iter().collect());
    }

    /// The lines of the table.
    pub fn text(&self) -> String {
        let columns = self.rows.iter().map(Vec::len).max().unwrap_or(0);
        let widths: Vec<usize> = (0..columns).map(|column| self.width(column)).collect();
        let right: Vec<bool> = (0..columns).map(|column| self.numbers(column)).collect();
        let lines = self.rows.iter().map(|row| {
            let cells = row.iter().enumerate().map(|(column, cell)| {
                let width = widths[column];
                if right[column] { format!("{cell:>width$}") } else { format!("{cell:<width$}") }
            });
            format!("{}\n", cells.collect::<Vec<_>>().join("  ").trim_end())
        });
        lines.collect()
    }

    fn width(&self, column: usize) -> usize {
        let cells = self.rows.iter().filter_map(|row| row.get(column));
        cells.map(|cell| cell.chars().count()).max().unwrap_or(0)
    }

    fn numbers(&self, column: usize) -> bool {
        let number =
            |cell: &String| cell == "-" || cell.starts_with(|first: char| first.is_ascii_digit());
        let mut cells = self.rows.iter().skip(1).filter_map(|row| row.get(column));
        self.rows.len() > 1 && cells.all(number)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn columns_are_as_wide_as_their_widest_cell() {
        let mut table = Table::new(["NAME", "FLOWS"]);
        table.row(["a".to_owned(), "7".to_owned()]);
        table.row(["longest".to_owned(), "123456".to_owned()]);
        assert_eq!(table.text(), "NAME      FLOWS\na             7\nlongest  123456\n");
        assert_eq!(Table::new(["A", "B"]).text(), "A  B\n");
    }
}
