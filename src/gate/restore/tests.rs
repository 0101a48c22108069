use super::*;
use crate::domain::amount::Decimals;
use crate::domain::counted_meter::CountedMeter;
use crate::domain::ids::MeterId;

fn counter(meters: &[(&str, i64)]) -> NewCounter {
    let counted = |(meter, factor): &(&str, i64)| CountedMeter {
        meter: MeterId::parse(meter).unwrap(),
        decimals: Decimals::default(),
        factor: *factor,
    };
    NewCounter {
        subject: None,
        field: CounterField(*b"month---"),
        meters: meters.iter().map(counted).collect(),
        operations: Some(vec![OperationId::parse("ocr").unwrap()]),
        window_ms: (1_000, 2_000),
    }
}

#[test]
fn a_new_counter_of_one_meter_has_the_bytes_that_versions_without_budgets_read_and_a_budget_further_ones() {
    let [from, to, factor] = [1_000_i64, 2_000, 3].map(i64::to_le_bytes);
    let single = [&b"month---"[..], &from, &to, b"\x04page", &[1, 0], b"\x03ocr"].concat();
    let packed = |packed: &[u8]| [&u32::try_from(packed.len()).unwrap().to_le_bytes()[..], packed].concat();
    assert_eq!(pack_new_counter(&counter(&[("page", 1)])), packed(&single));
    let one = 1_i64.to_le_bytes();
    let budget = [single.as_slice(), b"\x04page", &one, b"\x05token", &factor].concat();
    assert_eq!(pack_new_counter(&counter(&[("page", 1), ("token", 3)])), packed(&budget));
}
