//! The journal: books the movements of operations and jobs in the caller's transaction. Entries, hash chains, balances
//! and hourly usage change together or not at all.

use std::num::TryFromIntError;

use chrono::{DateTime, Utc};
use diesel::QueryableByName;
use diesel::sql_types::{SmallInt, Timestamptz};
use diesel_async::{AsyncPgConnection, RunQueryDsl};
use futures::try_join;

use super::balances::{self, BalanceChanges};
use super::chain::{self, Batch, Chain, Heads};
use super::prepared::sql_query;
use super::usage::{self, UsageChanges};
use super::{LedgerError, entries, number};
use crate::domain::entry::Posting;
use crate::domain::ids::Partition;
use crate::domain::statement::BookHead;

/// Appends a batch of postings to each chain, after its head. Returns how many entries were written. Before it reads
/// the heads, the caller must lock what serialises the users of the chains: for an outbox's chain the partition's
/// cursor.
///
/// Sends a constant number of statements together, however many postings there are.
pub(crate) async fn post(
    connection: &AsyncPgConnection,
    parts: Vec<(Chain, Vec<Posting>)>,
    heads: &Heads,
    booked_at: DateTime<Utc>,
) -> Result<usize, LedgerError> {
    let (mut balances, mut usage) = (BalanceChanges::default(), UsageChanges::default());
    let mut batches = Vec::with_capacity(parts.len());
    for (chain, postings) in parts {
        let mut entries = Vec::new();
        for posting in &postings {
            balances.add(posting);
            usage.add(posting);
            entries.extend(posting.entries().map_err(too_many)?);
        }
        let head = heads.get(&chain).copied().unwrap_or_default();
        batches.push(Batch { chain, head, rows: entries });
    }
    batches.retain(|batch| !batch.rows.is_empty());
    let count = batches.iter().map(|batch| batch.rows.len()).sum();
    // Hashes the batches while the database does the other work.
    try_join!(
        balances::add(connection, &balances),
        usage::add(connection, &usage),
        append(connection, batches, booked_at)
    )?;
    Ok(count)
}

/// Posts what no event of the outbox caused, to the partition's second chain, which it locks.
pub(crate) async fn post_beside_outbox(
    connection: &mut AsyncPgConnection,
    partition: Partition,
    postings: Vec<Posting>,
) -> Result<(), LedgerError> {
    if postings.iter().all(Posting::is_empty) {
        return Ok(());
    }
    let chain = Chain::Other(partition);
    let locked = lock_other(connection, chain).await?;
    let heads = chain::heads(connection, &[chain]).await?;
    post(connection, vec![(chain, postings)], &heads, locked.booked_at).await?;
    Ok(())
}

/// The heads of a partition's chains, the second of which it locks. The caller has locked the partition's cursor, and
/// so the first.
pub(crate) async fn lock_heads(
    connection: &mut AsyncPgConnection,
    partition: Partition,
) -> Result<Vec<BookHead>, LedgerError> {
    lock_other(connection, Chain::Other(partition)).await?;
    let heads = chain::heads(connection, &Chain::of(partition)).await?;
    let head = |chain: Chain| {
        let head = heads.get(&chain)?;
        let hash = blake3::Hash::from_bytes(head.hash).to_hex().to_string();
        Some(number::unsigned(head.number).map(|number| BookHead { chain: chain.number(), number, hash }))
    };
    Chain::of(partition).into_iter().filter_map(head).collect()
}

async fn lock_other(connection: &mut AsyncPgConnection, chain: Chain) -> Result<Locked, LedgerError> {
    let lock = sql_query(include_str!("sql/lock_other_chain.sql")).bind::<SmallInt, _>(chain.number());
    Ok(lock.get_result(connection).await?)
}

#[derive(QueryableByName)]
struct Locked {
    #[diesel(sql_type = Timestamptz)]
    booked_at: DateTime<Utc>,
}

fn too_many(_: TryFromIntError) -> LedgerError {
    LedgerError::Refused("an operation moves more at once than its entries can be numbered".into())
}

async fn append(
    connection: &AsyncPgConnection,
    mut batches: Vec<Batch>,
    booked_at: DateTime<Utc>,
) -> Result<(), LedgerError> {
    if batches.is_empty() {
        return Ok(());
    }
    let hashes = chain::seal(&mut batches, booked_at);
    try_join!(
        chain::append(connection, &batches, &hashes, booked_at),
        entries::insert(connection, &batches, booked_at)
    )?;
    Ok(())
}
