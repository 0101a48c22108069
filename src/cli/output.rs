//! What commands print: one table for people, JSON and CSV for scripts.

use std::io::{self, Write};

use comfy_table::presets::NOTHING;
use comfy_table::{CellAlignment, LineStyle};

use super::failure::Failure;
use crate::http::as_text;

/// How results are printed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Aligned columns for people.
    Table,
    /// An array of objects; several tables are an object of arrays.
    Json,
    /// Comma-separated with a header; several tables are separated by an empty line.
    Csv,
}

/// Rows under named columns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Table {
    columns: Vec<(String, Kind)>,
    rows: Vec<Vec<String>>,
}

/// What the cells of a column hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Text,
    /// Counts and times: numbers in JSON.
    Number,
    /// Units of a meter, exact decimals: texts in JSON, as everywhere in the API.
    Amount,
    /// Numbers in JSON if they parse as numbers, otherwise texts.
    Any,
    /// The same, and null for an empty cell.
    Optional,
}

impl Kind {
    fn json(self, cell: &str) -> serde_json::Value {
        let number = || serde_json::from_str::<serde_json::Number>(cell).ok().map(serde_json::Value::Number);
        match self {
            Self::Optional if cell.is_empty() => serde_json::Value::Null,
            Self::Number | Self::Any | Self::Optional => number().unwrap_or_else(|| cell.into()),
            Self::Text | Self::Amount => cell.into(),
        }
    }

    /// Words never become a formula of a spreadsheet.
    fn csv(self, cell: &str) -> String {
        match self {
            Self::Number | Self::Amount => cell.to_owned(),
            Self::Any | Self::Optional if serde_json::from_str::<serde_json::Number>(cell).is_ok() => {
                cell.to_owned()
            }
            Self::Text | Self::Any | Self::Optional => as_text(cell),
        }
    }
}

impl Table {
    /// An empty table. A column whose name starts with `>` holds numbers, with `=` amounts, with `~` either numbers or
    /// texts, with `?` either or nothing; numbers and amounts are aligned to the right.
    pub fn new(columns: &[impl AsRef<str>]) -> Self {
        let column = |name: &str| {
            let kinds = [('>', Kind::Number), ('=', Kind::Amount), ('~', Kind::Any), ('?', Kind::Optional)];
            let marked = kinds.into_iter().find_map(|(mark, kind)| Some((name.strip_prefix(mark)?, kind)));
            let (name, kind) = marked.unwrap_or((name, Kind::Text));
            (name.to_owned(), kind)
        };
        Self { columns: columns.iter().map(|name| column(name.as_ref())).collect(), rows: Vec::new() }
    }

    /// Appends a row: a cell for each column, in their order.
    pub fn row<Cell: ToString>(&mut self, cells: impl IntoIterator<Item = Cell>) {
        self.rows.push(cells.into_iter().map(|cell| cell.to_string()).collect());
    }

    /// Whether it has no row.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// As text in the given format, ending with a line break.
    pub fn render(&self, format: Format) -> Result<String, Failure> {
        match format {
            Format::Table => Ok(self.aligned()),
            Format::Json => pretty(&self.json()),
            Format::Csv => self.csv(),
        }
    }

    fn aligned(&self) -> String {
        let mut table = comfy_table::Table::new();
        table.load_style(NOTHING.header_separator(LineStyle::none().fill('-').junction('-')));
        table.set_header(self.columns.iter().map(|(name, _)| name.as_str()));
        table.add_rows(&self.rows);
        for (index, (_, kind)) in self.columns.iter().enumerate() {
            if let Some(column) = table.column_mut(index) {
                column.set_padding((0, 1));
                if matches!(kind, Kind::Number | Kind::Amount) {
                    column.set_cell_alignment(CellAlignment::Right);
                }
            }
        }
        table.trim_fmt() + "\n"
    }

    fn json(&self) -> serde_json::Value {
        let object = |row: &Vec<String>| {
            let fields = self.columns.iter().zip(row);
            fields.map(|((name, kind), cell)| (name.replace(' ', "_"), kind.json(cell))).collect()
        };
        serde_json::Value::Array(self.rows.iter().map(object).map(serde_json::Value::Object).collect())
    }

    fn csv(&self) -> Result<String, Failure> {
        let mut writer = csv::Writer::from_writer(Vec::new());
        let header = self.columns.iter().map(|(name, _)| name.replace(' ', "_"));
        let failed = |error: csv::Error| Failure::new(format!("the table cannot be written as CSV: {error}"));
        writer.write_record(header).map_err(failed)?;
        let written = |row: &Vec<String>| {
            let cells = self.columns.iter().zip(row);
            cells.map(|((_, kind), cell)| kind.csv(cell)).collect::<Vec<_>>()
        };
        self.rows.iter().try_for_each(|row| writer.write_record(written(row))).map_err(failed)?;
        let bytes = writer.into_inner().map_err(|error| Failure::new(error.to_string()))?;
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }
}

/// A table with a name, if a command prints several.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Section {
    /// Its name: one lower-case word.
    pub name: &'static str,
    /// Its rows.
    pub table: Table,
}

impl Section {
    /// All sections as text in the given format, ending with a line break.
    pub fn render(sections: &[Self], format: Format) -> Result<String, Failure> {
        match format {
            Format::Json => {
                let fields = sections.iter().map(|section| (section.name.to_owned(), section.table.json()));
                pretty(&serde_json::Value::Object(fields.collect()))
            }
            Format::Table | Format::Csv => {
                let texts: Result<Vec<_>, _> =
                    sections.iter().map(|section| section.table.render(format)).collect();
                Ok(texts?.join("\n"))
            }
        }
    }
}

/// JSON for people and scripts alike, ending with a line break.
pub(super) fn pretty(value: &serde_json::Value) -> Result<String, Failure> {
    let text = serde_json::to_string_pretty(value)
        .map_err(|error| Failure::new(format!("the answer cannot be written as JSON: {error}")))?;
    Ok(text + "\n")
}

/// Prints to standard output; a reader that has gone away is no failure.
pub(super) fn print(text: &str) -> Result<(), Failure> {
    print_bytes(text.as_bytes())
}

/// The same of a part of a file.
pub(super) fn print_bytes(bytes: &[u8]) -> Result<(), Failure> {
    let mut out = io::stdout().lock();
    match out.write_all(bytes).and_then(|()| out.flush()) {
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        other => other.map_err(|error| Failure::new(format!("standard output cannot be written: {error}"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_in_a_file_are_no_formula_and_amounts_keep_their_sign() {
        let mut table = Table::new(&["reason", "=amount", "~figure"]);
        table.row(["=HYPERLINK(1)", "-1.5", "-2"]);
        table.row(["plain", "1", "@SUM(A1)"]);
        let expected = "reason,amount,figure\n'=HYPERLINK(1),-1.5,-2\nplain,1,'@SUM(A1)\n";
        assert_eq!(table.render(Format::Csv).unwrap(), expected);
        assert_eq!(table.json()[0]["reason"], "=HYPERLINK(1)", "only a spreadsheet would carry it out");
    }
}
