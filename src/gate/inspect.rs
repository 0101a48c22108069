//! Shows what a key holds as text for people: it only reads, and no more than a screen or two.

mod record;
mod state;

use redis::{Cmd, Value};

use super::Gate;
use super::call::{integer, text};
use super::error::GateError;
use super::keys::KeyOf;
use super::outbox::read_entries;
use crate::domain::codec::Undecodable;

/// The most bytes that are read of a reservation: more than any has.
const RECORD_BYTES_MAX: u64 = 131_072;
/// The most fields of a hash that are shown.
const FIELDS_MAX: usize = 1_000;
/// The most entries of a due list that are shown.
const DUE_MAX: u64 = 100;
/// The most entries that are shown of a log, the oldest ones, of a list of bans, those that end last, and of light
/// holds, those that end first.
const ENTRIES_MAX: usize = 100;
/// The most events that are shown: the last ones.
const EVENTS_MAX: u64 = 20;

/// The contents of a key, by name.
type Rows = Vec<(String, String)>;

/// Why a key cannot be shown.
#[derive(Debug, thiserror::Error)]
pub enum InspectError {
    /// It is not a key of this installation.
    #[error("`{0}` is no key of this installation")]
    Foreign(String),
    /// The key does not exist.
    #[error("there is nothing under `{0}`")]
    Missing(String),
    /// Its value cannot be decoded.
    #[error("the value under `{key}` cannot be decoded: {reason}")]
    Damaged {
        /// The key.
        key: String,
        /// What is wrong.
        reason: String,
    },
    /// Redis does not answer.
    #[error("{0}")]
    Gate(#[from] GateError),
}

impl InspectError {
    /// What to do next.
    pub fn remedy(&self) -> Option<&'static str> {
        match self {
            Self::Foreign(_) => Some(
                "name a key that begins with tg1:, in quotes; lua/README.md lists them, and the installation must be the key's own",
            ),
            Self::Missing(_) => Some("Redis does not have it, or no longer: ask the ledger, by the API"),
            Self::Damaged { .. } => Some("docs/OPERATIONS.md says at the alarm `damage` what may be deleted"),
            Self::Gate(_) => None,
        }
    }
}

impl Gate {
    /// The contents of this key.
    pub async fn inspect(&self, key: &str) -> Result<Rows, InspectError> {
        let of = self.keys.read(key).ok_or_else(|| InspectError::Foreign(key.to_owned()))?;
        let kind = self.plain(redis::cmd("TYPE").arg(key)).await?;
        let kind = text(&kind).map_err(GateError::from)?;
        let damaged = |reason: String| InspectError::Damaged { key: key.to_owned(), reason };
        match (kind, expected_type(&of)) {
            ("none", _) => return Err(InspectError::Missing(key.to_owned())),
            (kind, expected) if kind != expected => {
                return Err(damaged(format!("it is a {kind} and should be a {expected}")));
            }
            _ => {}
        }
        let mut rows = match self.read_rows(key, &of).await {
            Ok(rows) => rows,
            Err(GateError::Undecodable(Undecodable(reason))) => return Err(damaged(reason.to_owned())),
            Err(error) => return Err(error.into()),
        };
        let expires_in_ms = self.number(redis::cmd("PTTL").arg(key)).await?;
        if expires_in_ms >= 0 {
            rows.push(("expires in, ms".into(), expires_in_ms.to_string()));
        }
        Ok(rows)
    }

