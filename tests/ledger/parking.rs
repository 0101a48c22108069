use std::time::Duration;

use tollgate::domain::ids::ReservationId;

use super::ledger;

const IN_TIME: Duration = Duration::from_secs(10);

#[tokio::test(flavor = "multi_thread")]
async fn a_reservation_that_another_transaction_has_locked_holds_up_only_its_own_calls() {
    let (database, ledger) = ledger().await;
    let [locked, free] = [1, 2].map(|number| {
        ReservationId::from_bytes(std::array::from_fn(|place| if place == 15 { number } else { 7 }))
    });
    let (high, low) = locked.uuid().as_u64_pair();
    let key = i64::from_le_bytes((high ^ low).to_le_bytes());
    let (client, connection) = tokio_postgres::connect(&database.url, tokio_postgres::NoTls).await.unwrap();
    tokio::spawn(connection);
    client.batch_execute(&format!("BEGIN; SELECT pg_advisory_xact_lock({key})")).await.unwrap();
    let waiting: Vec<_> = (0..5)
        .map(|number| {
            let ledger = ledger.clone();
            tokio::spawn(async move { ledger.park(locked, move |_, _| (None, number)).await })
        })
        .collect();
    for number in 0..20 {
        let parked = ledger.park(free, move |known, _| (None, (known.parked.len(), number)));
        assert_eq!(tokio::time::timeout(IN_TIME, parked).await.unwrap().unwrap(), (0, number));
    }
    assert!(waiting.iter().all(|call| !call.is_finished()));
    client.batch_execute("ROLLBACK").await.unwrap();
    for (number, call) in waiting.into_iter().enumerate() {
        assert_eq!(tokio::time::timeout(IN_TIME, call).await.unwrap().unwrap().unwrap(), number);
    }
}
