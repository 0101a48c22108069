use tollgate::domain::amount::{Decimals, Units};
use tollgate::domain::counted_meter::CountedMeter;
use tollgate::domain::ids::OperationId;
use tollgate::ledger::{
    Conflict, CounterAsk, Ledger, LedgerError, OpenedPeriod, QuotaCapacity, QuotaPeriod, RestoreAsk,
};

use super::events::{
    HOUR_MS, PERIOD_END_MS, PERIOD_START_MS, Work, at, including, meter, partition, tenant, units, user,
};
use super::{as_owner, ledger, rows};
use crate::writer::apply::{assert_proven, book};

const PERIOD: (i64, i64) = (PERIOD_START_MS, PERIOD_END_MS);

fn decimals() -> Decimals {
    Decimals::new(2).unwrap()
}

/// The period in which this is included, as the first version of its tenant says.
fn a_period(included: i64) -> QuotaPeriod {
    QuotaPeriod { decimals: decimals(), period_ms: PERIOD, terms: including(included), tenant_version: 1 }
}

const TENANT: &str = "INSERT INTO tenants (id, partition, version, definition) VALUES ('acme', 0, 1, '{}')";

async fn used() -> (crate::support::services::TestDatabase, Ledger, Work) {
    let (database, ledger) = ledger().await;
    as_owner(&database, TENANT).await.unwrap();
    let acme = tenant("acme");
    let open = Work::new(&acme, "open", &[("ocr.page", 600)]).named(&[user("anna")]);
    let mut done =
        Work::new(&acme, "done", &[("ocr.page", 500), ("llm.token", 40)]).named(&[user("ben"), user("anna")]);
    let mut before = Work::new(&acme, "before", &[("ocr.page", 30)]);
    before.rest().hour_start_ms = HOUR_MS - 3_600_000;
    before.rest().operation = None;
    let events = vec![open.reserve(), done.reserve(), done.consume(&[250, 40], true), before.usage()];
    book(&ledger, &acme, "1-0", events).await.unwrap();
    (database, ledger, open)
}

fn counted(name: &str, factor: i64) -> CountedMeter {
    CountedMeter { meter: meter(name), decimals: decimals(), factor }
}

