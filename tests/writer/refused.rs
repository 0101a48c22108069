//! Events that the ledger refuses: they alone wait, whatever was read with them.

use tollgate::domain::amount::{Decimals, UNITS_MAX};
use tollgate::domain::ids::TenantId;
use tollgate::ledger::LedgerError;
use tollgate::writer::{Alarm, discard, retry};

use super::apply::assert_proven;
use super::by_hand::{Alarms, Hand, drain, writer};
use crate::ledger::events::{Work, at, partition, tenant};
use crate::ledger::{as_owner, ledger, rows};

const CONSUMED: &str = "SELECT tenant, trunc(consumed)::text AS c FROM balances ORDER BY 1";
const QUARANTINE: &str = "SELECT tenant, sequence, reason LIKE '%balance amounts are bounded%' AS b FROM quarantine WHERE status = 'open'";

/// Usage of so many units of a meter without decimals.
fn usage(tenant: &TenantId, key: &str, units: i64) -> Vec<u8> {
    let mut work = Work::new(tenant, key, &[("byte", units)]);
    work.record.body.lines[0].decimals = Decimals::new(0).unwrap();
    work.usage()
}

/// Tenants of `acme`'s partition and of another one.
fn neighbour_and_other() -> (TenantId, TenantId) {
    let place = partition(&tenant("acme"));
    let found = |is_near| {
        let mut all = (0..).map(|n| tenant(&format!("t{n}")));
        all.find(|tenant| (partition(tenant) == place) == is_near).unwrap()
    };
    (found(true), found(false))
}

#[tokio::test(flavor = "multi_thread")]
async fn the_one_event_that_is_beyond_the_bound_of_a_balance_waits_and_all_others_are_booked() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let (acme, (near, far)) = (tenant("acme"), neighbour_and_other());
    let place = partition(&acme);
    for n in 0..112 {
        hand.append(place, 1, usage(&acme, &format!("job-{n}"), UNITS_MAX));
    }
    hand.append(place, 1, usage(&near, "near", 5));
    hand.append(partition(&far), 1, usage(&far, "far", 7));
    let mut writer = writer(&hand, &ledger, &alarms);
    drain(&mut writer).await;
    let (near_has, far_has) = (format!("{near} 5"), format!("{far} 7"));
    let booked = ["acme 999000000000000000", near_has.as_str(), far_has.as_str()];
    let mut found = rows(&database, CONSUMED).await;
    found.sort_by_key(|row| !row.ends_with('5'));
    found.sort_by_key(|row| !row.starts_with("acme"));
    assert_eq!(found, booked);
    assert_eq!(rows(&database, QUARANTINE).await, ["acme 111 true"]);
    let alarms = alarms.all();
    let [Alarm::Quarantined { outbox_id, .. }] = alarms.as_slice() else { panic!("{alarms:?}") };
    assert_eq!(*outbox_id, at("1-111"));
    assert_proven(&ledger).await;

    // What still fits is booked; what waits is refused again, until somebody discards it.
    hand.append(place, 1, usage(&acme, "small", 1));
    drain(&mut writer).await;
    assert_eq!(rows(&database, CONSUMED).await[0], "acme 999000000000000001");
    let again = retry(&ledger, place, at("1-111"), "test").await.unwrap_err();
    assert!(matches!(again, LedgerError::Refused(_)), "{again}");
    let unbilled = discard(&ledger, place, at("1-111"), "anna", "a faulty reporter").await.unwrap();
    assert!(unbilled.starts_with("9000000000000000 byte of reservation"), "{unbilled}");
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_event_beyond_the_bound_waits_by_itself_and_keeps_its_partition_going() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let (acme, (near, _)) = (tenant("acme"), neighbour_and_other());
    let place = partition(&acme);
    for n in 0..150 {
        hand.append(place, 1, usage(&acme, &format!("job-{n}"), UNITS_MAX));
    }
    hand.append(place, 1, usage(&near, "near", 5));
    drain(&mut writer(&hand, &ledger, &alarms)).await;
    assert_eq!(rows(&database, QUARANTINE).await.len(), 150 - 111);
    let neighbour = format!("SELECT trunc(consumed)::text AS c FROM balances WHERE tenant = '{near}'");
    assert_eq!(rows(&database, &neighbour).await, ["5"]);
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_partition_that_fails_for_another_reason_stands_still_alone_and_loses_nothing() {
    let (database, ledger) = ledger().await;
    let (hand, alarms) = (Hand::default(), Alarms::default());
    let (acme, (_, far)) = (tenant("acme"), neighbour_and_other());
    hand.append(partition(&acme), 1, usage(&acme, "job", 3));
    hand.append(partition(&far), 1, usage(&far, "far", 7));
    let failing = "CREATE FUNCTION fail() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN \
            IF NEW.tenant = 'acme' THEN RAISE EXCEPTION 'failed'; END IF; RETURN NEW; \
        END $$; \
        CREATE TRIGGER fail BEFORE INSERT ON balances FOR EACH ROW EXECUTE FUNCTION fail()";
    as_owner(&database, failing).await.unwrap();
    let mut writer = writer(&hand, &ledger, &alarms);
    assert!(writer.pass().await.unwrap().more, "it is tried again part by part");
    let pass = writer.pass().await.unwrap();
    assert_eq!((pass.applied.events, pass.doubted), (1, true));
    assert_eq!(rows(&database, CONSUMED).await, [format!("{far} 7")]);
    assert!(writer.pass().await.is_err(), "there is nothing else to book");
    as_owner(&database, "DROP FUNCTION fail CASCADE").await.unwrap();
    drain(&mut writer).await;
    assert_eq!(rows(&database, CONSUMED).await, ["acme 3".to_owned(), format!("{far} 7")]);
    assert_eq!((rows(&database, QUARANTINE).await.len(), alarms.all().len()), (0, 0));
    assert_proven(&ledger).await;
}
