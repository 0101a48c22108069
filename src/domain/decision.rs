//! A decision as it is kept: what was asked, what each limit had, and what became of it. It names no subject.

use serde::{Deserialize, Serialize};
use uuid::Uuid;

use super::amount::Amount;
use super::ids::{MeterId, OperationId, TenantId};
use super::limit::Kind;
use super::policy::Level;
use super::reservation::ReservationState;

/// The call that was decided.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DecidedCall {
    /// A reserve.
    Reserve,
    /// A usage, also one that a check of booked meters was.
    Usage,
    /// A check of meters that the gate alone counts.
    Check,
    /// A consume, which is always admitted.
    Consume,
    /// A release, which is always admitted.
    Release,
    /// A longer time for a hold.
    Extend,
    /// Usage after the fact, which no limit refuses.
    Event,
}

impl DecidedCall {
    const ALL: [Self; 7] =
        [Self::Reserve, Self::Usage, Self::Check, Self::Consume, Self::Release, Self::Extend, Self::Event];

    /// The word for it.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserve => "reserve",
            Self::Usage => "usage",
            Self::Check => "check",
            Self::Consume => "consume",
            Self::Release => "release",
            Self::Extend => "extend",
            Self::Event => "event",
        }
    }

    /// The call with this word.
    pub fn parse(word: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|call| call.as_str() == word)
    }
}

/// A decision.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Decision {
    /// Its id.
    pub id: Uuid,
    /// When it was made (unix ms).
    pub at_ms: i64,
    /// Whose units were asked for.
    pub tenant: TenantId,
    /// Which call asked.
    pub call: DecidedCall,
    /// The operation, where one was named.
    pub operation: Option<OperationId>,
    /// Whether it was allowed.
    pub is_admitted: bool,
    /// Why it was refused, in the word of its answer; none where it was admitted.
    pub code: Option<String>,
    /// Whether it was only asked, and nothing counted.
    pub is_dry_run: bool,
    /// Whether it was made while the gate was away.
    pub is_degraded: bool,
    /// The version of the policy by which it was made.
    pub policy_version: u64,
    /// Its subjects.
    pub subjects: Vec<DecidedSubject>,
    /// What was asked for, by meter; of a consume or release, what is used up so far.
    pub lines: Vec<DecidedLine>,
    /// Every limit that was consulted; none where no limit counts the work, or no limit could be asked.
    pub limits: Vec<DecidedLimit>,
    /// Its place among those that one instance kept: it orders decisions of one instant.
    pub number: u64,
    /// The reservation that it made or changed; none of a refusal, a dry run and a check.
    pub reservation: Option<DecidedReservation>,
}

/// The code of a call that is refused under a ban, and the cause of a limit that refuses by its ban.
pub const BANNED: &str = "banned";

impl Decision {
    /// Whether it was refused because an admin or a limit had banned the tenant or a subject.
    pub fn is_under_ban(&self) -> bool {
        let banned = |word: &Option<String>| word.as_deref() == Some(BANNED);
        // Another reason may come before the ban in the answer.
        banned(&self.code) || !self.is_admitted && self.limits.iter().any(|limit| banned(&limit.cause))
    }
}

/// A reservation after a decision.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DecidedReservation {
    /// The reservation.
    pub id: Uuid,
    /// Its state.
    pub state: ReservationState,
    /// When its hold ends (unix ms).
    pub expires_at_ms: i64,
}

/// A subject of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DecidedSubject {
    /// Its kind.
    pub kind: String,
    /// A keyed hash of tenant, kind and id: the same for one subject in every decision.
    pub hash: String,
}

/// A line of a decision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedLine {
    /// The meter.
    pub meter: MeterId,
    /// What was asked for.
    pub amount: Amount,
    /// What was granted, where less than that would do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<Amount>,
}

/// What a limit had to say.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DecidedLimit {
    /// Its id; a quota's is `quota:` and the meter.
    pub id: String,
    /// The level that its capacity came from: the one that won.
    pub level: Level,
    /// Its meter.
    pub meter: MeterId,
    /// The kind of the subject that it counts; none where it counts the tenant.
    pub subject_kind: Option<String>,
    /// What it does when it is reached.
    pub kind: Kind,
    /// Its algorithm.
    pub algorithm: String,
    /// Its capacity.
    pub capacity: Amount,
    /// What was used up: with this call's use where it was admitted. None of a limit that counts all tenants: what they
    /// use together is not kept with a decision of one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub consumed: Option<Amount>,
    /// What running work held: with this call's hold where it was admitted. None as above.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reserved: Option<Amount>,
    /// What the call needed of it.
    pub need: Amount,
    /// Whether it refused.
    pub refused: bool,
    /// Why it had no room, in the word of the answer; none where it did not refuse.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cause: Option<String>,
    /// How long to wait (ms), where it refused and waiting helps.
    pub wait_ms: Option<i64>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_call_is_read_by_its_own_word() {
        for call in DecidedCall::ALL {
            assert_eq!(DecidedCall::parse(call.as_str()), Some(call));
        }
        assert_eq!(DecidedCall::parse("refund"), None);
    }

    #[rstest::rstest]
    #[case::said_in_the_answer(Some("banned"), None, false, true)]
    #[case::behind_another_reason(Some("exceeds_plan"), Some("banned"), false, true)]
    #[case::full(Some("rate_limited"), Some("consumed"), false, false)]
    #[case::admitted(None, Some("banned"), true, false)]
    fn a_refusal_is_under_a_ban_whatever_reason_its_answer_says_first(
        #[case] code: Option<&str>,
        #[case] cause: Option<&str>,
        #[case] is_admitted: bool,
        #[case] expected: bool,
    ) {
        let limit = DecidedLimit {
            id: "limit".into(),
            level: Level::Default,
            meter: MeterId::parse("page").unwrap(),
            subject_kind: None,
            kind: Kind::Hard,
            algorithm: "calendar".into(),
            capacity: Amount::ZERO,
            consumed: None,
            reserved: None,
            need: Amount::ZERO,
            refused: cause.is_some(),
            cause: cause.map(str::to_owned),
            wait_ms: None,
        };
        let decision = Decision {
            id: Uuid::nil(),
            at_ms: 0,
            tenant: TenantId::parse("acme").unwrap(),
            call: DecidedCall::Reserve,
            operation: None,
            is_admitted,
            code: code.map(str::to_owned),
            is_dry_run: false,
            is_degraded: false,
            policy_version: 1,
            subjects: Vec::new(),
            lines: Vec::new(),
            limits: vec![limit],
            number: 0,
            reservation: None,
        };
        assert_eq!(decision.is_under_ban(), expected);
    }
}