fn ask(subject: Option<&str>, operations: Option<&[&str]>, hours: i64) -> CounterAsk {
    CounterAsk {
        meters: vec![counted("ocr.page", 1)],
        subject: subject.map(user),
        operations: operations
            .map(|list| list.iter().map(|name| OperationId::parse(name).unwrap()).collect()),
        window_start_ms: HOUR_MS - (hours - 1) * 3_600_000,
        window_end_ms: HOUR_MS + 3_600_000,
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tenant_is_restored_with_its_holds_and_counters_as_of_one_instant() {
    let (_database, ledger, open) = used().await;
    let acme = tenant("acme");
    let mut budget = ask(None, None, 2);
    budget.meters.push(counted("llm.token", 5));
    let counters = vec![
        ask(None, None, 1),
        ask(None, None, 2),
        ask(Some("anna"), None, 2),
        ask(Some("ben"), None, 2),
        ask(Some("nobody"), None, 2),
        ask(None, Some(&["ocr.submit"]), 2),
        ask(None, Some(&["other"]), 2),
        budget,
    ];
    let quotas = vec![
        (meter("ocr.page"), decimals(), PERIOD_START_MS),
        (meter("llm.token"), decimals(), PERIOD_START_MS),
    ];
    ledger.open_quota_period(&acme, &meter("ocr.page"), &a_period(100_000)).await.unwrap();
    let ask = RestoreAsk {
        counters,
        quotas,
        with_open: true,
        latest_since_ms: HOUR_MS - 86_400_000,
        subjects_max: Some(2),
        ..RestoreAsk::default()
    };
    let told = ledger.read_tenant(partition(&acme), &acme, &ask).await.unwrap();
    assert_eq!(told.cursor, at("1-3"));
    assert_eq!(told.open.iter().map(|(id, _)| *id).collect::<Vec<_>>(), [open.id]);
    assert_eq!(told.open[0].1.units, open.record.units);
    let figures: Vec<i64> = told.counters.iter().map(|units| units.get()).collect();
    assert_eq!(figures, [250, 280, 250, 250, 0, 250, 0, 480]);
    assert_eq!(told.quotas[0].capacity.as_ref().unwrap().parts, [(PERIOD_START_MS, units(100_000))]);
    assert_eq!((told.quotas[0].consumed, told.quotas[1].consumed), (units(280), units(40)));
    assert_eq!(told.quotas[1].capacity, None);
    assert_eq!(told.latest_at_ms, Some(HOUR_MS));
    let nobody = ledger
        .read_tenant(partition(&tenant("new")), &tenant("new"), &RestoreAsk { with_open: true, ..ask })
        .await
        .unwrap();
    assert_eq!((nobody.open.len(), nobody.latest_at_ms), (0, None));
    assert!(nobody.counters.iter().all(|units| units.get() == 0));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_figure_beyond_the_largest_amount_is_that_amount_and_leaves_the_others_as_they_are() {
    let (_database, ledger) = ledger().await;
    let acme = tenant("acme");
    let most = Units::MAX.get();
    let mut works = ["a", "b"].map(|key| Work::new(&acme, key, &[("ocr.page", most), ("llm.token", 40)]));
    let events = works.iter_mut().map(Work::usage).collect();
    book(&ledger, &acme, "1-0", events).await.unwrap();
    let tokens = |factor| CounterAsk { meters: vec![counted("llm.token", factor)], ..ask(None, None, 1) };
    let quota = |name| (meter(name), decimals(), PERIOD_START_MS);
    let ask = RestoreAsk {
        counters: vec![ask(None, None, 1), tokens(most), tokens(2)],
        quotas: vec![quota("ocr.page"), quota("llm.token")],
        ..RestoreAsk::default()
    };
    let told = ledger.read_tenant(partition(&acme), &acme, &ask).await.unwrap();
    assert_eq!(told.counters, [Units::MAX, Units::MAX, units(160)]);
    assert_eq!([told.quotas[0].consumed, told.quotas[1].consumed], [Units::MAX, units(80)]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_quotas_period_opens_once_however_many_ask() {
    let (database, ledger) = ledger().await;
    as_owner(&database, TENANT).await.unwrap();
    let acme = tenant("acme");
    let page = meter("ocr.page");
    let open = async |included| ledger.open_quota_period(&acme, &page, &a_period(included)).await;
    let asked = tokio::join!(open(5_000), open(5_000), open(5_000));
    let capacity = QuotaCapacity {
        version: u64::try_from(PERIOD_START_MS / 1000).unwrap(),
        parts: vec![(PERIOD_START_MS, units(5_000))],
        bounds_ms: Vec::new(),
        until_ms: PERIOD_END_MS,
    };
    let opened = [asked.0, asked.1, asked.2].map(Result::unwrap);
    assert!(opened.iter().all(|opened| opened.capacity == capacity), "{opened:?}");
    assert_eq!(opened.iter().filter(|opened| opened.is_new).count(), 1, "{opened:?}");
    let as_opened = OpenedPeriod { capacity, is_new: false };
    assert_eq!(open(9_000).await.unwrap(), as_opened, "what it was opened with stands");
    let entries = "SELECT credit, debit, amount::float8 AS a, class, chain > 255 AS other FROM entries";
    assert_eq!(rows(&database, entries).await, ["granted available 50 grant true"]);
    let balance = &ledger.balances_of(&acme, HOUR_MS).await.unwrap()[0];
    assert_eq!((balance.included.unwrap().to_string(), balance.period_ms), ("50.000000000".into(), PERIOD));
    ledger.open_quota_period(&acme, &meter("nothing"), &a_period(0)).await.unwrap();
    assert_proven(&ledger).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_period_is_not_opened_by_what_an_older_version_of_its_tenant_said() {
    let (database, ledger) = ledger().await;
    as_owner(&database, TENANT).await.unwrap();
    let (acme, page) = (tenant("acme"), meter("ocr.page"));
    as_owner(&database, "UPDATE tenants SET version = 2").await.unwrap();
    let refused = ledger.open_quota_period(&acme, &page, &a_period(5_000)).await.unwrap_err();
    let LedgerError::Conflict(Conflict::TenantMoved { tenant, found }) = refused else {
        panic!("{refused:?}")
    };
    assert_eq!((tenant, found), (acme.clone(), 2));
    assert_eq!(rows(&database, "SELECT meter FROM balances").await, [""; 0]);
    let by_now = QuotaPeriod { tenant_version: 2, ..a_period(9_000) };
    let opened = ledger.open_quota_period(&acme, &page, &by_now).await.unwrap();
    let late = ledger.open_quota_period(&acme, &page, &a_period(5_000)).await.unwrap();
    assert_eq!((opened.capacity.at(HOUR_MS), opened.is_new), (Some(units(9_000)), true));
    assert_eq!(late, OpenedPeriod { is_new: false, ..opened }, "what is open is told to anybody");
}