    async fn read_rows(&self, key: &str, of: &KeyOf) -> Result<Rows, GateError> {
        Ok(match of {
            KeyOf::Meta(_) => state::meta_rows(&self.fields(key).await?.0),
            KeyOf::Outbox(partition) => {
                let mut rows = vec![count_row("events", self.number(redis::cmd("XLEN").arg(key)).await?)];
                let mut command = redis::cmd("XREVRANGE");
                command.arg(key).arg("+").arg("-").arg("COUNT").arg(EVENTS_MAX);
                let events = read_entries(self.plain(&command).await?)?;
                let row = |(id, event): &(_, Vec<u8>)| {
                    (format!("{partition}:{id}"), record::event_text(*id, event))
                };
                rows.extend(events.iter().rev().map(row));
                rows
            }
            KeyOf::Reservation(_) => {
                let bytes = self.plain(redis::cmd("GETRANGE").arg(key).arg(0).arg(RECORD_BYTES_MAX)).await?;
                record::record_rows(bytes_of(&bytes)?)?
            }
            KeyOf::Due(..) => {
                let mut rows =
                    vec![count_row("reservations", self.number(redis::cmd("LLEN").arg(key)).await?)];
                let listed = self.plain(redis::cmd("LRANGE").arg(key).arg(0).arg(DUE_MAX - 1)).await?;
                let Value::Array(entries) = listed else { return Err(Undecodable("a due list").into()) };
                for entry in &entries {
                    rows.push(("reservation".into(), text(entry)?.to_owned()));
                }
                rows
            }
            KeyOf::Holds(_) => self.rows_by_end(key, "reservations", "ZRANGE").await?,
            KeyOf::Tenant(..) | KeyOf::Subject(..) => {
                let is_tenant = matches!(of, KeyOf::Tenant(..));
                let header = self.plain(redis::cmd("HGET").arg(key).arg("h")).await?;
                let mut rows = match header {
                    Value::Nil => vec![("header".into(), "none: the whole hash counts as absent".into())],
                    header => state::header_rows(bytes_of(&header)?, is_tenant),
                };
                let (fields, count) = self.fields(key).await?;
                rows.extend(state::field_rows(&fields));
                if count > fields.len() {
                    rows.push(count_row("fields in all", i64::try_from(count).unwrap_or(i64::MAX)));
                }
                rows
            }
            KeyOf::Light(..) | KeyOf::Global(_) => {
                let header = self.plain(redis::cmd("HGET").arg(key).arg("h")).await?;
                let mut rows = state::light_header_rows(bytes_of(&header).unwrap_or_default());
                rows.extend(state::field_rows(&self.fields(key).await?.0));
                rows
            }
            KeyOf::Log(..) => {
                let mut rows =
                    vec![count_row("entries and sums", self.number(redis::cmd("ZCARD").arg(key)).await?)];
                let mut command = redis::cmd("ZRANGE");
                command.arg(key).arg(0).arg(ENTRIES_MAX).arg("WITHSCORES");
                rows.extend(state::log_rows(&self.plain(&command).await?)?);
                rows
            }
            KeyOf::Bans(..) => self.rows_by_end(key, "bans", "ZREVRANGE").await?,
            KeyOf::KnownSubjects(..) => {
                vec![count_row("bytes of the filter", self.number(redis::cmd("STRLEN").arg(key)).await?)]
            }
            KeyOf::Work(..) => state::work_rows(bytes_of(&self.plain(redis::cmd("GET").arg(key)).await?)?)?,
            KeyOf::Taken(..) => state::taken_rows(bytes_of(&self.plain(redis::cmd("GET").arg(key)).await?)?)?,
        })
    }

    /// How many members a sorted set has, and the first of them in the order of this command, each with its end.
    async fn rows_by_end(&self, key: &str, name: &str, command: &str) -> Result<Rows, GateError> {
        let mut rows = vec![count_row(name, self.number(redis::cmd("ZCARD").arg(key)).await?)];
        let mut command = redis::cmd(command);
        command.arg(key).arg(0).arg(ENTRIES_MAX - 1).arg("WITHSCORES");
        rows.extend(state::rows_by_end(&self.plain(&command).await?)?);
        Ok(rows)
    }

    async fn number(&self, command: &Cmd) -> Result<i64, GateError> {
        Ok(integer(&self.plain(command).await?)?)
    }

    /// The first fields of a hash by their names, and how many it has.
    async fn fields(&self, key: &str) -> Result<(Vec<(String, Vec<u8>)>, usize), GateError> {
        let count = usize::try_from(self.number(redis::cmd("HLEN").arg(key)).await?).unwrap_or_default();
        let (mut fields, mut cursor) = (Vec::new(), "0".to_owned());
        loop {
            let scan =
                self.plain(redis::cmd("HSCAN").arg(key).arg(&cursor).arg("COUNT").arg(FIELDS_MAX)).await?;
            let wrong = Undecodable("a hash");
            let Value::Array(parts) = scan else { return Err(wrong.into()) };
            let [next, Value::Array(listed)] = parts.as_slice() else { return Err(wrong.into()) };
            for pair in listed.chunks_exact(2) {
                let name = String::from_utf8_lossy(bytes_of(&pair[0])?).into_owned();
                fields.push((name, bytes_of(&pair[1])?.to_vec()));
            }
            text(next)?.clone_into(&mut cursor);
            if cursor == "0" || fields.len() >= FIELDS_MAX {
                break;
            }
        }
        fields.sort();
        fields.dedup_by(|one, other| one.0 == other.0);
        fields.truncate(FIELDS_MAX);
        Ok((fields, count))
    }
}

fn expected_type(of: &KeyOf) -> &'static str {
    match of {
        KeyOf::Meta(_) | KeyOf::Tenant(..) | KeyOf::Subject(..) | KeyOf::Light(..) | KeyOf::Global(_) => {
            "hash"
        }
        KeyOf::Outbox(_) => "stream",
        KeyOf::Due(..) => "list",
        KeyOf::Log(..) | KeyOf::Bans(..) | KeyOf::Holds(_) => "zset",
        KeyOf::Reservation(_) | KeyOf::KnownSubjects(..) | KeyOf::Work(..) | KeyOf::Taken(..) => "string",
    }
}

fn bytes_of(value: &Value) -> Result<&[u8], Undecodable> {
    match value {
        Value::BulkString(bytes) => Ok(bytes),
        _ => Err(Undecodable("a string")),
    }
}

fn count_row(name: &str, count: i64) -> (String, String) {
    (name.to_owned(), count.to_string())
}

/// An instant for people, after the stored milliseconds.
fn instant(unix_ms: i64) -> String {
    match jiff::Timestamp::from_millisecond(unix_ms) {
        Ok(at) if unix_ms > 0 => format!("{unix_ms} ({at})"),
        _ => unix_ms.to_string(),
    }
}
