//! The cell of a counter: its first 32 bytes, alike for every algorithm, and the algorithm's own numbers.

use crate::domain::codec::{Reader, Undecodable, Write};

/// A cell: `i8 mark  i8 consumed  i8 reserved  i8 next_end`, then the algorithm's own numbers, `i8` each.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cell {
    /// The mark of the algorithm, such as its window's start (unix ms).
    pub mark: i64,
    /// Units consumed.
    pub consumed: i64,
    /// Units held.
    pub reserved: i64,
    /// Never later than the end of any hold in it (unix ms); 0 where nothing is held, or where the end is not known.
    pub next_end: i64,
    /// The algorithm's own numbers.
    pub own: Vec<i64>,
}

/// A cell as it counts work of one instant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Loaded {
    /// The figures for that instant; empty where the stored ones are over, or count only later work.
    pub cell: Cell,
    /// The instant of the work (unix ms).
    pub counted_at_ms: i64,
    /// Whether the stored figures count work of that instant.
    pub is_current: bool,
    /// Whether the stored figures began later.
    pub is_later: bool,
}

/// The time at which a cell is read, and the time of the work for which it is read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Moment {
    /// When (unix ms).
    pub now_ms: i64,
    /// When the work was made (unix ms); none for new work.
    pub born_at_ms: Option<i64>,
}

impl Moment {
    /// For new work.
    pub fn new_work(now_ms: i64) -> Self {
        Self { now_ms, born_at_ms: None }
    }

    /// For work that was made at `born_at_ms`.
    pub fn work_of(born_at_ms: i64, now_ms: i64) -> Self {
        Self { now_ms, born_at_ms: Some(born_at_ms) }
    }

    /// Whether it is read for new work.
    pub fn admits(self) -> bool {
        self.born_at_ms.is_none()
    }

    /// When the work was, or is, made.
    pub fn counted_at_ms(self) -> i64 {
        self.born_at_ms.unwrap_or(self.now_ms)
    }
}

impl Cell {
    /// Packs it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(32 + 8 * self.own.len());
        for number in [self.mark, self.consumed, self.reserved, self.next_end].iter().chain(&self.own) {
            out.put_8(*number);
        }
        out
    }

    /// Reads it from a field.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        let (mark, consumed) = (reader.i64()?, reader.i64()?);
        let (reserved, next_end) = (reader.i64()?, reader.i64()?);
        let mut own = Vec::with_capacity(reader.rest().len() / 8);
        while !reader.rest().is_empty() {
            own.push(reader.i64()?);
        }
        Ok(Self { mark, consumed, reserved, next_end, own })
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

    /// Takes off units that were held.
    pub fn let_go(&mut self, units: i64) {
        self.reserved -= units;
        if self.reserved == 0 {
            self.next_end = 0;
        }
    }
}
