//! The hash chains over the ledger's batches, as other rooms see them.

use std::fmt;
use std::str::FromStr;

use super::codec::Undecodable;
use super::ids::Partition;

/// Which chain: each partition has one for its outbox's batches and one for all other transactions.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Chain {
    /// The batches of a partition's writer.
    Outbox(Partition),
    /// Everything else that books for the partition's tenants.
    Other(Partition),
}

/// The number of a partition's other chain is its own plus this.
const OTHER: i16 = 256;

impl Chain {
    /// Both chains of a partition.
    pub fn of(partition: Partition) -> [Self; 2] {
        [Self::Outbox(partition), Self::Other(partition)]
    }

    /// Its partition.
    pub fn partition(self) -> Partition {
        match self {
            Self::Outbox(partition) | Self::Other(partition) => partition,
        }
    }

    /// Its number in the tables: the partition's, and 256 more for the other chain.
    pub fn number(self) -> i16 {
        let number = self.partition().number().cast_signed();
        match self {
            Self::Outbox(_) => number,
            Self::Other(_) => number + OTHER,
        }
    }
}

impl fmt::Display for Chain {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.number())
    }
}

/// A chain's last batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ChainHead {
    /// Its number in the chain, from 1.
    pub number: u64,
    /// How many entries it has.
    pub rows: u32,
    /// Its hash, which covers every batch before it.
    pub hash: [u8; 32],
}

/// `number rows hash`, the hash as hexadecimal digits.
impl fmt::Display for ChainHead {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {} ", self.number, self.rows)?;
        self.hash.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for ChainHead {
    type Err = Undecodable;

    fn from_str(text: &str) -> Result<Self, Undecodable> {
        const WRONG: Undecodable = Undecodable("the head of a chain");
        let mut words = text.split(' ');
        let mut word = || words.next().ok_or(WRONG);
        let number = word()?.parse().map_err(|_| WRONG)?;
        let rows = word()?.parse().map_err(|_| WRONG)?;
        let hash = blake3::Hash::from_hex(word()?).map_err(|_| WRONG)?;
        if words.next().is_some() {
            return Err(WRONG);
        }
        Ok(Self { number, rows, hash: *hash.as_bytes() })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_head_reads_back_as_it_is_written() {
        let head = ChainHead { number: 1_423, rows: 12, hash: [0xab; 32] };
        assert_eq!(head.to_string(), format!("1423 12 {}", "ab".repeat(32)));
        assert_eq!(head.to_string().parse(), Ok(head));
        for wrong in ["", "1", "1 2", "1 2 ab", "x 2 ab", "1 2 3 4"] {
            assert!(wrong.parse::<ChainHead>().is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn every_chain_has_a_number_of_its_own() {
        let partition = Partition::new(255).unwrap();
        assert_eq!(Chain::of(partition).map(Chain::number), [255, 511]);
    }
}
