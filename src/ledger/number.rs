//! Converts numbers at the database's boundary: it has only signed ones.

use rust_decimal::Decimal;

use super::LedgerError;
use crate::domain::amount::{Amount, Decimals, InvalidAmount, Units};
use crate::domain::ids::{Partition, TenantId};

/// A stored number that cannot be negative.
pub(crate) fn unsigned(value: i64) -> Result<u64, LedgerError> {
    u64::try_from(value)
        .map_err(|_| LedgerError::Damaged(format!("{value} where only zero and above make sense")))
}

/// The number as the database takes it. Counts beyond its range do not occur.
pub(crate) fn signed(value: u64) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A page's length as the database takes it.
pub(crate) fn limit(value: usize) -> i64 {
    i64::try_from(value).unwrap_or(i64::MAX)
}

/// A partition's number as the database takes it.
pub(crate) fn of_partition(partition: Partition) -> i16 {
    i16::try_from(partition.number()).unwrap_or(i16::MAX)
}

/// A stored partition.
pub(crate) fn partition(value: i16) -> Result<Partition, LedgerError> {
    u16::try_from(value)
        .ok()
        .and_then(Partition::new)
        .ok_or_else(|| LedgerError::Damaged(format!("{value} is not a partition")))
}

/// A stored hash.
pub(crate) fn hash(bytes: Vec<u8>) -> Result<[u8; 32], LedgerError> {
    bytes.try_into().map_err(|_| LedgerError::Damaged("a hash does not have 32 bytes".into()))
}

/// A stored step, line or leg.
pub(crate) fn small<T: TryFrom<i32>>(value: i32) -> Result<T, LedgerError> {
    T::try_from(value).map_err(|_| LedgerError::Damaged(format!("{value} is out of range")))
}

/// A stored tenant id.
pub(crate) fn tenant(text: &str) -> Result<TenantId, LedgerError> {
    TenantId::parse(text).map_err(|_| LedgerError::Damaged(format!("{text:?} is not a tenant id")))
}

/// A stored amount as the gate counts it.
pub(crate) fn units(amount: Decimal, decimals: Decimals) -> Result<Units, LedgerError> {
    whole_units(amount, decimals)
        .map_err(|error| LedgerError::Damaged(format!("the stored amount {amount} {error}")))
}

/// A stored sum as the gate counts it. One beyond the largest amount is the largest: its counter is full, and those
/// beside it can be restored.
pub(crate) fn summed_units(sum: Decimal, decimals: Decimals) -> Result<Units, LedgerError> {
    match whole_units(sum, decimals) {
        Err(InvalidAmount::TooLarge) => Ok(Units::MAX),
        Err(error) => Err(LedgerError::Damaged(format!("the stored sum {sum} {error}"))),
        Ok(units) => Ok(units),
    }
}

fn whole_units(amount: Decimal, decimals: Decimals) -> Result<Units, InvalidAmount> {
    Amount::from_decimal(amount).and_then(|amount| amount.to_units(decimals))
}
