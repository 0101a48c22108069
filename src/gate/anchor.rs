//! Anchors: the heads of the ledger's hash chains, kept in the partitions' memory. Someone who can rewrite the ledger
//! cannot reach them.

use redis::{Pipeline, Value};

use super::Gate;
use super::call::text;
use super::error::GateError;
use super::scripts::Script;
use crate::domain::chain::{Chain, ChainHead};

impl Gate {
    /// The anchored heads; none for a chain that was never anchored, or not since its partition's memory was lost.
    pub async fn anchors(&self) -> Result<Vec<(Chain, ChainHead)>, GateError> {
        let partitions: Vec<_> = self.partitions().collect();
        let mut pipeline = Pipeline::with_capacity(partitions.len());
        for partition in &partitions {
            let fields = Chain::of(*partition).map(field);
            pipeline.cmd("HMGET").arg(self.keys.meta(*partition)).arg(&fields);
        }
        let mut anchors = Vec::new();
        let answers = self.send_watching(&pipeline, partitions.len()).await?;
        for (partition, answer) in partitions.into_iter().zip(answers) {
            for (chain, head) in
                Chain::of(partition).into_iter().zip(answer.into_sequence().unwrap_or_default())
            {
                if head != Value::Nil {
                    anchors.push((chain, text(&head)?.parse::<ChainHead>()?));
                }
            }
        }
        Ok(anchors)
    }

    /// Anchors the head of a chain; a number not above the anchored one changes nothing.
    pub async fn anchor(&self, chain: Chain, head: ChainHead) -> Result<(), GateError> {
        let partition = chain.partition();
        let arguments = [
            self.epoch_argument(partition)?,
            Vec::new(),
            field(chain).as_bytes().to_vec(),
            head.number.to_string().into_bytes(),
            head.to_string().into_bytes(),
        ];
        self.run(partition, Script::Anchor, &[self.keys.meta(partition)], &arguments).await?;
        Ok(())
    }
}

/// The field of a partition's `meta` that holds the chain's head.
fn field(chain: Chain) -> &'static str {
    match chain {
        Chain::Outbox(_) => "chain:outbox",
        Chain::Other(_) => "chain:other",
    }
}
