//! Tables as CSV that a spreadsheet opens as text and numbers, never as formulas.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::{HttpResponse, HttpResponseBuilder};

use super::cell::Cell;
use super::problem::{Code, Problem};

/// Where a spreadsheet may split a cell that the comma does not end.
const SEPARATOR: char = ';';

/// A text as a spreadsheet shows it and does not carry it out: with an apostrophe before what may be a formula, also
/// behind a semicolon, at which many countries' spreadsheets split. What has such an apostrophe already gets another,
/// so that [`from_text`] finds each again.
pub(crate) fn as_text(text: &str) -> String {
    let guarded = |part: &str| {
        let guard = if is_formula(part.trim_start_matches('\'')) { "'" } else { "" };
        format!("{guard}{part}")
    };
    text.split_inclusive(SEPARATOR).map(guarded).collect()
}

/// The text that [`as_text`] has written.
pub(crate) fn from_text(written: &str) -> String {
    let bare = |part: &str| {
        let guarded = part.strip_prefix('\'');
        guarded.filter(|text| is_formula(text.trim_start_matches('\''))).unwrap_or(part).to_owned()
    };
    written.split_inclusive(SEPARATOR).map(bare).collect()
}

/// Whether a spreadsheet may take a text for a formula, by its first character, also in full width and after spaces.
fn is_formula(text: &str) -> bool {
    text.trim_start_matches(' ').starts_with(['=', '+', '-', '@', '\t', '\r', '\n', '＝', '＋', '－', '＠'])
}

fn written(cell: &Cell) -> String {
    match cell {
        Cell::Empty => String::new(),
        Cell::Text(text) => as_text(text),
        Cell::Number(text) => text.clone(),
    }
}

/// A table as the body of an answer, with the name of the file that it is saved as.
pub(super) fn answer(file: &str, header: &[&str], rows: &[Vec<Cell>]) -> Result<HttpResponse, Problem> {
    let table = lines(Some(header), rows).map_err(|fault| {
        tracing::error!(%fault, "a table could not be written");
        Problem::new(Code::Internal, "The service failed to answer; the fault has been logged.")
    })?;
    Ok(attached(file).body(table))
}

/// An answer that is saved as a file of this name, still without its table.
pub(super) fn attached(file: &str) -> HttpResponseBuilder {
    let mut answer = HttpResponse::Ok();
    answer
        .content_type("text/csv; charset=utf-8; header=present")
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{file}.csv\"")));
    answer
}

/// Lines of a table, under its header if that is given.
pub(super) fn lines(
    header: Option<&[&str]>,
    rows: &[Vec<Cell>],
) -> Result<Vec<u8>, Box<dyn std::error::Error>> {
    let mut writer = csv::WriterBuilder::new().terminator(csv::Terminator::CRLF).from_writer(Vec::new());
    if let Some(header) = header {
        writer.write_record(header)?;
    }
    for row in rows {
        writer.write_record(row.iter().map(written))?;
    }
    Ok(writer.into_inner()?)
}

/// Breaks off a file that is being sent, so that a client does not take the part for the whole.
pub(super) fn broken_off(fault: &(impl std::fmt::Display + ?Sized)) -> std::io::Error {
    tracing::error!(%fault, "an export is broken off");
    std::io::Error::other("an export is broken off")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spreadsheet_meets_text_and_numbers_and_no_formula() {
        let text = |text: &str| Cell::Text(text.to_owned());
        let rows = [
            vec![text("=HYPERLINK(\"http://x\")"), Cell::Number("-1.50".into())],
            vec![text("+1"), text("@SUM(A1)")],
            vec![text("-2"), text("＝1+1")],
            vec![text("\t=1"), text("\r=1")],
            vec![text("  =1"), text(" a")],
            vec![text("a, \"b\""), Cell::Empty],
            vec![text("1=1"), text("acme")],
            vec![text("a;=cmd|'/C calc'!A0"), text("a; '-1;b")],
        ];
        let table = String::from_utf8(lines(Some(&["name", "amount"]), &rows).unwrap()).unwrap();
        let expected = "name,amount\r\n\"'=HYPERLINK(\"\"http://x\"\")\",-1.50\r\n'+1,'@SUM(A1)\r\n'-2,'＝1+1\r\n\
            '\t=1,\"'\r=1\"\r\n'  =1, a\r\n\"a, \"\"b\"\"\",\r\n1=1,acme\r\na;'=cmd|'/C calc'!A0,a; '-1;b\r\n";
        assert_eq!(table, expected);
    }
}
