//! State hashes: header, cells and capacities; and a partition's own facts.

use super::{Rows, instant};
use crate::domain::algorithms::cell::Cell;
use crate::domain::codec::{Reader, Undecodable};

/// A partition's facts, which are text as they stand.
pub(super) fn meta_rows(fields: &[(String, Vec<u8>)]) -> Rows {
    fields.iter().map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned())).collect()
}

/// A state hash's header; what cannot be read says so.
pub(super) fn header_rows(bytes: &[u8], is_tenant: bool) -> Rows {
    read_header(bytes, is_tenant).unwrap_or_else(|error| vec![("header".into(), error.to_string())])
}

fn read_header(bytes: &[u8], is_tenant: bool) -> Result<Rows, Undecodable> {
    let mut reader = Reader::new(bytes);
    let epoch = reader.i64()?;
    let waits = if epoch < 0 { ", and waits for the ledger" } else { "" };
    let mut rows = vec![
        ("epoch".to_owned(), format!("{}{waits}", epoch.unsigned_abs())),
        ("restored at".to_owned(), instant(reader.i64()?)),
    ];
    let asks = match reader.i64()? {
        -1 => ("made by".to_owned(), "a script: the ledger was not asked".to_owned()),
        until => ("keyed calls ask the ledger until".to_owned(), instant(until)),
    };
    rows.push(asks);
    if let Ok(sequence) = reader.i64() {
        rows.push(("told up to sequence".to_owned(), sequence.to_string()));
    }
    if let Ok(number) = reader.i64() {
        rows.push(if is_tenant {
            ("bytes of the filter of subjects (0 nobody, -1 everybody)".to_owned(), number.to_string())
        } else {
            ("ends at".to_owned(), instant(number))
        });
    }
    if !reader.rest().is_empty() {
        rows.push(("a subject has new counters".to_owned(), (reader.u8()? == 1).to_string()));
    }
    while !reader.rest().is_empty() {
        rows.push(("new counter".to_owned(), new_counter(&mut reader)?));
    }
    Ok(rows)
}

fn new_counter(reader: &mut Reader<'_>) -> Result<String, Undecodable> {
    let told_at = reader.i64()?;
    let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    let mut packed = Reader::new(reader.bytes(length)?);
    let field = String::from_utf8_lossy(packed.bytes(8)?).into_owned();
    let (from, to) = (packed.i64()?, packed.i64()?);
    let meter = packed.text()?;
    let operations = (0..packed.u16()?).map(|_| packed.text()).collect::<Result<Vec<_>, _>>()?;
    let of = if operations.is_empty() { "all operations".to_owned() } else { operations.join(", ") };
    Ok(format!(
        "{field}: {meter} of {of}, from {} to {}, told at {}",
        instant(from),
        instant(to),
        instant(told_at)
    ))
}

/// The fields behind the header: a counter's cell under its eight characters; behind `q` a quota's capacity, behind `r` who told it last.
pub(super) fn field_rows(fields: &[(String, Vec<u8>)]) -> Rows {
    let shown = fields.iter().filter(|(name, _)| name != "h");
    let row = |(name, value): &(String, Vec<u8>)| {
        let read = match (name.len(), name.as_bytes().first()) {
            (8, _) => cell(value),
            (9, Some(b'q')) => capacity(value),
            (9, Some(b'r')) => told(value),
            _ => Err(Undecodable("no field of a state")),
        };
        (name.clone(), read.unwrap_or_else(|Undecodable(reason)| format!("does not read: {reason}")))
    };
    shown.map(row).collect()
}

fn cell(bytes: &[u8]) -> Result<String, Undecodable> {
    let Cell { mark, consumed, reserved, next_end, own } = Cell::decode(bytes)?;
    let (mark, next_end) = (instant(mark), instant(next_end));
    let own = if own.is_empty() { String::new() } else { format!(", its algorithm's own {own:?}") };
    Ok(format!("consumed {consumed}, reserved {reserved}, mark {mark}, next hold ends at {next_end}{own}"))
}

fn capacity(bytes: &[u8]) -> Result<String, Undecodable> {
    let mut reader = Reader::new(bytes);
    let (version, count) = (reader.i64()?, reader.u8()?);
    let part = |_| Ok(format!("{1} from {0}", instant(reader.i64()?), reader.i64()?));
    let parts = (0..count).map(part).collect::<Result<Vec<_>, Undecodable>>()?.join(", ");
    Ok(format!("capacity {parts}, until {}, version {version}", instant(reader.i64()?)))
}

fn told(bytes: &[u8]) -> Result<String, Undecodable> {
    let mut reader = Reader::new(bytes);
    let sequence = reader.i64()?;
    let checkpoint = uuid::Uuid::from_bytes(reader.array()?);
    let by = if checkpoint.is_nil() { "the ledger".to_owned() } else { format!("checkpoint {checkpoint}") };
    Ok(format!("told by {by} at sequence {sequence}"))
}
