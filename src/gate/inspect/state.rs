//! State hashes: header, cells and capacities; and a partition's own facts.

use redis::Value;

use super::super::call::text;
use super::{Rows, bytes_of, instant};
use crate::domain::algorithms::cell::Cell;
use crate::domain::codec::{Reader, Undecodable};

/// A partition's facts, which are stored as text.
pub(super) fn meta_rows(fields: &[(String, Vec<u8>)]) -> Rows {
    fields.iter().map(|(name, value)| (name.clone(), String::from_utf8_lossy(value).into_owned())).collect()
}

/// A state hash's header, or why it cannot be decoded.
pub(super) fn header_rows(bytes: &[u8], is_tenant: bool) -> Rows {
    read_header(bytes, is_tenant).unwrap_or_else(|error| vec![("header".into(), error.to_string())])
}

/// The header of a hash of light counters.
pub(super) fn light_header_rows(bytes: &[u8]) -> Rows {
    let mut reader = Reader::new(bytes);
    match (reader.i64(), reader.i64()) {
        (Ok(epoch), Ok(ends_at)) => {
            vec![("epoch".into(), epoch.to_string()), ("ends at".into(), instant(ends_at))]
        }
        _ => vec![("header".into(), "none: the whole hash counts as absent".into())],
    }
}

/// The first submission of some guarded work.
pub(super) fn work_rows(bytes: &[u8]) -> Result<Rows, Undecodable> {
    let mut reader = Reader::new(bytes);
    let (epoch, made_at_ms) = (reader.i64()?, reader.i64()?);
    let reservation = String::from_utf8_lossy(reader.rest()).into_owned();
    let made_at = ("made at".into(), instant(made_at_ms));
    Ok(vec![("epoch".into(), epoch.to_string()), made_at, ("reservation".into(), reservation)])
}

