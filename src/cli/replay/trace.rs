//! The trace: one row per model call, read as a stream so that its size does not matter.

use std::fs::File;
use std::path::{Path, PathBuf};

use jiff::Timestamp;
use jiff::civil::DateTime;
use jiff::tz::TimeZone;

use crate::cli::failure::{Exit, Failure};

const COLUMNS: [&str; 3] = ["TIMESTAMP", "ContextTokens", "GeneratedTokens"];
/// More tokens than any call has; keeps every sum of a trace inside 64 bits.
const TOKENS_MAX: u64 = 1_000_000_000;

/// One call of the trace.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Row {
    /// Its number, from 1; the header does not count.
    pub number: u64,
    /// When it was made, in microseconds (UTC if the trace names no zone).
    pub at_us: i64,
    /// Its input tokens.
    pub input_tokens: u64,
    /// Its output tokens.
    pub output_tokens: u64,
}

/// What a whole trace amounts to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TraceFacts {
    /// How many rows it has.
    pub rows: u64,
    /// The sum of their input tokens.
    pub input_tokens: u64,
    /// The sum of their output tokens.
    pub output_tokens: u64,
    /// When the first call was made, in microseconds.
    pub first_us: i64,
    /// A hash of the file's content, which identifies the trace under any file name.
    pub hash: [u8; 32],
}

impl TraceFacts {
    /// Reads the whole file once; the first row that is wrong is named with its line.
    pub fn survey(path: &Path) -> Result<Self, Failure> {
        let mut hasher = blake3::Hasher::new();
        hasher.update_reader(open(path)?).map_err(|error| unreadable(path, &error))?;
        let mut facts = Self {
            rows: 0,
            input_tokens: 0,
            output_tokens: 0,
            first_us: 0,
            hash: *hasher.finalize().as_bytes(),
        };
        for row in Trace::open(path)? {
            let row = row?;
            if facts.rows == 0 {
                facts.first_us = row.at_us;
            }
            facts.rows += 1;
            facts.input_tokens += row.input_tokens;
            facts.output_tokens += row.output_tokens;
        }
        if facts.rows == 0 {
            return Err(Failure::new(format!("{} has no rows below its header", path.display())));
        }
        Ok(facts)
    }
}

/// The rows of a file, one after the other.
pub struct Trace {
    path: PathBuf,
    reader: csv::Reader<File>,
    record: csv::StringRecord,
    places: [usize; 3],
    number: u64,
}

impl Trace {
    /// Opens a file and checks its header: the three columns in any order, and no other.
    pub fn open(path: &Path) -> Result<Self, Failure> {
        let mut reader = csv::ReaderBuilder::new().trim(csv::Trim::All).from_reader(open(path)?);
        let header = reader.headers().map_err(|error| unreadable(path, &error))?.clone();
        let place =
            |name: &str| header.iter().position(|column| column.trim_start_matches('\u{feff}') == name);
        match COLUMNS.map(place) {
            [Some(timestamp), Some(input), Some(output)] if header.len() == COLUMNS.len() => Ok(Self {
                path: path.to_owned(),
                reader,
                record: csv::StringRecord::new(),
                places: [timestamp, input, output],
                number: 0,
            }),
            _ => Err(Failure::new(format!(
                "{} line 1: the header is `{}`",
                path.display(),
                header.iter().collect::<Vec<_>>().join(",")
            ))
            .remedy(format!("the columns must be {}", COLUMNS.join(",")))),
        }
    }

    fn parse(&self) -> Result<Row, Failure> {
        let [timestamp, input, output] = self.places.map(|place| self.record.get(place).unwrap_or_default());
        Ok(Row {
            number: self.number,
            at_us: instant_us(timestamp).ok_or_else(|| {
                self.wrong(COLUMNS[0], timestamp, "must be a time like 2023-11-16 18:17:03.9799600")
            })?,
            input_tokens: tokens(input).ok_or_else(|| self.wrong(COLUMNS[1], input, TOKENS_RULE))?,
            output_tokens: tokens(output).ok_or_else(|| self.wrong(COLUMNS[2], output, TOKENS_RULE))?,
        })
    }

