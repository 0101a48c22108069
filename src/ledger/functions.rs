//! Functions of Postgres that typed queries call.

use chrono::TimeDelta;
use diesel::sql_types::{Date, Integer, Interval, Nullable, SingleValue, Text, Timestamptz};

diesel::define_sql_function! {
    /// What time it is.
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
    /// The first that there is.
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
    /// Makes a month's partition of the entries, unless it is there. Says whether it did.
    fn ensure_entries_month(month: Date) -> Bool;
}

diesel::define_sql_function! {
    /// The part of a text with this number, from 1, where `delimiter` parts them.
    fn split_part(text: Text, delimiter: Text, number: Integer) -> Text;
}

diesel::define_sql_function! {
    /// Whether a text begins so.
    fn starts_with(text: Text, beginning: Text) -> Bool;
}

/// A duration as Postgres adds it; none that is too long for it occurs.
pub(crate) fn interval(duration: std::time::Duration) -> TimeDelta {
    TimeDelta::from_std(duration).unwrap_or(TimeDelta::MAX)
}
