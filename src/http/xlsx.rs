//! Workbooks that spreadsheets open with every digit and without formulas.

use actix_web::http::header::CONTENT_DISPOSITION;
use actix_web::{HttpResponse, web};
use rust_decimal::Decimal;
use rust_xlsxwriter::{DocProperties, ExcelDateTime, Format, Workbook, Worksheet, XlsxError};

use super::cell::Cell;
use super::problem::{Code, Problem};

const WORKBOOK: &str = "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet";

/// A float keeps every decimal number of so many digits, and a spreadsheet shows no more.
const EXACT_DIGITS: u32 = 15;

/// The most characters of a cell, counted as spreadsheets do, in UTF-16.
const CELL_MAX: usize = 32_767;

/// One sheet of a workbook.
pub(super) struct Sheet {
    /// Its name, at most 31 characters.
    pub(super) name: &'static str,
    /// The titles of its columns.
    pub(super) header: Vec<&'static str>,
    /// Its rows.
    pub(super) rows: Vec<Vec<Cell>>,
}

/// A workbook as the body of an answer, with the name of the file that it is saved as. It says that it was made at
/// `as_of_ms` (unix ms); now, if that is absent.
pub(super) fn answer(
    file: &str,
    as_of_ms: impl Into<Option<i64>>,
    sheets: &[Sheet],
) -> Result<HttpResponse, Problem> {
    let body = workbook(as_of_ms.into(), sheets).map_err(|fault| failed(&fault))?;
    Ok(attached(file, body))
}

/// The most rows of a sheet under its header.
const ROWS_MAX: u32 = 1_048_575;
/// Columns are as wide as their longest cell in the first rows, in characters within these bounds.
const WIDTHS: (usize, usize) = (8, 60);

/// A workbook of one sheet that is written to a temporary file as its rows come: it holds a page of them in memory.
pub(super) struct LongSheet {
    workbook: Workbook,
    rows: u32,
}

