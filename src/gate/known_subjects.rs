//! The subjects of a tenant that may have had use or holds before its restore: the ledger need not be asked about
//! others.

use crate::domain::reservation::SubjectHash;

/// Of the subjects that had neither, at most 1 in 150 counts as known.
const BITS_PER_SUBJECT: usize = 12;
/// How many bits each subject sets.
const PLACES: u64 = 4;
/// Lengths are multiples of this, so that they share few factors with the steps between bits.
const LENGTH_STEP: usize = 64;

/// The subjects that a restore names.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub enum KnownSubjects {
    /// None had use or holds.
    #[default]
    Nobody,
    /// Those in the filter may have had use or holds.
    Some {
        /// The filter.
        filter: SubjectFilter,
        /// When every window that had begun before the restore has ended (unix ms).
        until_ms: i64,
    },
    /// Any subject may have had use or holds.
    Everybody,
}

/// A set of subjects that contains all its members and perhaps a few others, as `lua/include/knows_subject.lua` reads
/// it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SubjectFilter(Vec<u8>);

impl SubjectFilter {
    /// The filter of these subjects.
    pub fn of(subjects: &[SubjectHash]) -> Self {
        let length = (subjects.len() * BITS_PER_SUBJECT).div_ceil(8).next_multiple_of(LENGTH_STEP);
        let mut filter = Self(vec![0; length.max(LENGTH_STEP)]);
        for subject in subjects {
            for place in filter.places(*subject) {
                if let Some(byte) = filter.0.get_mut(place / 8) {
                    *byte |= 0x80 >> (place % 8);
                }
            }
        }
        filter
    }

    /// Whether the subject is in the filter; a few are without having been added.
    pub fn contains(&self, subject: SubjectHash) -> bool {
        let is_set =
            |place: usize| self.0.get(place / 8).is_some_and(|byte| byte & (0x80 >> (place % 8)) != 0);
        self.places(subject).all(is_set)
    }

    /// Its bits, the first of a byte being the highest.
    pub(super) fn as_bytes(&self) -> &[u8] {
        &self.0
    }

    fn places(&self, subject: SubjectHash) -> impl Iterator<Item = usize> + use<> {
        let digits = &subject.0[1..];
        let sum = |digits: &[u8]| digits.iter().fold(0, |sum: u64, digit| sum * 131 + u64::from(*digit));
        let (start, step) = (sum(&digits[..6]), sum(&digits[6..]));
        let bits = u64::try_from(self.0.len() * 8).unwrap_or(u64::MAX);
        (0..PLACES).filter_map(move |number| usize::try_from((start + number * step) % bits).ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{Subject, SubjectId, SubjectKind, TenantId};
    use crate::gate::keys::Keys;

    #[test]
    fn a_filter_contains_all_of_its_subjects_and_few_others() {
        let (keys, tenant) = (Keys::new(4, 65_536, &[7; 32]), TenantId::parse("acme").unwrap());
        let hash = |number: usize| {
            let id = SubjectId::parse(&format!("user-{number}")).unwrap();
            keys.subject_hash(&tenant, &Subject { kind: SubjectKind::parse("user").unwrap(), id })
        };
        for count in [1, 10, 5_000] {
            let own: Vec<_> = (0..count).map(hash).collect();
            let filter = SubjectFilter::of(&own);
            assert!(own.iter().all(|subject| filter.contains(*subject)));
            let others = (count..count + 20_000).filter(|number| filter.contains(hash(*number))).count();
            assert!(others < 20_000 / 100, "{others} of 20,000 others are in a filter of {count}");
        }
    }
}
