//! What a limit does to those whom it has to refuse again and again: it warns them, then it bans them for a while.

use rust_decimal::prelude::ToPrimitive;
use serde::{Deserialize, Serialize};

use super::algorithms::SpanSeconds;
use super::factor::{Factor, exact_product};
use super::field_error::about;
use super::instant::rfc3339;

/// How many violations warn or ban: 1 to 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u32", into = "u32")]
pub struct ViolationCount(u32);

impl ViolationCount {
    /// The most.
    pub const MAX: u32 = 1_000_000;

    /// The number.
    pub fn get(self) -> i64 {
        i64::from(self.0)
    }
}

impl TryFrom<u32> for ViolationCount {
    type Error = String;
    fn try_from(count: u32) -> Result<Self, String> {
        match count {
            1..=Self::MAX => Ok(Self(count)),
            _ => Err(format!("must be 1 to {} violations", Self::MAX)),
        }
    }
}

impl From<ViolationCount> for u32 {
    fn from(count: ViolationCount) -> u32 {
        count.0
    }
}

/// How many times as long as the one before a ban is: 1 to 100, in thousandths.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Factor", into = "Factor")]
pub struct BanFactor {
    factor: Factor,
    thousandths: i64,
}

impl BanFactor {
    /// The factor in thousandths.
    pub fn thousandths(self) -> i64 {
        self.thousandths
    }
}

impl Default for BanFactor {
    /// Each ban is as long as the first.
    fn default() -> Self {
        Self { factor: Factor::ONE, thousandths: 1_000 }
    }
}

impl TryFrom<Factor> for BanFactor {
    type Error = String;
    fn try_from(factor: Factor) -> Result<Self, String> {
        let thousandths = exact_product(factor.decimal(), 1_000.into())
            .filter(rust_decimal::Decimal::is_integer)
            .and_then(|thousandths| thousandths.to_i64())
            .filter(|thousandths| (1_000..=100_000).contains(thousandths));
        match thousandths {
            Some(thousandths) => Ok(Self { factor, thousandths }),
            None => Err("must be 1 to 100, with at most three decimals".into()),
        }
    }
}

impl From<BanFactor> for Factor {
    fn from(factor: BanFactor) -> Factor {
        factor.factor
    }
}

/// When a limit bans, and for how long.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BanRule {
    /// At how many violations.
    pub at: ViolationCount,
    /// How long the first ban lasts.
    pub first: SpanSeconds,
    /// How much longer each further one lasts.
    pub factor: BanFactor,
    /// How long one lasts at most.
    pub longest: SpanSeconds,
}

impl BanRule {
    /// How long a ban lasts that comes after so many others, in ms; each step is rounded down.
    pub fn length_ms(&self, bans: i64) -> i64 {
        let (mut length_ms, longest_ms) = (self.first.ms(), self.longest.ms());
        let (mut left, factor) = (bans, self.factor.thousandths);
        // At most 366 days times 100,000 thousandths: far inside the range.
        while left > 0 && factor > 1_000 && length_ms < longest_ms {
            length_ms = length_ms * factor / 1_000;
            left -= 1;
        }
        length_ms.min(longest_ms)
    }
}

/// What a limit does to those whom it refuses again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(try_from = "PunishmentFields", into = "PunishmentFields")]
pub struct Punishment {
    /// How long violations count, from the first of them on; and how long a ban makes the next one longer, from its end
    /// on.
    pub memory: SpanSeconds,
    /// From how many violations on answers carry a warning; none: they carry none.
    pub warn_at: Option<ViolationCount>,
    /// When it bans; none: it only warns.
    pub ban: Option<BanRule>,
}

/// The same as it is written.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
#[serde(deny_unknown_fields, rename = "Punishment")]
struct PunishmentFields {
    memory_seconds: SpanSeconds,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    warn_at: Option<ViolationCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ban_at: Option<ViolationCount>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ban_seconds: Option<SpanSeconds>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    ban_factor: Option<BanFactor>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_ban_seconds: Option<SpanSeconds>,
}

/// How long a ban lasts at most where nothing is said of it and the first one is no longer.
const LONGEST_BAN_SECONDS: u32 = 86_400;

