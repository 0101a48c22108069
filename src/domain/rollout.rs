//! To whom a partly rolled out limit applies: a share of its tenants or subjects that is always the same, on every
//! instance.

use super::ids::{LimitId, Subject, TenantId};
use super::limit::Percent;

/// Whether a limit at this percentage applies to the tenant as a whole, or to one of its subjects. While the percentage
/// rises, it goes on applying to all to whom it applied.
pub fn is_rolled_out(
    percent: Percent,
    limit: &LimitId,
    tenant: &TenantId,
    subject: Option<&Subject>,
) -> bool {
    percent.get() >= 100 || place(limit, tenant, subject) < u64::from(percent.get())
}

/// The percentage above which it applies: the first eight bytes, little-endian, of the BLAKE3 hash of limit, tenant,
/// subject's kind and subject's id, each followed by a zero byte, modulo 100.
fn place(limit: &LimitId, tenant: &TenantId, subject: Option<&Subject>) -> u64 {
    let kind = subject.map_or("", |subject| subject.kind.as_str());
    let id = subject.map_or("", |subject| subject.id.as_str());
    let mut hasher = blake3::Hasher::new();
    for part in [limit.as_str(), tenant.as_str(), kind, id] {
        hasher.update(part.as_bytes());
        hasher.update(&[0]);
    }
    let mut first = [0; 8];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..8]);
    u64::from_le_bytes(first) % 100
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::ids::{SubjectId, SubjectKind};

    fn place_of(limit: &str, tenant: &str, subject: Option<(&str, &str)>) -> u64 {
        let subject = subject.map(|(kind, id)| Subject {
            kind: SubjectKind::parse(kind).unwrap(),
            id: SubjectId::parse(id).unwrap(),
        });
        place(&LimitId::parse(limit).unwrap(), &TenantId::parse(tenant).unwrap(), subject.as_ref())
    }

    #[test]
    fn places_stay_what_they_have_always_been() {
        let places = [
            place_of("day", "acme", None),
            place_of("day", "beta", None),
            place_of("day", "acme", Some(("user", "ada"))),
            place_of("day", "acme", Some(("user", "bob"))),
            place_of("hour", "acme", Some(("user", "ada"))),
        ];
        assert_eq!(places, [37, 44, 11, 1, 63]);
    }

    #[test]
    fn a_share_is_about_as_large_as_it_is_said_to_be_and_only_grows() {
        let limit = LimitId::parse("day").unwrap();
        let tenants: Vec<TenantId> =
            (0..10_000).map(|n| TenantId::parse(&format!("tenant-{n}")).unwrap()).collect();
        let mut before = 0;
        for percent in [0, 1, 10, 50, 99, 100_u8] {
            let percent_of = Percent::new(percent).unwrap();
            let share =
                tenants.iter().filter(|tenant| is_rolled_out(percent_of, &limit, tenant, None)).count();
            assert!(share.abs_diff(100 * usize::from(percent)) <= 200, "{share} at {percent} %");
            assert!(share >= before);
            before = share;
        }
        assert_eq!(before, 10_000, "all at 100 %");
        let none = Percent::new(0).unwrap();
        assert!(!tenants.iter().any(|tenant| is_rolled_out(none, &limit, tenant, None)));
    }
}
