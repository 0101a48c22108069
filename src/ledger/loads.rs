//! Pushed loads: how busy named parts of the installation are, each until its end.

use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use diesel::dsl::count_star;
use diesel::prelude::*;
use diesel::upsert::excluded;
use diesel_async::RunQueryDsl;
use futures::FutureExt;
use serde_json::json;

use super::functions::{clock_timestamp, earlier, interval, later};
use super::schema::pushed_loads;
use super::{BEGIN, Ledger, LedgerError, audit, notices};
use crate::domain::ids::LoadName;
use crate::domain::load::{LoadFactor, LoadSeconds};

/// The kind of notice that announces a push.
pub const LOAD_NOTICE: &str = "load";

/// The most names whose loads hold at once.
pub const LOADS_MAX: i64 = 100;

/// How long an ended load stays before it is dropped.
const KEPT: TimeDelta = TimeDelta::days(1);

/// A pushed load that holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PushedLoad {
    /// Whose load.
    pub name: LoadName,
    /// How busy it is.
    pub factor: LoadFactor,
    /// When it ends, by the database's clock (unix ms).
    pub ends_at_ms: i64,
    /// How long it still holds, by the same clock.
    pub lasts: Duration,
}

type Row = (String, i16, DateTime<Utc>, DateTime<Utc>);

impl Ledger {
    /// Pushes the load of `name` for so long and notifies every instance; an earlier one of the same name is replaced.
    /// None while [`LOADS_MAX`] others hold: then nothing changes.
    pub async fn push_load(
        &self,
        name: LoadName,
        factor: LoadFactor,
        ttl: LoadSeconds,
        actor: &str,
    ) -> Result<Option<PushedLoad>, LedgerError> {
        let actor = actor.to_owned();
        self.transact(BEGIN, move |connection| {
            async move {
                use pushed_loads::{ends_at, factor_thousandths};
                let others = pushed_loads::table
                    .filter(pushed_loads::name.ne(name.as_str()))
                    .filter(ends_at.gt(clock_timestamp()))
                    .select(count_star());
                if others.first::<i64>(connection).await? >= LOADS_MAX {
                    return Ok(None);
                }
                let lasts = interval(Duration::from_secs(u64::from(ttl.get())));
                let thousandths = i16::try_from(factor.thousandths()).unwrap_or(i16::MAX);
                let values = (
                    pushed_loads::name.eq(name.as_str()),
                    factor_thousandths.eq(thousandths),
                    ends_at.eq(later(clock_timestamp(), lasts)),
                );
                let insert = diesel::insert_into(pushed_loads::table)
                    .values(values)
                    .on_conflict(pushed_loads::name)
                    .do_update()
                    .set((factor_thousandths.eq(excluded(factor_thousandths)), ends_at.eq(excluded(ends_at))))
                    .returning((pushed_loads::name, factor_thousandths, ends_at, clock_timestamp()));
                let pushed = read(insert.get_result(connection).await?)?;
                let detail = json!({ "factor": factor, "ttl_seconds": ttl });
                audit::note(connection, &actor, "put", &format!("load {name}"), detail).await?;
                notices::tell(connection, LOAD_NOTICE, name.as_str(), 0).await?;
                Ok(Some(pushed))
            }
            .boxed()
        })
        .await
    }

    /// The pushed loads that hold now, by name.
    pub async fn pushed_loads(&self) -> Result<Vec<PushedLoad>, LedgerError> {
        use pushed_loads::{ends_at, factor_thousandths, name};
        let rows: Vec<Row> = self
            .load(|| {
                let holding = pushed_loads::table.filter(ends_at.gt(clock_timestamp()));
                holding.order(name).select((name, factor_thousandths, ends_at, clock_timestamp()))
            })
            .await?;
        rows.into_iter().map(read).collect()
    }

    /// Drops loads that ended long ago. Returns how many.
    pub async fn drop_pushed_loads(&self) -> Result<usize, LedgerError> {
        let ended = pushed_loads::table.filter(pushed_loads::ends_at.lt(earlier(clock_timestamp(), KEPT)));
        self.execute(diesel::delete(ended)).await
    }
}

fn read((name, thousandths, ends_at, now): Row) -> Result<PushedLoad, LedgerError> {
    let name = LoadName::parse(&name).map_err(|error| LedgerError::Damaged(format!("{name:?}: {error}")))?;
    Ok(PushedLoad {
        name,
        factor: LoadFactor::from_thousandths(u16::try_from(thousandths).unwrap_or_default()),
        ends_at_ms: ends_at.timestamp_millis(),
        lasts: (ends_at - now).to_std().unwrap_or_default(),
    })
}
