//! The rows of a bill, one after the other, from a CSV file of any length.
//!
//! The first row has the titles of the columns. Cells may be quoted, lines may end in CRLF, and the file may begin with
//! a byte order mark. What is not in a mapped column is not looked at.

use std::io::Read;

use csv::ByteRecord;
use rust_decimal::Decimal;
use uuid::Uuid;

use super::{BillTerms, Columns, UseReference};
use crate::domain::instant::Instant;

/// The most rows of a bill.
pub const ROWS_MAX: u64 = 5_000_000;

/// The most bytes of one row: a quote that is never closed would otherwise swallow the file.
const ROW_BYTES_MAX: usize = 256 * 1024;

/// The most characters of a reference.
const REFERENCE_CHARACTERS_MAX: usize = 255;

/// How many titles an answer repeats, and how many characters of each.
const TITLES_NAMED_MAX: usize = 30;
const TITLE_CHARACTERS_MAX: usize = 64;

/// A row of a bill.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BillRow {
    /// The line of the file on which it begins, from 1.
    pub line: u64,
    /// Whose work it was; empty where the bill does not say it.
    pub tenant: String,
    /// What it is for; empty for none.
    pub reference: String,
    /// In the meter's units; a credit is below zero.
    pub amount: Decimal,
    /// When the work was done (unix ms); 0 where the bill does not say it.
    pub at_ms: i64,
}

/// Why a bill cannot be read, or one of its rows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum BillFault {
    /// A mapped column is missing or comes twice: the parameter that names it, and what is wrong.
    Column(&'static str, String),
    /// One cell: its line, its column's title, and what is wrong.
    Cell(u64, String, String),
    /// One row as a whole: its line, and what is wrong.
    Row(u64, String),
    /// Nothing can be read from this line on, and why.
    Unreadable(u64, String),
    /// It has more than [`ROWS_MAX`] rows.
    TooManyRows,
    /// The file ended before its end, or could not be read.
    BrokenOff,
}

impl BillFault {
    /// Whether later rows can still be read.
    pub fn is_of_one_row(&self) -> bool {
        matches!(self, Self::Cell(..) | Self::Row(..))
    }
}

/// Counts what is read of one row.
struct Bounded<R> {
    inner: R,
    row_bytes: usize,
    has_begun: bool,
}

/// A byte order mark and a byte after it: the parser takes a mark alone for the end.
const FIRST_BYTES: usize = 4;

/// The words of an error that says that a row is too long.
const TOO_LONG: &str = "the row is too long";

impl<R: Read> Read for Bounded<R> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        if self.row_bytes > ROW_BYTES_MAX {
            return Err(std::io::Error::other(TOO_LONG));
        }
        let mut count = self.inner.read(into)?;
        // The parser strips a byte order mark only if it sees all of it at once.
        while !self.has_begun && (1..FIRST_BYTES.min(into.len())).contains(&count) {
            match self.inner.read(&mut into[count..])? {
                0 => break,
                more => count += more,
            }
        }
        self.has_begun = true;
        self.row_bytes += count;
        Ok(count)
    }
}

/// The places of the mapped columns in a row.
struct Places {
    amount: usize,
    reference: Option<usize>,
    time: Option<usize>,
    tenant: Option<usize>,
}

/// Reads a bill row by row.
pub struct BillReader<R> {
    rows: csv::Reader<Bounded<R>>,
    columns: Columns,
    has_ids: bool,
    places: Places,
    width: usize,
    record: ByteRecord,
    count: u64,
}

impl<R: Read> BillReader<R> {
    /// Reads the titles.
    ///
    /// Errors: a mapped column is not there, or comes twice.
    pub fn new(file: R, terms: &BillTerms) -> Result<Self, BillFault> {
        let bounded = Bounded { inner: file, row_bytes: 0, has_begun: false };
        let mut rows = csv::ReaderBuilder::new()
            .has_headers(false)
            .flexible(true)
            .delimiter(terms.delimiter)
            // A return before it is cut off each cell: as part of the end of a row it would not count the line.
            .terminator(csv::Terminator::Any(b'\n'))
            .from_reader(bounded);
        let mut record = ByteRecord::new();
        if !rows.read_byte_record(&mut record).map_err(|error| unreadable(&error, 1))? {
            return Err(BillFault::Unreadable(
                1,
                "the bill is empty: its first row has the titles of its columns".into(),
            ));
        }
        let mut titles = Vec::new();
        for (number, title) in (1..).zip(&record) {
            let title = std::str::from_utf8(title);
            let title = title.map_err(|_| BillFault::Unreadable(1, "the titles are not UTF-8".into()))?;
            if title.contains('\0') {
                // As in UTF-16, where each ASCII character comes with a zero byte.
                let why = format!("the title of column {number} has a zero byte: the bill must be in UTF-8");
                return Err(BillFault::Unreadable(1, why));
            }
            titles.push(title.trim_start_matches('\u{feff}').trim().to_owned());
        }
        let columns = terms.columns.clone();
        let place = |parameter, title: &String| place(&titles, parameter, title);
        let places = Places {
            amount: place("amount_column", &columns.amount)?,
            reference: columns
                .reference
                .as_ref()
                .map(|title| place("reference_column", title))
                .transpose()?,
            time: columns.time.as_ref().map(|title| place("time_column", title)).transpose()?,
            tenant: columns.tenant.as_ref().map(|title| place("tenant_column", title)).transpose()?,
        };
        let has_ids = terms.reference == UseReference::Reservation;
        Ok(Self { rows, columns, has_ids, places, width: titles.len(), record, count: 0 })
    }

