//! Anchors the heads of the ledger's hash chains at the gate, and checks the ledger against them.

use std::collections::BTreeMap;

use super::Memory;
use crate::domain::chain::{Chain, ChainHead};
use crate::ledger::chain::BatchAt;
use crate::operations::error::Answer;
use crate::telemetry::labels::Alarm;

/// The result of checking the chains against their anchors.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct AnchorCheck {
    /// How many anchored heads were looked for.
    pub anchors: u64,
    /// Each head that the ledger does not have, by name.
    pub faults: Vec<String>,
}

impl Memory {
    /// Anchors the heads of all chains that have grown, at the gate and in the log. A chain that no longer has its
    /// anchored head keeps that anchor and raises an alarm, unless `reported` contains it.
    pub async fn anchor_chains(&self, reported: &mut BTreeMap<Chain, ChainHead>) -> Answer<()> {
        let (anchors, lost) = self.anchors().await?;
        for (chain, anchored, fault) in &lost {
            if reported.insert(*chain, *anchored) != Some(*anchored) {
                self.core.metrics.alarm(Alarm::Chain);
                tracing::error!(%chain, fault, "the ledger no longer has a batch that was booked");
            }
        }
        let mut grown = Vec::new();
        for (chain, head) in self.core.ledger.chain_heads().await? {
            let is_lost = lost.iter().any(|(of, ..)| *of == chain);
            if !is_lost && anchors.get(&chain).is_none_or(|anchored| anchored.number < head.number) {
                self.core.gate.anchor(chain, head).await?;
                grown.push(format!("{chain}: {head}"));
            }
        }
        if !grown.is_empty() {
            tracing::info!(
                heads = grown.join(", "),
                "anchored: chain, number, entries and hash of its last batch"
            );
        }
        Ok(())
    }

    /// Checks the ledger against the heads that are anchored at the gate.
    pub async fn check_anchors(&self) -> Answer<AnchorCheck> {
        let (anchors, lost) = self.anchors().await?;
        let anchors = u64::try_from(anchors.len()).unwrap_or(u64::MAX);
        Ok(AnchorCheck { anchors, faults: lost.into_iter().map(|(_, _, fault)| fault).collect() })
    }

    /// The anchored heads, and those that the ledger does not have.
    async fn anchors(&self) -> Answer<(BTreeMap<Chain, ChainHead>, Vec<Lost>)> {
        // Read before the ledger: otherwise a batch that is anchored meanwhile would seem to be missing.
        let anchors = self.core.gate.anchors().await?;
        let places: Vec<_> = anchors.iter().map(|(chain, head)| (*chain, head.number)).collect();
        let stored = self.core.ledger.batches_at(&places).await?;
        let mut lost = Vec::new();
        for ((chain, anchored), stored) in anchors.iter().zip(stored) {
            let ChainHead { number, rows, .. } = anchored;
            let how = match stored {
                BatchAt::Found(stored) if stored == *anchored => continue,
                BatchAt::ProvenLater => continue,
                BatchAt::Found(_) => "is another one by now",
                BatchAt::Missing => "is gone",
            };
            let fault = format!(
                "chain {chain}: batch {number} of {rows} entries, which the gate has as booked, {how}"
            );
            lost.push((*chain, *anchored, fault));
        }
        Ok((anchors.into_iter().collect(), lost))
    }
}

/// A chain, its anchored head, and what the ledger has instead.
type Lost = (Chain, ChainHead, String);
