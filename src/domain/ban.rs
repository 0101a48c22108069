//! A ban that an admin places: nothing new is admitted for a tenant, or for one of its subjects.

use serde::{Deserialize, Serialize};

use super::ids::{BanId, Subject};
use super::instant::Instant;
use super::tenant::SubjectName;

/// The largest number of bans of one tenant.
pub const BANS_MAX: usize = 1_000;

/// A ban of a tenant or of one of its subjects.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ban {
    /// Its name, unique in the tenant.
    pub id: BanId,
    /// Whom it bans; absent: the whole tenant.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subject: Option<SubjectName>,
    /// When it ends, exclusive; absent: when it is lifted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<Instant>,
    /// The reason for it; callers do not see it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

impl Ban {
    /// Whether it bans a call that names these subjects, at this instant (unix ms).
    fn holds(&self, subjects: &[Subject], at_ms: i64) -> bool {
        let names = |banned: &SubjectName| {
            subjects.iter().any(|named| named.kind == banned.kind && named.id == banned.id)
        };
        self.until.is_none_or(|until| at_ms < until.ms()) && self.subject.as_ref().is_none_or(names)
    }
}

/// How long (in ms) these bans refuse a call that names `subjects` at `at_ms` (unix ms).
///
/// None: they do not. `Some(None)`: until one of them is lifted.
pub fn banned_for_ms(bans: &[Ban], subjects: &[Subject], at_ms: i64) -> Option<Option<i64>> {
    let holding = bans.iter().filter(|ban| ban.holds(subjects, at_ms));
    let waits = holding.map(|ban| ban.until.map(|until| until.ms().saturating_sub(at_ms)));
    waits.reduce(|longest, wait| longest.zip(wait).map(|(longest, wait)| longest.max(wait)))
}
