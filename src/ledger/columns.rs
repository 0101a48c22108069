//! Reads columns as the types that they mean, and checks them here, once for all tables.

use chrono::{DateTime, Utc};
use diesel::deserialize::{self, FromSqlRow, Queryable, QueryableByName};
use diesel::expression::AsExpression;
use diesel::pg::Pg;
use diesel::row::NamedRow;
use diesel::serialize::{self, Output, ToSql};
use diesel::sql_types::{self, BigInt, Binary, Integer, Nullable, SmallInt, Text, Timestamptz};

use super::number;
use crate::domain::ids::{
    Epoch, MeterId, OperationId, OutboxId, Partition, ReservationId, SubjectId, SubjectKind, TenantId,
};

/// Reads a column of an SQL type as one of our types.
macro_rules! reads {
    ($column:ty => $ours:ty, |$stored:ident: $theirs:ty| $read:expr) => {
        impl ::diesel::deserialize::FromSql<$column, ::diesel::pg::Pg> for $ours {
            fn from_sql(bytes: ::diesel::pg::PgValue<'_>) -> ::diesel::deserialize::Result<Self> {
                ::diesel::deserialize::FromSql::<$column, ::diesel::pg::Pg>::from_nullable_sql(Some(bytes))
            }

            fn from_nullable_sql(
                bytes: Option<::diesel::pg::PgValue<'_>>,
            ) -> ::diesel::deserialize::Result<Self> {
                let $stored: $theirs =
                    ::diesel::deserialize::FromSql::<$column, ::diesel::pg::Pg>::from_nullable_sql(bytes)?;
                Ok($read)
            }
        }
    };
}

pub(super) use reads;

/// Stores one of our types in a column, or compares it with one, as the SQL type of the database.
macro_rules! binds {
    ($ours:ty => $column:ty, |$value:ident| $stored:expr) => {
        impl ToSql<$column, Pg> for $ours {
            fn to_sql<'b>(&'b self, out: &mut Output<'b, '_, Pg>) -> serialize::Result {
                let $value = self;
                ToSql::<$column, Pg>::to_sql(&$stored, &mut out.reborrow())
            }
        }
    };
}

/// Names are stored as their text.
macro_rules! names {
    ($($ours:ty),*) => {
        $(
            reads!(Text => $ours, |text: String| {
                <$ours>::parse(&text).map_err(|error| format!("{text:?}: {error}"))?
            });
            binds!($ours => Text, |name| *name.as_str());
        )*
    };
}

names!(TenantId, MeterId, OperationId, SubjectKind, SubjectId);

reads!(sql_types::Uuid => ReservationId, |id: uuid::Uuid| Self::from_bytes(id.into_bytes()));
binds!(ReservationId => sql_types::Uuid, |id| id.uuid());

reads!(SmallInt => Partition, |stored: i16| number::partition(stored)?);
binds!(Partition => SmallInt, |partition| number::of_partition(*partition));

reads!(BigInt => Epoch, |stored: i64| Self(number::unsigned(stored)?));
binds!(Epoch => BigInt, |epoch| number::signed(epoch.0));

/// The domain does not import Diesel, so its types become expressions here.
#[allow(dead_code, reason = "each only names the type that is derived for")]
mod expressions {
    use super::*;

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = Text)]
    struct OfTenant(TenantId);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = Text)]
    struct OfMeter(MeterId);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = Text)]
    struct OfOperation(OperationId);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = Text)]
    struct OfSubjectKind(SubjectKind);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = Text)]
    struct OfSubject(SubjectId);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = sql_types::Uuid)]
    struct OfReservation(ReservationId);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = SmallInt)]
    struct OfPartition(Partition);

    #[derive(AsExpression, FromSqlRow)]
    #[diesel(foreign_derive, sql_type = BigInt)]
    struct OfEpoch(Epoch);
}

/// An epoch and a sequence, side by side.
impl Queryable<(BigInt, BigInt), Pg> for OutboxId {
    type Row = (Epoch, Unsigned);

    fn build((epoch, sequence): Self::Row) -> deserialize::Result<Self> {
        Ok(Self { epoch, sequence: sequence.0 })
    }
}

/// The columns `epoch` and `sequence`.
impl QueryableByName<Pg> for OutboxId {
    fn build<'a>(row: &impl NamedRow<'a, Pg>) -> deserialize::Result<Self> {
        let epoch = NamedRow::get::<BigInt, Epoch>(row, "epoch")?;
        let sequence = NamedRow::get::<BigInt, Unsigned>(row, "sequence")?;
        Ok(Self { epoch, sequence: sequence.0 })
    }
}

/// Reads a column as a Rust type that Diesel does not map by itself: named in `deserialize_as`.
macro_rules! stands_for {
    ($(#[$doc:meta])* $name:ident($plain:ty), $column:ty, |$stored:ident: $theirs:ty| $read:expr) => {
        $(#[$doc])*
        #[derive(Debug, PartialEq, Eq, FromSqlRow)]
        pub struct $name(pub(crate) $plain);

        reads!($column => $name, |$stored: $theirs| Self($read));

        impl From<$name> for $plain {
            fn from(stored: $name) -> Self {
                stored.0
            }
        }
    };
}

stands_for! {
    /// A count: never negative.
    Unsigned(u64), BigInt, |stored: i64| number::unsigned(stored)?
}
stands_for! {
    /// A small count: never negative.
    Small(u32), Integer, |stored: i32| number::small(stored)?
}
stands_for! {
    /// An instant, in unix milliseconds.
    Milliseconds(i64), Timestamptz, |at: DateTime<Utc>| at.timestamp_millis()
}
stands_for! {
    /// An instant, in unix microseconds.
    Microseconds(i64), Timestamptz, |at: DateTime<Utc>| at.timestamp_micros()
}
stands_for! {
    /// A hash of 32 bytes.
    Hash([u8; 32]), Binary, |bytes: Vec<u8>| number::hash(bytes)?
}
stands_for! {
    /// An instant, in unix milliseconds, or none.
    MillisecondsIfAny(Option<i64>), Nullable<Timestamptz>, |at: Option<DateTime<Utc>>| at.map(|at| at.timestamp_millis())
}
stands_for! {
    /// A hash of 32 bytes, or none.
    HashIfAny(Option<[u8; 32]>), Nullable<Binary>, |bytes: Option<Vec<u8>>| bytes.map(number::hash).transpose()?
}
stands_for! {
    /// Bytes; empty for none.
    BytesIfAny(Vec<u8>), Nullable<Binary>, |bytes: Option<Vec<u8>>| bytes.unwrap_or_default()
}