    /// How many rows were read so far.
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The next row; none at the end.
    ///
    /// Errors: the row cannot be read; where [`BillFault::is_of_one_row`], the next one can be.
    pub fn next_row(&mut self) -> Result<Option<BillRow>, BillFault> {
        let line = loop {
            self.rows.get_mut().row_bytes = 0;
            let begins = self.rows.position().line();
            let read = self.rows.read_byte_record(&mut self.record);
            let line = self.record.position().map_or(begins, csv::Position::line);
            if !read.map_err(|error| unreadable(&error, begins))? {
                return Ok(None);
            }
            if !self.is_blank() {
                break line;
            }
        };
        self.count += 1;
        if self.count > ROWS_MAX {
            return Err(BillFault::TooManyRows);
        }
        if self.record.len() != self.width {
            let (has, wants) = (self.record.len(), self.width);
            return Err(BillFault::Row(
                line,
                format!("has {has} cells, and the first row has {wants} titles"),
            ));
        }
        self.row(line).map(Some)
    }

    /// Whether the row is an empty line that ends in a return.
    fn is_blank(&self) -> bool {
        self.width > 1 && self.record.len() == 1 && self.record[0].trim_ascii().is_empty()
    }

    fn row(&self, line: u64) -> Result<BillRow, BillFault> {
        let Places { amount, reference, time, tenant } = &self.places;
        let name = |column: &Option<String>| column.clone().unwrap_or_default();
        let fault = |title: String, why: &str| BillFault::Cell(line, title, why.to_owned());
        let text = |place: usize, title: String| {
            let cell = std::str::from_utf8(self.record.get(place).unwrap_or_default());
            cell.map(str::trim).map_err(|_| fault(title, "is not UTF-8"))
        };
        let optional = |place: &Option<usize>, title: &Option<String>| match place {
            Some(place) => text(*place, name(title)),
            None => Ok(""),
        };
        let named = |place: &Option<usize>, title: &Option<String>| {
            let cell = optional(place, title)?;
            check_name(cell).map_err(|why| fault(name(title), why)).map(|()| cell.to_owned())
        };
        let written = text(*amount, self.columns.amount.clone())?;
        let at = optional(time, &self.columns.time)?;
        Ok(BillRow {
            line,
            tenant: named(tenant, &self.columns.tenant)?,
            reference: self.reference(named(reference, &self.columns.reference)?),
            amount: read_amount(written).map_err(|why| fault(self.columns.amount.clone(), why))?,
            at_ms: match time {
                Some(_) => read_time(at).map_err(|why| fault(name(&self.columns.time), why))?,
                None => 0,
            },
        })
    }
}

impl<R> BillReader<R> {
    /// An id in whatever form is written as the service writes it.
    fn reference(&self, cell: String) -> String {
        match Uuid::try_parse(&cell) {
            Ok(id) if self.has_ids => id.to_string(),
            _ => cell,
        }
    }
}

fn place(titles: &[String], parameter: &'static str, title: &str) -> Result<usize, BillFault> {
    let mut found = titles.iter().enumerate().filter(|(_, has)| *has == title).map(|(place, _)| place);
    match (found.next(), found.next()) {
        (Some(place), None) => Ok(place),
        (Some(_), Some(_)) => {
            Err(BillFault::Column(parameter, format!("the bill has two columns `{title}`")))
        }
        (None, _) => {
            let begin = |title: &String| title.chars().take(TITLE_CHARACTERS_MAX).collect::<String>();
            let named: Vec<_> =
                titles.iter().take(TITLES_NAMED_MAX).map(|title| format!("`{}`", begin(title))).collect();
            let why = format!("the bill has no column `{title}`; it has {}", named.join(", "));
            Err(BillFault::Column(parameter, why))
        }
    }
}

fn unreadable(error: &csv::Error, line: u64) -> BillFault {
    match error.kind() {
        csv::ErrorKind::Io(cause) if cause.to_string() == TOO_LONG => BillFault::Unreadable(
            line,
            format!("is longer than {ROW_BYTES_MAX} bytes; is a quote never closed?"),
        ),
        _ => BillFault::BrokenOff,
    }
}

fn check_name(cell: &str) -> Result<(), &'static str> {
    if cell.chars().count() > REFERENCE_CHARACTERS_MAX {
        return Err("is longer than 255 characters");
    }
    if cell.chars().any(char::is_control) { Err("has a control character") } else { Ok(()) }
}

/// A decimal number as people and programs write it: digits, a point before decimals, a minus before a credit.
fn read_amount(cell: &str) -> Result<Decimal, &'static str> {
    const SHAPE: &str = "must be a number such as 12 or -0.5: digits, and a point before decimals";
    let digits = cell.strip_prefix('-').unwrap_or(cell);
    let (whole, fraction) = digits.split_once('.').unwrap_or((digits, "0"));
    let are_digits = |text: &str| !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    if !are_digits(whole) || !are_digits(fraction) {
        return Err(SHAPE);
    }
    let (whole, fraction) = (whole.trim_start_matches('0'), fraction.trim_end_matches('0'));
    if whole.len() > 12 || fraction.len() > 9 {
        return Err("must have at most 12 digits before and 9 after the point");
    }
    let amount = Decimal::from_str_exact(&format!("0{whole}.{fraction}0")).map_err(|_| SHAPE)?.normalize();
    Ok(if cell.starts_with('-') && !amount.is_zero() { -amount } else { amount })
}

fn read_time(cell: &str) -> Result<i64, &'static str> {
    let at_ms = Instant::ms_within(cell).filter(|at_ms| *at_ms > 0);
    at_ms.ok_or("must be an RFC 3339 time such as 2027-01-31T00:00:00Z")
}
