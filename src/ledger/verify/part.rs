//! Parts of the books for verification: some partitions each, with all their tenants. Each part is read as of an
//! instant of its own, because a long snapshot keeps Postgres from removing old row versions.

use std::collections::{BTreeMap, HashMap};

use diesel::QueryableByName;
use diesel::sql_types::{BigInt, Text};
use diesel_async::{AsyncPgConnection, RunQueryDsl};

use crate::domain::ids::{PARTITIONS_MAX, Partition, TenantId};
use crate::ledger::chain::{self, Chain};
use crate::ledger::prepared::sql_query;
use crate::ledger::{Ledger, LedgerError, number};

/// The number of a batch, by chain.
pub(super) type BatchNumbers = BTreeMap<i16, i64>;

/// Partitions that are verified together.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) partitions: Vec<Partition>,
    /// Every tenant with anything in their books.
    pub(super) tenants: Vec<String>,
    /// The last batches of their chains; none has an entry of another part's tenants.
    pub(super) heads: BatchNumbers,
}

impl Part {
    pub(super) fn chains(&self) -> Vec<Chain> {
        self.partitions.iter().copied().flat_map(Chain::of).collect()
    }
}

#[derive(QueryableByName)]
struct TenantRow {
    #[diesel(sql_type = Text)]
    tenant: String,
}

#[derive(QueryableByName)]
struct Size {
    #[diesel(sql_type = BigInt)]
    bytes: i64,
}

/// Parts with about so many bytes of entries each, as this transaction sees them.
pub(super) async fn read(
    ledger: &Ledger,
    connection: &mut AsyncPgConnection,
    bytes_each: u64,
) -> Result<Vec<Part>, LedgerError> {
    let installed = ledger.partitions().await?;
    let size: Size = sql_query(include_str!("../sql/size_of_entries.sql")).get_result(connection).await?;
    let count = number::unsigned(size.bytes)? / bytes_each.max(1) + 1;
    let rows: Vec<TenantRow> =
        sql_query(include_str!("../sql/tenants_of_books.sql")).load(connection).await?;
    let mut tenants: HashMap<u16, Vec<String>> = HashMap::new();
    for TenantRow { tenant } in rows {
        // A tenant id that cannot exist is in no partition: it is verified with the first.
        let partition =
            TenantId::parse(&tenant).map_or(0, |tenant| Partition::of(&tenant, installed).number());
        tenants.entry(partition).or_default().push(tenant);
    }
    let mut parts = Vec::new();
    for partitions in split(installed, count) {
        let chains: Vec<Chain> = partitions.iter().copied().flat_map(Chain::of).collect();
        let heads = chain::heads(connection, &chains).await?;
        let tenants = partitions.iter().filter_map(|partition| tenants.remove(&partition.number())).flatten();
        parts.push(Part {
            tenants: tenants.collect(),
            heads: heads.into_iter().map(|(chain, head)| (chain.number(), head.number)).collect(),
            partitions,
        });
    }
    Ok(parts)
}

/// Splits the partitions into at most `count` parts of equal length. Numbers that are not in use, which only tampering
/// can bring in, are in the last part.
fn split(installed: u16, count: u64) -> Vec<Vec<Partition>> {
    let each = u64::from(installed).div_ceil(count.max(1)).max(1);
    let used: Vec<Partition> = Partition::all(installed).collect();
    let mut parts: Vec<_> =
        used.chunks(usize::try_from(each).unwrap_or(usize::MAX)).map(<[Partition]>::to_vec).collect();
    if let Some(last) = parts.last_mut() {
        last.extend(Partition::all(PARTITIONS_MAX).skip(usize::from(installed)));
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[rstest::rstest]
    #[case::small_books(4, 1, &[4])]
    #[case::in_halves(4, 2, &[2, 2])]
    #[case::the_rest_in_the_last(5, 3, &[2, 2, 1])]
    #[case::more_parts_than_partitions(3, 1_000_000, &[1, 1, 1])]
    fn every_number_of_a_partition_is_in_one_part(
        #[case] installed: u16,
        #[case] count: u64,
        #[case] used: &[usize],
    ) {
        let parts = split(installed, count);
        let in_use = |part: &Vec<Partition>| part.iter().filter(|of| of.number() < installed).count();
        assert_eq!(parts.iter().map(in_use).collect::<Vec<_>>(), used);
        assert_eq!(parts.concat(), Partition::all(PARTITIONS_MAX).collect::<Vec<_>>());
    }
}