impl LongSheet {
    /// A sheet with this name, at most 31 characters, and these columns; it says when its figures were read (unix ms).
    pub(super) fn begin(
        name: &'static str,
        header: &[&'static str],
        as_of_ms: Option<i64>,
    ) -> Result<Self, Problem> {
        let begin = || -> Result<_, XlsxError> {
            let mut workbook = Workbook::new();
            made_at(&mut workbook, as_of_ms)?;
            let worksheet = workbook.add_worksheet_with_constant_memory()?;
            worksheet.set_name(name)?;
            write_header(worksheet, header)?;
            Ok(workbook)
        };
        Ok(Self { workbook: begin().map_err(|fault| failed(&fault))?, rows: 0 })
    }

    /// Adds rows, on a thread of its own.
    ///
    /// Errors: there are more than a sheet takes.
    pub(super) async fn add(mut self, rows: Vec<Vec<Cell>>) -> Result<Self, Problem> {
        let count = u32::try_from(rows.len()).unwrap_or(u32::MAX);
        if count > ROWS_MAX - self.rows {
            let message =
                format!("has at most {ROWS_MAX} rows in a workbook; narrow the filters, or take `csv`");
            return Err(Problem::parameter("format", message));
        }
        let written = web::block(move || {
            let worksheet = self.workbook.worksheet_from_index(0)?;
            if self.rows == 0 {
                fit(worksheet, &rows)?;
            }
            for (row, cells) in (self.rows + 1..).zip(&rows) {
                write_row(worksheet, row, cells)?;
            }
            self.rows += count;
            Ok::<_, XlsxError>(self)
        });
        written.await.map_err(|fault| failed(&fault))?.map_err(|fault| failed(&fault))
    }

    /// The workbook as the body of an answer, with the name of the file that it is saved as.
    pub(super) async fn answer(mut self, file: &str) -> Result<HttpResponse, Problem> {
        let saved =
            web::block(move || self.workbook.save_to_buffer()).await.map_err(|fault| failed(&fault))?;
        Ok(attached(file, saved.map_err(|fault| failed(&fault))?))
    }
}

fn fit(worksheet: &mut Worksheet, rows: &[Vec<Cell>]) -> Result<(), XlsxError> {
    for column in 0..rows.first().map_or(0, Vec::len) {
        let length = |row: &Vec<Cell>| match row.get(column) {
            Some(Cell::Text(text) | Cell::Number(text)) => text.chars().count(),
            _ => 0,
        };
        let longest = rows.iter().map(length).max().unwrap_or_default() + 2;
        let width = u32::try_from(longest.clamp(WIDTHS.0, WIDTHS.1)).unwrap_or_default();
        worksheet.set_column_width(u16::try_from(column).unwrap_or(u16::MAX), width)?;
    }
    Ok(())
}

fn attached(file: &str, body: Vec<u8>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(WORKBOOK)
        .insert_header((CONTENT_DISPOSITION, format!("attachment; filename=\"{file}.xlsx\"")))
        .body(body)
}

fn failed(fault: &dyn std::error::Error) -> Problem {
    tracing::error!(%fault, "a workbook could not be written");
    Problem::new(Code::Internal, "The service failed to answer; the fault has been logged.")
}

fn workbook(as_of_ms: Option<i64>, sheets: &[Sheet]) -> Result<Vec<u8>, XlsxError> {
    let mut workbook = Workbook::new();
    made_at(&mut workbook, as_of_ms)?;
    for sheet in sheets {
        write(workbook.add_worksheet(), sheet)?;
    }
    workbook.save_to_buffer()
}

fn made_at(workbook: &mut Workbook, as_of_ms: Option<i64>) -> Result<(), XlsxError> {
    if let Some(as_of_ms) = as_of_ms {
        let made_at = ExcelDateTime::from_timestamp(as_of_ms.div_euclid(1_000))?;
        workbook.set_properties(&DocProperties::new().set_creation_datetime(&made_at));
    }
    Ok(())
}

fn write(worksheet: &mut Worksheet, sheet: &Sheet) -> Result<(), XlsxError> {
    worksheet.set_name(sheet.name)?;
    write_header(worksheet, &sheet.header)?;
    for (row, cells) in (1..).zip(&sheet.rows) {
        write_row(worksheet, row, cells)?;
    }
    worksheet.autofit();
    Ok(())
}

/// Writes the titles, which stay in sight on the screen and on each page on paper.
fn write_header(worksheet: &mut Worksheet, header: &[&str]) -> Result<(), XlsxError> {
    let title = Format::new().set_bold();
    for (column, name) in (0..).zip(header) {
        worksheet.write_string_with_format(0, column, *name, &title)?;
    }
    worksheet.set_freeze_panes(1, 0)?.set_repeat_rows(0, 0)?.set_landscape().set_print_fit_to_pages(1, 0);
    Ok(())
}

fn write_row(worksheet: &mut Worksheet, row: u32, cells: &[Cell]) -> Result<(), XlsxError> {
    for (column, cell) in (0..).zip(cells) {
        match cell {
            Cell::Empty => {}
            Cell::Text(text) => {
                worksheet.write_string(row, column, fitting(text))?;
            }
            Cell::Number(number) => write_number(worksheet, row, column, number)?,
        }
    }
    Ok(())
}

/// The text as far as it fits a cell, with an ellipsis where it is cut.
fn fitting(text: &str) -> String {
    if text.encode_utf16().count() <= CELL_MAX {
        return text.to_owned();
    }
    let mut left = CELL_MAX - 1;
    let fits = |character: &char| {
        left = left.saturating_sub(character.len_utf16());
        left > 0
    };
    text.chars().take_while(fits).chain(['…']).collect()
}

/// Writes a number with all its decimals; as text, where a float would change it.
fn write_number(worksheet: &mut Worksheet, row: u32, column: u16, number: &str) -> Result<(), XlsxError> {
    match float(number) {
        Some(float) => {
            let decimals = number.split_once('.').map_or("", |(_, decimals)| decimals);
            let shown =
                if decimals.is_empty() { "0".into() } else { format!("0.{}", "0".repeat(decimals.len())) };
            worksheet.write_number_with_format(row, column, float, &Format::new().set_num_format(shown))?;
        }
        None => {
            let right = Format::new().set_align(rust_xlsxwriter::FormatAlign::Right);
            worksheet.write_string_with_format(row, column, number, &right)?;
        }
    }
    Ok(())
}

/// The float that stands for exactly this number and no other of as many digits.
fn float(number: &str) -> Option<f64> {
    let mantissa = number.parse::<Decimal>().ok()?.normalize().mantissa();
    if mantissa.unsigned_abs() < 10_u128.pow(EXACT_DIGITS) { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use calamine::{Data, Reader, Xlsx};

    use super::*;

    fn read(cells: Vec<Cell>) -> Vec<Data> {
        let count = cells.len();
        let sheet = Sheet { name: "Lines", header: vec!["a"; count], rows: vec![cells] };
        let bytes = workbook(Some(0), &[sheet]).unwrap();
        let mut book = Xlsx::new(Cursor::new(bytes)).unwrap();
        let formulas = book.worksheet_formula("Lines").unwrap();
        assert!(formulas.used_cells().all(|(_, _, formula)| formula.is_empty()), "{formulas:?}");
        book.worksheet_range("Lines").unwrap().rows().nth(1).unwrap().to_vec()
    }

    #[test]
    fn a_workbook_holds_texts_as_texts_and_no_formula() {
        let texts = [
            "=HYPERLINK(\"http://x\")",
            "{=1+1}",
            "+1",
            "@SUM(A1)",
            "-2",
            "\t=1",
            "http://x",
            "007",
            "<a>&\"'",
        ];
        let cells = texts.iter().map(|text| Cell::text(Some(text))).collect();
        let expected: Vec<_> = texts.iter().map(|text| Data::String((*text).to_owned())).collect();
        assert_eq!(read(cells), expected);
    }

    #[test]
    fn a_text_that_is_too_long_for_a_cell_ends_with_an_ellipsis() {
        let most = "ab".repeat(16_383) + "c";
        for (text, is_whole) in
            [(most.clone(), true), (most.clone() + "d", false), ("😀".repeat(16_384), false)]
        {
            let [Data::String(found)] = &read(vec![Cell::text(Some(&text))])[..] else { panic!("{text}") };
            let kept = found.trim_end_matches('…');
            assert!(text.starts_with(kept) && kept.encode_utf16().count() > 32_760, "{}", kept.len());
            assert_eq!((kept == text, found.ends_with('…')), (is_whole, !is_whole));
        }
    }

    #[test]
    fn a_number_stays_a_number_where_no_digit_is_lost() {
        let exact = ["0", "27.50", "-1.05", "0.000001", "999999999999.999", "9999999999999.99"];
        let lost = [
            "1000000000000000000",
            "1234567890123456",
            "92233720368547758.07",
            "-9007199254740993",
            "0.1234567890123456",
        ];
        let cells = exact.iter().chain(&lost).map(|number| Cell::number(Some(number))).collect();
        let found = read(cells);
        for (number, cell) in exact.iter().zip(&found) {
            let Data::Float(float) = cell else { panic!("{number} became {cell:?}") };
            let written: Decimal = float.to_string().parse().unwrap();
            assert_eq!(written, number.parse().unwrap());
        }
        let texts: Vec<_> = lost.iter().map(|number| Data::String((*number).to_owned())).collect();
        assert_eq!(found[exact.len()..], texts);
    }

    #[tokio::test]
    async fn a_sheet_takes_no_more_rows_than_spreadsheets_show() {
        let row = || vec![Cell::text(Some("=1+1"))];
        let mut sheet = LongSheet::begin("Rows", &["a"], None).unwrap();
        sheet.rows = ROWS_MAX - 1;
        let sheet = sheet.add(vec![row()]).await.unwrap();
        let Err(refused) = sheet.add(vec![row()]).await else { panic!("a row too many is taken") };
        assert!(refused.to_string().contains("1048575"), "{refused}");
    }
}
