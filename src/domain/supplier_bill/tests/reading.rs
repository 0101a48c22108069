//! How a bill is read.

use proptest::prelude::*;
use rstest::rstest;

use super::{by_reference, decimal, tolerance};
use crate::domain::supplier_bill::BillTerms;
use crate::domain::supplier_bill::reading::{BillFault, BillReader, BillRow};

/// The rows of a file, or the faults.
fn read(file: &[u8], terms: &BillTerms) -> (Vec<BillRow>, Vec<BillFault>) {
    let (mut rows, mut faults) = (Vec::new(), Vec::new());
    let mut reader = match BillReader::new(file, terms) {
        Ok(reader) => reader,
        Err(fault) => return (rows, vec![fault]),
    };
    loop {
        match reader.next_row() {
            Ok(Some(row)) => rows.push(row),
            Ok(None) => return (rows, faults),
            Err(fault) => {
                let goes_on = fault.is_of_one_row();
                faults.push(fault);
                if !goes_on {
                    return (rows, faults);
                }
            }
        }
    }
}

#[test]
fn a_bill_is_read_as_spreadsheets_and_programs_write_it() {
    let file = "\u{feff}note,\"job\",at , pages\r\n\"a, \"\"b\"\"\",=1+1,2027-01-15T08:00:00+01:00,\" 12.50 \"\r\n\
        \"two\nlines\",,2027-01-15T07:00:01.5Z,-3\r\n\r\nthree,c,2027-01-15T07:00:00Z,1\r\n\r\n";
    let mut terms = by_reference(tolerance(0));
    terms.columns.time = Some("at".into());
    let (rows, faults) = read(file.as_bytes(), &terms);
    assert_eq!(faults, []);
    let row = |line, reference: &str, text: &str, at_ms| BillRow {
        line,
        tenant: String::new(),
        reference: reference.into(),
        amount: decimal(text),
        at_ms,
    };
    let expected = [
        row(2, "=1+1", "12.5", 1_799_996_400_000),
        row(3, "", "-3", 1_799_996_401_500),
        row(6, "c", "1", 1_799_996_400_000),
    ];
    assert_eq!(rows, expected);
}

/// A file that arrives byte by byte.
struct ByteByByte<'a>(&'a [u8]);

impl std::io::Read for ByteByByte<'_> {
    fn read(&mut self, into: &mut [u8]) -> std::io::Result<usize> {
        let count = into.len().min(1);
        std::io::Read::read(&mut self.0, &mut into[..count])
    }
}

#[rstest]
#[case::a_mark_and_a_quote("\u{feff}\"job\",\"pages\"\na,1\n", 1)]
#[case::a_mark_alone("\u{feff}job,pages\na,1\n", 1)]
#[case::no_mark("job,pages\na,1\n", 1)]
#[case::titles_alone("job,pages", 0)]
fn a_bill_is_read_however_small_the_pieces_are_in_which_it_arrives(#[case] file: &str, #[case] rows: u64) {
    let mut reader = BillReader::new(ByteByByte(file.as_bytes()), &by_reference(tolerance(0))).unwrap();
    while reader.next_row().unwrap().is_some() {}
    assert_eq!(reader.count(), rows);
}

#[rstest]
#[case::nothing(b"", "1")]
#[case::no_such_column(b"job,sheets\n", "amount_column")]
#[case::twice(b"job,pages,pages\n", "amount_column")]
#[case::titles_in_latin1(b"job,pages,\xfc\n", "1")]
#[case::titles_in_utf16(b"j\0o\0b\0,\0p\0a\0g\0e\0s\0\n\0", "1")]
#[case::too_few_cells(b"job,pages\na\n", "2")]
#[case::too_many_cells(b"job,pages\na,1,2\n", "2")]
#[case::no_amount(b"job,pages\na,1\nb,\n", "3/pages")]
#[case::a_formula(b"job,pages\na,=1+1\n", "2/pages")]
#[case::an_exponent(b"job,pages\na,1e3\n", "2/pages")]
#[case::a_comma(b"job,pages\na,\"1,5\"\n", "2/pages")]
#[case::a_plus(b"job,pages\na,+1\n", "2/pages")]
#[case::not_a_number(b"job,pages\na,NaN\n", "2/pages")]
#[case::too_large(b"job,pages\na,1000000000000\n", "2/pages")]
#[case::too_fine(b"job,pages\na,0.0000000001\n", "2/pages")]
#[case::latin1(b"job,pages\n\xfc,1\n", "2/job")]
#[case::a_control_character(b"job,pages\na\x00b,1\n", "2/job")]
fn what_cannot_be_read_is_named(#[case] file: &[u8], #[case] place: &str) {
    let (_, faults) = read(file, &by_reference(tolerance(0)));
    let [fault] = faults.as_slice() else { panic!("{faults:?}") };
    let found = match fault {
        BillFault::Column(parameter, _) => (*parameter).to_owned(),
        BillFault::Cell(line, column, _) => format!("{line}/{column}"),
        BillFault::Row(line, _) | BillFault::Unreadable(line, _) => line.to_string(),
        other => panic!("{other:?}"),
    };
    assert_eq!(found, place, "{fault:?}");
}

#[test]
fn titles_that_are_repeated_are_cut() {
    let file = [b"job,".as_slice(), "ü".repeat(100_000).as_bytes(), b",two\nlines\n"].concat();
    let (_, faults) = read(&file, &by_reference(tolerance(0)));
    let [BillFault::Column("amount_column", why)] = faults.as_slice() else { panic!("{faults:?}") };
    assert_eq!(why, &format!("the bill has no column `pages`; it has `job`, `{}`, `two`", "ü".repeat(64)));
}

#[test]
fn an_open_quote_does_not_swallow_the_file() {
    let mut file = b"job,pages\na,1\n\"b,1\n".to_vec();
    file.extend(b"c,1\n".repeat(1_000_000));
    let (rows, faults) = read(&file, &by_reference(tolerance(0)));
    assert_eq!(rows.len(), 1);
    assert!(matches!(faults.as_slice(), [BillFault::Unreadable(3, _)]), "{faults:?}");
}

#[test]
fn a_reference_has_at_most_255_characters() {
    let file = |length: usize| format!("job,pages\n{},1\n", "ü".repeat(length)).into_bytes();
    assert_eq!(read(&file(255), &by_reference(tolerance(0))).1, []);
    assert_eq!(read(&file(256), &by_reference(tolerance(0))).1.len(), 1);
}

proptest! {
    #[test]
    fn any_file_is_read_or_refused(bytes in prop::collection::vec(any::<u8>(), 0..400)) {
        let file = [b"job,pages\n".as_slice(), &bytes].concat();
        let mut reader = BillReader::new(file.as_slice(), &by_reference(tolerance(0))).unwrap();
        for _ in 0..1_000 {
            match reader.next_row() {
                Ok(None) => break,
                Ok(Some(_)) => {}
                Err(fault) => if !fault.is_of_one_row() { break },
            }
        }
    }
}
