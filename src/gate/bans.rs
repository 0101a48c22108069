//! `bans` and `lift`: the bans that limits have placed. The gate alone has them, so that a lifted one is lifted at
//! every instance.

use std::fmt;

use super::Gate;
use super::call::time_argument;
use super::error::GateError;
use super::scripts::Script;
use super::status::Status;
use crate::domain::codec::Undecodable;
use crate::domain::ids::{LimitId, Partition, SubjectKind, TenantId};
use crate::domain::limit::Limit;
use crate::domain::reservation::{CounterField, SubjectHash};

/// Between the parts of a ban's name; no id has it.
const JOINT: char = '~';

/// What names a ban that a limit has placed: whose, and the counter for which it was placed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitBan {
    /// The limit.
    pub limit: LimitId,
    /// Whom it bans: a subject of this kind, by its hash; none for the tenant.
    pub subject: Option<(SubjectKind, SubjectHash)>,
    /// The counter's field.
    pub field: CounterField,
    /// Whether it is a light counter.
    pub is_light: bool,
}

/// A ban that a limit has placed and that has not ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlacedBan {
    /// Which one.
    pub ban: LimitBan,
    /// When it ends (unix ms), exclusive.
    pub until_ms: i64,
}

/// What a limit is called in its bans: its id, and the kind of its subjects.
pub(super) fn name_in_bans(limit: &Limit) -> String {
    match &limit.subject_kind {
        Some(kind) => format!("{}{JOINT}{kind}", limit.id),
        None => limit.id.to_string(),
    }
}

impl LimitBan {
    /// Reads a name as it is written; nothing where it names none.
    pub fn parse(name: &str) -> Option<Self> {
        let parts: Vec<_> = name.split(JOINT).collect();
        let (limit, kind, whose) = match parts[..] {
            [limit, whose] => (limit, None, whose),
            [limit, kind, whose] => (limit, Some(SubjectKind::parse(kind).ok()?), whose),
            _ => return None,
        };
        let (place, rest) = whose.as_bytes().split_at_checked(1)?;
        let (field, hash) = rest.split_at_checked(8)?;
        let is_digit = |byte: &u8| byte.is_ascii_alphanumeric() || b"-_".contains(byte);
        let subject = match (kind, hash.len()) {
            (None, 0) => None,
            (Some(kind), 12) if hash.iter().all(is_digit) => {
                let mut whole = [b'='; 13];
                whole[1..].copy_from_slice(hash);
                Some((kind, SubjectHash(whole)))
            }
            _ => return None,
        };
        let is_light = match place {
            b"s" => false,
            b"l" => true,
            _ => return None,
        };
        let field = CounterField(field.iter().all(is_digit).then_some(field)?.try_into().ok()?);
        Some(Self { limit: LimitId::parse(limit).ok()?, subject, field, is_light })
    }
}

impl fmt::Display for LimitBan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let place = if self.is_light { 'l' } else { 's' };
        write!(f, "{}{JOINT}", self.limit)?;
        if let Some((kind, _)) = &self.subject {
            write!(f, "{kind}{JOINT}")?;
        }
        write!(f, "{place}{}", self.field.as_str())?;
        match &self.subject {
            Some((_, hash)) => f.write_str(hash.digits()),
            None => Ok(()),
        }
    }
}

impl Gate {
    /// A tenant's bans that limits have placed and that have not ended, those that end last first: at most `count`,
    /// from those on that end at `latest_ms` (unix ms; none for the last of all), of which `left_out` are passed over.
    pub async fn limit_bans(
        &self,
        partition: Partition,
        tenant: &TenantId,
        (latest_ms, left_out): (Option<i64>, usize),
        count: usize,
        now_ms: Option<i64>,
    ) -> Result<Vec<PlacedBan>, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        let keys = [
            self.keys.meta(partition),
            self.keys.outbox(partition),
            self.keys.bans(partition, epoch, tenant),
        ];
        let latest = latest_ms.map_or_else(|| "+inf".to_owned(), |latest_ms| latest_ms.to_string());
        let numbers = [latest, left_out.to_string(), count.to_string()].map(String::into_bytes);
        let mut arguments = vec![self.epoch_argument(partition)?, time_argument(now_ms)];
        arguments.extend(numbers);
        let reply = self.run(partition, Script::Bans, &keys, &arguments).await?;
        if reply.status != Status::Done {
            return Err(Undecodable("a status of bans").into());
        }
        let read = |at: usize| {
            let ban = LimitBan::parse(reply.text(at)?).ok_or(Undecodable("the name of a ban"))?;
            Ok(PlacedBan { ban, until_ms: reply.integer(at + 1)? })
        };
        (0..reply.len()).step_by(2).map(read).collect()
    }

    /// Lifts a ban that a limit has placed; false where there is none, or it has ended.
    pub async fn lift_limit_ban(
        &self,
        partition: Partition,
        tenant: &TenantId,
        ban: &LimitBan,
        now_ms: Option<i64>,
    ) -> Result<bool, GateError> {
        let epoch = self.epoch(partition).ok_or(GateError::NoEpoch(partition))?;
        let hash = ban.subject.as_ref().map(|(_, hash)| *hash);
        let state = match (ban.is_light, hash) {
            (true, hash) => self.keys.light(partition, tenant, hash),
            (false, Some(hash)) => self.keys.subject(partition, tenant, hash),
            (false, None) => self.keys.tenant(partition, tenant),
        };
        let keys = [
            self.keys.meta(partition),
            self.keys.outbox(partition),
            state,
            self.keys.bans(partition, epoch, tenant),
        ];
        let mut arguments = self.mutating_in(epoch, now_ms);
        arguments.push(format!("v{}", ban.field.as_str()).into_bytes());
        arguments.push(ban.to_string().into_bytes());
        let reply = self.run(partition, Script::Lift, &keys, &arguments).await?;
        match reply.status {
            Status::Done => Ok(true),
            Status::Unknown => Ok(false),
            _ => Err(Undecodable("a status of lift").into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_says_whose_ban_it_is() {
        for name in ["ocr-day~sAAbb01-_", "api.user:1~user~lAAbb01-_abcdefghij-_"] {
            assert_eq!(LimitBan::parse(name).unwrap().to_string(), name);
        }
        for wrong in [
            "",
            "spam",
            "~sAAbb01-_",
            "ocr-day~xAAbb01-_",
            "ocr-day~sAAbb01-",
            "ocr-day~sAAbb01-_abcdefghijkl",
            "ocr-day~user~sAAbb01-_",
            "ocr-day~user~sAAbb01-_abcdefghijk~",
            "ocr-day~user~sAAbb01-_abcdefghij:k",
            "ocr-day~~sAAbb01-_abcdefghijkl",
            "a~b~user~sAAbb01-_abcdefghijkl",
        ] {
            assert_eq!(LimitBan::parse(wrong), None, "{wrong}");
        }
    }
}