impl TryFrom<PunishmentFields> for Punishment {
    type Error = String;
    fn try_from(fields: PunishmentFields) -> Result<Self, String> {
        let PunishmentFields { memory_seconds: memory, warn_at, .. } = fields;
        let ban = match (fields.ban_at, fields.ban_seconds) {
            (Some(at), Some(first)) => Some(ban_rule(at, first, &fields)?),
            (Some(_), None) => return Err(about("ban_seconds", "`ban_at` needs `ban_seconds`")),
            (None, Some(_)) => return Err(about("ban_at", "`ban_seconds` needs `ban_at`")),
            (None, None) if fields.ban_factor.is_some() => {
                return Err(about("ban_factor", "`ban_factor` needs `ban_at`"));
            }
            (None, None) if fields.max_ban_seconds.is_some() => {
                return Err(about("max_ban_seconds", "`max_ban_seconds` needs `ban_at`"));
            }
            (None, None) => None,
        };
        match (warn_at, ban) {
            (None, None) => Err("give `warn_at` or `ban_at`: it would do nothing".into()),
            (Some(warn_at), Some(ban)) if warn_at >= ban.at => {
                Err(about("warn_at", "`warn_at` must be below `ban_at`, or nobody is ever warned"))
            }
            _ => Ok(Self { memory, warn_at, ban }),
        }
    }
}

fn ban_rule(at: ViolationCount, first: SpanSeconds, fields: &PunishmentFields) -> Result<BanRule, String> {
    let longest = match fields.max_ban_seconds {
        Some(longest) if longest < first => {
            return Err(about("max_ban_seconds", "`max_ban_seconds` must not be below `ban_seconds`"));
        }
        Some(longest) => longest,
        None => SpanSeconds::try_from(LONGEST_BAN_SECONDS)?.max(first),
    };
    Ok(BanRule { at, first, factor: fields.ban_factor.unwrap_or_default(), longest })
}

impl From<Punishment> for PunishmentFields {
    fn from(punishment: Punishment) -> Self {
        let Punishment { memory, warn_at, ban } = punishment;
        Self {
            memory_seconds: memory,
            warn_at,
            ban_at: ban.map(|ban| ban.at),
            ban_seconds: ban.map(|ban| ban.first),
            ban_factor: ban.map(|ban| ban.factor),
            max_ban_seconds: ban.map(|ban| ban.longest),
        }
    }
}

/// What a call was to a limit with a punishment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deed {
    /// Nothing that it remembers.
    #[default]
    Nothing,
    /// A refusal that it has counted.
    Violation,
    /// A refusal that it has counted, and that has placed a ban.
    LastViolation,
    /// A call under its ban.
    UnderBan,
}

impl Deed {
    /// The deed with this number in a script's answer.
    pub fn from_code(code: u8) -> Option<Self> {
        [Self::Nothing, Self::Violation, Self::LastViolation, Self::UnderBan].get(usize::from(code)).copied()
    }

    /// Whether it was counted.
    pub fn is_violation(self) -> bool {
        matches!(self, Self::Violation | Self::LastViolation)
    }
}

/// What a limit with a punishment remembers of whom it counts, after a call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Conduct {
    /// What the call was.
    pub deed: Deed,
    /// The violations that count; a ban begins again at none.
    pub violations: i64,
    /// The bans so far that make the next one longer.
    pub bans: i64,
    /// When the last ban ends or ended (unix ms); 0 where none is remembered.
    pub banned_until_ms: i64,
}

impl Conduct {
    /// When the ban ends under which the call stands, or which it has placed (unix ms).
    pub fn ban_ends_at_ms(&self) -> Option<i64> {
        matches!(self.deed, Deed::UnderBan | Deed::LastViolation).then_some(self.banned_until_ms)
    }

    /// Whether the call was refused because of a ban, and of nothing else.
    pub fn is_banned(&self) -> bool {
        self.deed == Deed::UnderBan
    }

    /// What whom it counts should know of it, in words: a code and a sentence. Nothing below `warn_at`.
    pub fn warning(&self, punishment: &Punishment) -> Option<(&'static str, String)> {
        if self.deed == Deed::LastViolation {
            let until = rfc3339(self.banned_until_ms);
            return Some((
                "banned",
                format!("it was refused too often: from now on it is banned until {until}"),
            ));
        }
        punishment.warn_at.filter(|warn_at| self.violations >= warn_at.get() && !self.is_banned())?;
        let count = self.violations;
        let detail = match punishment.ban {
            None => format!("{count} refused calls are remembered"),
            Some(ban) => {
                let (at, seconds) = (ban.at.get(), ban.length_ms(self.bans).div_euclid(1_000));
                format!("{count} refused calls are remembered; at {at} it is banned for {seconds} s")
            }
        };
        Some(("violations", detail))
    }