    fn wrong(&self, column: &str, text: &str, rule: &str) -> Failure {
        let line = self.record.position().map_or(0, csv::Position::line);
        Failure::new(format!("{} line {line}: {column} is `{text}`; it {rule}", self.path.display()))
            .exit(Exit::Failure)
            .remedy("correct the line; nothing of the file was sent")
    }
}

impl Iterator for Trace {
    type Item = Result<Row, Failure>;

    fn next(&mut self) -> Option<Self::Item> {
        match self.reader.read_record(&mut self.record) {
            Ok(false) => None,
            Ok(true) => {
                self.number += 1;
                Some(self.parse())
            }
            Err(error) => Some(Err(unreadable(&self.path, &error))),
        }
    }
}

const TOKENS_RULE: &str = "must be a whole number from 0 to 1000000000";

fn tokens(text: &str) -> Option<u64> {
    let is_plain = !text.is_empty() && text.bytes().all(|b| b.is_ascii_digit());
    let tokens = text.parse().ok().filter(|_| is_plain)?;
    (tokens <= TOKENS_MAX).then_some(tokens)
}

fn instant_us(text: &str) -> Option<i64> {
    if let Ok(instant) = text.parse::<Timestamp>() {
        return Some(instant.as_microsecond());
    }
    let local: DateTime = text.parse().ok()?;
    local.to_zoned(TimeZone::UTC).ok().map(|zoned| zoned.timestamp().as_microsecond())
}

fn open(path: &Path) -> Result<File, Failure> {
    File::open(path).map_err(|error| unreadable(path, &error))
}

fn unreadable(path: &Path, error: &dyn std::fmt::Display) -> Failure {
    Failure::new(format!("{} cannot be read: {error}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn trace(text: &str) -> Result<TraceFacts, Failure> {
        let file = tempfile::NamedTempFile::new().unwrap();
        std::fs::write(file.path(), text).unwrap();
        TraceFacts::survey(file.path())
    }

    #[test]
    fn a_trace_is_summed_exactly() {
        let facts = trace(
            "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03.9799600,4808,10\n2023-11-16T18:17:04Z,0,0\n",
        )
        .unwrap();
        assert_eq!((facts.rows, facts.input_tokens, facts.output_tokens), (2, 4808, 10));
        assert_eq!(facts.first_us, 1_700_158_623_979_960);
    }

    #[test]
    fn columns_may_stand_in_any_order_but_no_other_may_be_there() {
        assert_eq!(
            trace("GeneratedTokens,TIMESTAMP,ContextTokens\n1,2023-11-16 18:17:03,2\n")
                .unwrap()
                .output_tokens,
            1
        );
        for header in ["TIMESTAMP,ContextTokens", "TIMESTAMP,ContextTokens,GeneratedTokens,User", "a,b,c", ""]
        {
            let failure = trace(&format!("{header}\n")).unwrap_err();
            assert!(failure.message.contains("line 1"), "{header:?}: {failure}");
        }
    }

    #[test]
    fn a_wrong_row_is_named_by_its_line() {
        for (row, column) in [
            ("yesterday,1,1", "TIMESTAMP"),
            ("2023-11-16 18:17:03,-1,1", "ContextTokens"),
            ("2023-11-16 18:17:03,1,1.5", "GeneratedTokens"),
            ("2023-11-16 18:17:03,1,", "GeneratedTokens"),
            ("2023-11-16 18:17:03,1,+1", "GeneratedTokens"),
            ("2023-11-16 18:17:03,99999999999,1", "ContextTokens"),
        ] {
            let text = format!("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n{row}\n");
            let failure = trace(&text).unwrap_err();
            assert!(
                failure.message.contains("line 3") && failure.message.contains(column),
                "{row}: {failure}"
            );
        }
        let ragged = trace("TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1\n").unwrap_err();
        assert!(ragged.message.contains("line: 2"), "{ragged}");
    }

    #[test]
    fn an_empty_trace_is_refused() {
        assert!(trace("TIMESTAMP,ContextTokens,GeneratedTokens\n").is_err());
    }

    #[test]
    fn the_same_content_is_the_same_trace() {
        let text = "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:17:03,1,1\n";
        assert_eq!(trace(text).unwrap(), trace(text).unwrap());
        assert_ne!(trace(text).unwrap().hash, trace(&text.replace(",1,1", ",1,2")).unwrap().hash);
    }
}
