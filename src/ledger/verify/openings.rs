//! What months of entries came to that have left the books: nothing of it has changed since.

use diesel_async::AsyncPgConnection;

use super::part::Part;
use super::{Check, Fault};
use crate::domain::ids::Partition;
use crate::ledger::LedgerError;
use crate::ledger::openings::{self, Kept, OpeningChain, OpeningChains};

/// The openings, with the first part, and of each part the entries that its chains have `kept` up to theirs.
pub(super) async fn check(
    connection: &mut AsyncPgConnection,
    part: &Part,
    chains: &OpeningChains,
    kept: &Kept,
) -> Result<Check, LedgerError> {
    let mut check = Check::of("openings are as they were booked");
    if part.partitions.contains(&Partition::FIRST) {
        let mut previous = [0; 32];
        for opening in openings::all(connection).await? {
            check.checked += 1;
            if openings::hash_of(connection, &opening, &previous).await? != opening.hash {
                let named = format!("opening {} of {}", opening.number, opening.month.format("%Y-%m"));
                check.fault(Fault::new(named, "was changed, or one before it: its hash differs"));
            }
            previous = opening.hash;
        }
    }
    for OpeningChain { chain, number, kept_rows, kept_hash, .. } in chains.values() {
        let (rows, hash) = kept.get(chain).copied().unwrap_or_default();
        let named = format!("batches up to {number} of chain {chain}");
        if rows != *kept_rows {
            check.fault(Fault::new(named, format!("have {rows} entries where {kept_rows} stayed")));
        } else if hash != *kept_hash {
            check.fault(Fault::new(named, "an entry of theirs was changed: their hash differs"));
        }
    }
    Ok(check)
}

/// The openings of a part's chains.
pub(super) async fn of_part(
    connection: &mut AsyncPgConnection,
    part: &Part,
) -> Result<OpeningChains, LedgerError> {
    let mut chains = openings::chains(connection).await?;
    let its: Vec<i16> = part.chains().into_iter().map(|chain| chain.number()).collect();
    chains.retain(|chain, _| its.contains(chain));
    Ok(chains)
}
