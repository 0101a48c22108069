//! Items of one side that wait for a counterpart: the one that waits longest of those whose amount fits is found
//! without a look at all of them.

use std::collections::{BTreeMap, btree_map};

use rust_decimal::Decimal;

use super::Item;

/// Items that wait, in the order in which they came and by amount. A block of amounts has at most `BLOCK` of them.
#[derive(Default)]
pub(super) struct Waiting<const BLOCK: usize> {
    /// By number: the lower, the longer it waits.
    items: BTreeMap<u64, Item>,
    next: u64,
    amounts: Amounts<BLOCK>,
}

impl<const BLOCK: usize> Waiting<BLOCK> {
    pub(super) fn len(&self) -> usize {
        self.items.len()
    }

    pub(super) fn push(&mut self, item: Item) {
        self.amounts.insert((item.amount, self.next));
        self.items.insert(self.next, item);
        self.next += 1;
    }

    /// The item that waits longest, if it is such a one.
    pub(super) fn take_first(&mut self, is_such: impl Fn(&Item) -> bool) -> Option<Item> {
        let first = self.items.first_entry().filter(|first| is_such(first.get()))?;
        let (number, item) = first.remove_entry();
        self.amounts.remove(&(item.amount, number));
        Some(item)
    }

    /// The item that waits longest of those whose amount fits. `amount` itself has to fit, and with two amounts all
    /// between them.
    pub(super) fn take_fitting(&mut self, amount: Decimal, fits: impl Fn(Decimal) -> bool) -> Option<Item> {
        let number = self.amounts.earliest(amount, fits)?;
        let item = self.items.remove(&number)?;
        self.amounts.remove(&(item.amount, number));
        Some(item)
    }

    /// All of them, the one that waits longest first.
    pub(super) fn take_all(&mut self) -> btree_map::IntoValues<u64, Item> {
        std::mem::take(self).items.into_values()
    }
}

/// An amount, and the number of its item.
type Place = (Decimal, u64);

/// Places in the order of their amounts, in blocks.
#[derive(Default)]
struct Amounts<const BLOCK: usize> {
    blocks: Vec<Block>,
}

/// Places that follow each other; at least one.
struct Block {
    places: Vec<Place>,
    /// The lowest number of them.
    earliest: u64,
}

impl Block {
    fn of(places: Vec<Place>) -> Self {
        let earliest = places.iter().map(|(_, number)| *number).min().unwrap_or(u64::MAX);
        Self { places, earliest }
    }

    /// Whether its first and its last amount fit.
    fn ends(&self, fits: &impl Fn(Decimal) -> bool) -> (bool, bool) {
        let fits = |place: Option<&Place>| place.is_some_and(|(amount, _)| fits(*amount));
        (fits(self.places.first()), fits(self.places.last()))
    }

    /// The lowest number of the amounts around this one that fit.
    fn earliest_around(&self, amount: Decimal, fits: &impl Fn(Decimal) -> bool) -> Option<u64> {
        let (below, above) = self.places.split_at(self.places.partition_point(|(other, _)| *other < amount));
        let above = above.iter().take_while(|(other, _)| fits(*other));
        let below = below.iter().rev().take_while(|(other, _)| fits(*other));
        above.chain(below).map(|(_, number)| *number).min()
    }
}

impl<const BLOCK: usize> Amounts<BLOCK> {
    /// The first block that ends at this place or after it.
    fn block_of(&self, place: &Place) -> usize {
        self.blocks.partition_point(|block| block.places.last().is_some_and(|last| last < place))
    }

    fn insert(&mut self, place: Place) {
        let at = self.block_of(&place).min(self.blocks.len().saturating_sub(1));
        let Some(block) = self.blocks.get_mut(at) else {
            self.blocks.push(Block::of(vec![place]));
            return;
        };
        let inside = block.places.partition_point(|other| *other < place);
        block.places.insert(inside, place);
        block.earliest = block.earliest.min(place.1);
        if block.places.len() > BLOCK {
            let above = block.places.split_off(BLOCK / 2);
            *block = Block::of(std::mem::take(&mut block.places));
            self.blocks.insert(at + 1, Block::of(above));
        }
    }

    fn remove(&mut self, place: &Place) {
        let at = self.block_of(place);
        let Some(block) = self.blocks.get_mut(at) else { return };
        let Ok(inside) = block.places.binary_search(place) else { return };
        block.places.remove(inside);
        if block.places.is_empty() {
            self.blocks.remove(at);
        } else if block.earliest == place.1 {
            *block = Block::of(std::mem::take(&mut block.places));
        }
        self.join(at);
        self.join(at.saturating_sub(1));
    }

    /// Makes one block of this one and the next one where both have few places.
    fn join(&mut self, at: usize) {
        let places = |at: usize| self.blocks.get(at).map(|block| block.places.len());
        if places(at).zip(places(at + 1)).is_some_and(|(one, next)| one + next <= BLOCK / 2) {
            let next = self.blocks.remove(at + 1);
            if let Some(block) = self.blocks.get_mut(at) {
                block.earliest = block.earliest.min(next.earliest);
                block.places.extend(next.places);
            }
        }
    }

    /// The lowest number of those that fit.
    fn earliest(&self, amount: Decimal, fits: impl Fn(Decimal) -> bool) -> Option<u64> {
        let lowest = |block: &Block, ends: (bool, bool)| match ends {
            (true, true) => Some(block.earliest),
            _ => block.earliest_around(amount, &fits),
        };
        let (below, above) = self.blocks.split_at(self.block_of(&(amount, 0)));
        let mut found = None;
        for block in above {
            let ends = block.ends(&fits);
            found = found.into_iter().chain(lowest(block, ends)).min();
            if !ends.1 {
                break;
            }
        }
        for block in below.iter().rev() {
            let ends = block.ends(&fits);
            found = found.into_iter().chain(lowest(block, ends)).min();
            if !ends.0 {
                break;
            }
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::super::Source;
    use super::*;

    fn item(amount: i64, line: u64) -> Item {
        let (scope, reference) = (String::new(), String::new());
        Item { scope, reference, amount: Decimal::new(amount, 1), at_ms: 0, source: Source::Row { line } }
    }

    proptest! {
        #[test]
        fn what_is_taken_is_what_a_look_at_all_would_take(
            steps in prop::collection::vec((0..10_u8, -30..30_i64, 0..8_i64), 0..400),
        ) {
            let (mut waiting, mut all) = (Waiting::<4>::default(), Vec::new());
            for (line, (step, amount, slack)) in (1..).zip(steps) {
                let (wanted, slack) = (Decimal::new(amount, 1), Decimal::new(slack, 1));
                let fits = |other: Decimal| (other - wanted).abs() <= slack;
                match step {
                    0..=5 => {
                        waiting.push(item(amount, line));
                        all.push(item(amount, line));
                    }
                    6 => {
                        let is_such = |item: &Item| item.amount < wanted;
                        let first = all.first().is_some_and(is_such).then(|| all.remove(0));
                        prop_assert_eq!(waiting.take_first(is_such), first);
                    }
                    _ => {
                        let place = all.iter().position(|item| fits(item.amount));
                        let fitting = place.map(|place| all.remove(place));
                        prop_assert_eq!(waiting.take_fitting(wanted, fits), fitting);
                    }
                }
                prop_assert_eq!(waiting.len(), all.len());
            }
            prop_assert_eq!(waiting.take_all().collect::<Vec<_>>(), all);
            prop_assert_eq!(waiting.len(), 0);
        }
    }
}
