//! Leases: who has one, and until when.

use std::time::Duration;

use tollgate::ledger::lease::Lease;

use super::{as_owner, ledger};

const LASTS: Duration = Duration::from_secs(60);

#[tokio::test(flavor = "multi_thread")]
async fn a_lease_is_held_until_it_ends_and_never_longer_than_it_lasts_also_where_the_clock_went_back() {
    let (database, ledger) = ledger().await;
    let of = |owner: &str| Lease::new(ledger.clone(), "work", owner.to_owned(), LASTS);
    assert!(of("dead").take().await.unwrap());
    assert!(!of("other").take().await.unwrap());
    // It was taken by a clock that was an hour ahead of what it says now.
    as_owner(&database, "UPDATE leases SET expires_at = expires_at + interval '1 hour'").await.unwrap();
    assert!(of("other").take().await.unwrap());
    assert!(!of("dead").take().await.unwrap());
}
