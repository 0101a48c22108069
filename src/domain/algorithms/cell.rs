//! What a counter keeps: the first 32 bytes of its cell, alike for every algorithm.

use crate::domain::codec::{Reader, Undecodable, Write};

/// The front of a cell: `i8 mark  i8 consumed  i8 reserved  i8 next_end`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Cell {
    /// What the algorithm counts from, such as its window's start (unix ms).
    pub mark: i64,
    /// Units consumed.
    pub consumed: i64,
    /// Units held.
    pub reserved: i64,
    /// Never later than the end of any hold in it (unix ms); 0 where nothing is held, or where that is not known.
    pub next_end: i64,
}

/// A cell as it counts work of one instant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Loaded {
    /// What it counts then; nothing where that is over, or has not been counted in yet.
    pub cell: Cell,
    /// Whether work of that instant is counted in what is stored.
    pub is_current: bool,
    /// Whether what is stored began later.
    pub is_later: bool,
}

impl Cell {
    /// Packs it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32);
        for number in [self.mark, self.consumed, self.reserved, self.next_end] {
            out.put_8(number);
        }
        out
    }

    /// Reads it from the front of a field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        Ok(Self {
            mark: reader.i64()?,
            consumed: reader.i64()?,
            reserved: reader.i64()?,
            next_end: reader.i64()?,
        })
    }

    /// Adds a hold that ends at `ends_at_ms`.
    pub fn hold(&mut self, units: i64, ends_at_ms: i64) {
        if units == 0 {
            return;
        }
        if self.reserved == 0 || ends_at_ms < self.next_end {
            self.next_end = ends_at_ms;
        }
        self.reserved += units;
    }

    /// Takes off what was held.
    pub fn let_go(&mut self, units: i64) {
        self.reserved -= units;
        if self.reserved == 0 {
            self.next_end = 0;
        }
    }
}
