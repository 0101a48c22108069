//! Functions of Postgres that typed queries call.

use chrono::TimeDelta;
use diesel::sql_types::{Date, Integer, Interval, Nullable, SingleValue, Text, Timestamptz};

diesel::define_sql_function! {
    /// The current time.
    fn clock_timestamp() -> Timestamptz;
}

diesel::define_sql_function! {
    /// When the transaction began.
    fn transaction_timestamp() -> Timestamptz;
}

diesel::define_sql_function! {
    /// The operator `+`.
    #[sql_name = "timestamptz_pl_interval"]
    fn later(at: Timestamptz, by: Interval) -> Timestamptz;
}

diesel::define_sql_function! {
    /// The operator `-`.
    #[sql_name = "timestamptz_mi_interval"]
    fn earlier(at: Timestamptz, by: Interval) -> Timestamptz;
}

diesel::define_sql_function! {
    /// The first argument that is not null.
    fn coalesce<T: SingleValue>(first: Nullable<T>, otherwise: T) -> T;
}

diesel::define_sql_function! {
    /// The larger of two.
    fn greatest<T: SingleValue>(one: T, other: T) -> T;
}

diesel::define_sql_function! {
    /// The smaller of two.
    fn least<T: SingleValue>(one: T, other: T) -> T;
}

diesel::define_sql_function! {
    /// Creates a month's partition of the entries, unless it exists. Returns whether it did.
    fn ensure_entries_month(month: Date) -> Bool;
}

diesel::define_sql_function! {
    /// Drops the decisions of the days before. Returns how many days.
    fn drop_decisions_before(day: Date) -> Integer;
}

diesel::define_sql_function! {
    /// A text's part with this number, from 1, when `delimiter` separates the parts.
    fn split_part(text: Text, delimiter: Text, number: Integer) -> Text;
}

diesel::define_sql_function! {
    /// Whether a text begins with another.
    fn starts_with(text: Text, beginning: Text) -> Bool;
}

/// A duration as Postgres adds it. One too long for it does not occur.
pub(crate) fn interval(duration: std::time::Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