/// What a reservation took of global limits.
pub(super) fn taken_rows(bytes: &[u8]) -> Result<Rows, Undecodable> {
    let mut reader = Reader::new(bytes);
    let epoch = ("epoch".into(), reader.i64()?.to_string());
    let until = ("remembered until".into(), instant(reader.i64()?));
    let whole = ("counted whole until".into(), instant(reader.i64()?));
    let claims = ("calls that go by it".into(), reader.u32()?.to_string());
    reader.bytes(16)?;
    let mut rows = vec![epoch, until, whole, claims, ("taken at".into(), instant(reader.i64()?))];
    rows.push(("unmoved counters".into(), format!("{:b}", reader.u32()?)));
    for line in 0..reader.u8()? {
        rows.push((format!("line {line}, units"), reader.i64()?.to_string()));
    }
    Ok(rows)
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
        rows.push(("restored up to sequence".to_owned(), sequence.to_string()));
    }
    if let Ok(number) = reader.i64() {
        rows.push(if is_tenant {
            ("bytes of the filter of subjects (0 none of them, -1 all)".to_owned(), number.to_string())
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
    let restored_at = reader.i64()?;
    let length = usize::try_from(reader.u32()?).unwrap_or(usize::MAX);
    let mut packed = Reader::new(reader.bytes(length)?);
    let field = String::from_utf8_lossy(packed.bytes(8)?).into_owned();
    let (from, to) = (packed.i64()?, packed.i64()?);
    let meter = packed.text()?;
    let operations = (0..packed.u16()?).map(|_| packed.text()).collect::<Result<Vec<_>, _>>()?;
    let of = if operations.is_empty() { "all operations".to_owned() } else { operations.join(", ") };
    let mut budget = Vec::new();
    while !packed.rest().is_empty() {
        budget.push(format!("{} × {}", packed.text()?, packed.i64()?));
    }
    let counted = if budget.is_empty() { meter.to_owned() } else { budget.join(" + ") };
    Ok(format!(
        "{field}: {counted} of {of}, from {} to {}, restored at {}",
        instant(from),
        instant(to),
        instant(restored_at)
    ))
}

/// The fields after the header: a counter's cell under its eight characters; under `q` and these a quota's capacity,
/// under `r` and these who set the counter last, under `v` and these the violations that its limit remembers, under
/// `l` and these the shares that instances have of it.
pub(super) fn field_rows(fields: &[(String, Vec<u8>)]) -> Rows {
    let shown = fields.iter().filter(|(name, _)| name != "h");
    let row = |(name, value): &(String, Vec<u8>)| {
        let read = match (name.len(), name.as_bytes().first()) {
            (8, _) => cell(value),
            (9, Some(b'q')) => capacity(value),
            (9, Some(b'r')) => set_by(value),
            (9, Some(b'v')) => conduct(value),
            (9, Some(b'l')) => shares(value),
            _ => Err(Undecodable("no field of a state")),
        };
        (name.clone(), read.unwrap_or_else(|Undecodable(reason)| format!("cannot be decoded: {reason}")))
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

fn set_by(bytes: &[u8]) -> Result<String, Undecodable> {
    let mut reader = Reader::new(bytes);
    let sequence = reader.i64()?;
    let checkpoint = uuid::Uuid::from_bytes(reader.array()?);
    let by = if checkpoint.is_nil() { "the ledger".to_owned() } else { format!("checkpoint {checkpoint}") };
    Ok(format!("set by {by} at sequence {sequence}"))
}

fn conduct(bytes: &[u8]) -> Result<String, Undecodable> {
    let mut reader = Reader::new(bytes);
    let (since, violations) = (instant(reader.i64()?), reader.i64()?);
    let (until, bans) = (instant(reader.i64()?), reader.i64()?);
    Ok(format!("violations {violations} since {since}, bans {bans}, the last one until {until}"))
}

fn shares(bytes: &[u8]) -> Result<String, Undecodable> {
    let mut reader = Reader::new(bytes);
    let (mark, recalled_until) = (instant(reader.i64()?), instant(reader.i64()?));
    let mut text = format!("shares of mark {mark}, recalled until {recalled_until}");
    while !reader.rest().is_empty() {
        let instance: [u8; 8] = reader.array()?;
        let instance: String = instance.iter().map(|byte| format!("{byte:02x}")).collect();
        let (held, settled, ends_at) = (reader.i64()?, reader.i64()?, instant(reader.i64()?));
        text.push_str(&format!("; {instance} holds {held} until {ends_at}, has settled {settled}"));
    }
    Ok(text)
}

/// Bans that limits have placed, or light holds, each with its end.
pub(super) fn rows_by_end(members: &Value) -> Result<Rows, Undecodable> {
    let Value::Array(members) = members else { return Err(Undecodable("a list by ends")) };
    let row = |pair: &[Value]| {
        let until_ms: i64 = text(&pair[1])?.parse().map_err(|_| Undecodable("an end"))?;
        Ok((text(&pair[0])?.to_owned(), format!("until {}", instant(until_ms))))
    };
    members.chunks_exact(2).map(row).collect()
}

/// A log: its sums, then its entries, each with when it was made.
pub(super) fn log_rows(members: &Value) -> Result<Rows, Undecodable> {
    let Value::Array(members) = members else { return Err(Undecodable("a log")) };
    let mut rows = Rows::new();
    for pair in members.chunks_exact(2) {
        let at_ms: i64 = text(&pair[1])?.parse().map_err(|_| Undecodable("an entry's time"))?;
        let mut reader = Reader::new(bytes_of(&pair[0])?);
        if at_ms < 0 {
            let (epoch, consumed) = (reader.i64()?, reader.i64()?);
            let (held, next_end) = (reader.i64()?, instant(reader.i64()?));
            let sums =
                format!("consumed {consumed}, reserved {held}, epoch {epoch}, next hold ends at {next_end}");
            rows.push(("sums".into(), sums));
        } else {
            let id = String::from_utf8_lossy(reader.bytes(32)?).into_owned();
            let (held, consumed) = (reader.i64()?, reader.i64()?);
            let at = instant(at_ms);
            rows.push(("entry".into(), format!("{id}: consumed {consumed}, reserved {held}, made at {at}")));
        }
    }
    Ok(rows)
}