    /// The same at a time between calls, when a ban may hold.
    pub fn warning_at(&self, punishment: &Punishment, now_ms: i64) -> Option<(&'static str, String)> {
        if now_ms < self.banned_until_ms {
            let until = rfc3339(self.banned_until_ms);
            return Some(("banned", format!("it was refused too often: it is banned until {until}")));
        }
        self.warning(punishment)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;
    use crate::domain::field_error::read_json;

    fn full() -> Value {
        json!({
            "memory_seconds": 3600, "warn_at": 10, "ban_at": 20, "ban_seconds": 1800, "ban_factor": "2",
            "max_ban_seconds": 86400
        })
    }

    fn with(changes: Value) -> Value {
        let mut fields = full();
        for (name, value) in changes.as_object().unwrap() {
            fields[name] = value.clone();
        }
        fields.as_object_mut().unwrap().retain(|_, value| !value.is_null());
        fields
    }

    fn read(fields: Value) -> Result<Punishment, String> {
        read_json(&fields).map_err(|error| format!("{}: {}", error.pointer, error.message))
    }

    #[test]
    fn it_is_written_as_it_is_read() {
        let punishment = read(full()).unwrap();
        assert_eq!(serde_json::to_value(punishment).unwrap(), full());
        let least = json!({ "memory_seconds": 60, "warn_at": 3 });
        assert_eq!(serde_json::to_value(read(least.clone()).unwrap()).unwrap(), least);
    }

    #[test]
    fn what_is_wrong_names_its_field() {
        for (changes, field) in [
            (json!({ "memory_seconds": 0 }), "memory_seconds"),
            (json!({ "memory_seconds": null }), "memory_seconds"),
            (json!({ "warn_at": 0 }), "warn_at"),
            (json!({ "warn_at": 20 }), "warn_at"),
            (json!({ "ban_at": 1_000_001 }), "ban_at"),
            (json!({ "ban_at": null }), "ban_seconds"),
            (json!({ "ban_seconds": null }), "ban_seconds"),
            (json!({ "ban_at": null, "ban_seconds": null }), "ban_factor"),
            (json!({ "ban_at": null, "ban_seconds": null, "ban_factor": null }), "max_ban_seconds"),
            (json!({ "ban_factor": "0.5" }), "ban_factor"),
            (json!({ "ban_factor": "1.0005" }), "ban_factor"),
            (json!({ "ban_factor": "101" }), "ban_factor"),
            (json!({ "max_ban_seconds": 1799 }), "max_ban_seconds"),
            (json!({ "max_ban_seconds": 31_622_401 }), "max_ban_seconds"),
            (json!({ "colour": "red" }), "colour"),
        ] {
            let error = read(with(changes.clone())).unwrap_err();
            assert!(error.contains(field), "{changes}: {error}");
        }
        assert!(read(json!({ "memory_seconds": 60 })).unwrap_err().contains("`warn_at` or `ban_at`"));
    }

    #[test]
    fn each_ban_is_longer_by_the_factor_up_to_the_longest() {
        let ban = read(full()).unwrap().ban.unwrap();
        let lengths: Vec<_> = (0..8).map(|bans| ban.length_ms(bans) / 1_000).collect();
        assert_eq!(lengths, [1_800, 3_600, 7_200, 14_400, 28_800, 57_600, 86_400, 86_400]);
        assert_eq!(ban.length_ms(i64::MAX), 86_400_000);
        let thirds = read(with(json!({ "ban_seconds": 1, "ban_factor": "1.333" }))).unwrap().ban.unwrap();
        assert_eq!([thirds.length_ms(1), thirds.length_ms(2)], [1_333, 1_776]);
        let always = read(with(json!({ "ban_factor": null, "max_ban_seconds": null }))).unwrap().ban.unwrap();
        assert_eq!((always.length_ms(i64::MAX), always.longest.get()), (1_800_000, 86_400));
    }
}
