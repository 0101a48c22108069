//! Key filters: whether the ledger may have a keyed call, in less than two bytes for each key. A filter never says no
//! for a key that is in it, and says yes for few others.
//!
//! Packed: `B layout(1)  B bits (8 or 16)  i8 seed  I4 segment_length  I4 segment_count_length`, then the fingerprints.

use xorf::{BinaryFuse8, BinaryFuse16, Descriptor, Filter};

use super::codec::{Reader, Undecodable, Write};
use super::ids::ReservationId;

const LAYOUT: u8 = 1;

/// A key is recorded in the stretch of its reservation's birth, and again whenever the reservation is resolved this
/// long after its birth or later. So one of its stretches is as young as its row.
pub const NOTED_AGAIN_AFTER_MS: i64 = 86_400_000;

/// A reservation's key in filters. Ids of keyed calls are derived by a hash, so their first bytes are one.
pub fn key_hash(id: ReservationId) -> u64 {
    let [a, b, c, d, e, f, g, h, ..] = *id.as_bytes();
    u64::from_be_bytes([a, b, c, d, e, f, g, h])
}

/// A filter over the keys of a stretch.
#[derive(Debug, Clone)]
pub enum KeyFilter {
    /// Of many merged stretches: nine bits for each key, and one in 256 other keys counts as contained.
    Compact(BinaryFuse8),
    /// Of one stretch, which is asked together with many others: eighteen bits for each key, and one in 65,536 other
    /// keys counts as contained.
    Sharp(BinaryFuse16),
}

/// No filter could be built of these keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("no filter could be built of {0} keys")]
pub struct Unbuildable(usize);

impl KeyFilter {
    /// A compact filter over these keys.
    pub fn compact(keys: Vec<u64>) -> Result<Self, Unbuildable> {
        let keys = distinct(keys);
        BinaryFuse8::try_from(&keys).map(Self::Compact).map_err(|_| Unbuildable(keys.len()))
    }

    /// A sharp filter over these keys.
    pub fn sharp(keys: Vec<u64>) -> Result<Self, Unbuildable> {
        let keys = distinct(keys);
        BinaryFuse16::try_from(&keys).map(Self::Sharp).map_err(|_| Unbuildable(keys.len()))
    }

    /// Whether the key may be in it.
    pub fn contains(&self, key: u64) -> bool {
        match self {
            Self::Compact(filter) => filter.contains(&key),
            Self::Sharp(filter) => filter.contains(&key),
        }
    }

    /// Its size in memory.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Compact(filter) => filter.fingerprints.len(),
            Self::Sharp(filter) => 2 * filter.fingerprints.len(),
        }
    }

    /// Packs it for the ledger.
    pub fn encode(&self) -> Vec<u8> {
        let (bits, descriptor) = match self {
            Self::Compact(filter) => (8, &filter.descriptor),
            Self::Sharp(filter) => (16, &filter.descriptor),
        };
        let mut out = Vec::with_capacity(18 + self.bytes());
        out.put_byte(LAYOUT);
        out.put_byte(bits);
        out.extend_from_slice(&descriptor.seed.to_le_bytes());
        out.put_4(descriptor.segment_length);
        out.put_4(descriptor.segment_count_length);
        match self {
            Self::Compact(filter) => out.extend_from_slice(&filter.fingerprints),
            Self::Sharp(filter) => filter.fingerprints.iter().for_each(|print| out.put_2(*print)),
        }
        out
    }

    /// Reads a packed filter. One whose look-ups could go beyond its end is refused.
    pub fn decode(bytes: &[u8]) -> Result<Self, Undecodable> {
        let mut reader = Reader::new(bytes);
        if reader.u8()? != LAYOUT {
            return Err(Undecodable("filter layout"));
        }
        let bits = reader.u8()?;
        let seed = u64::from_le_bytes(reader.array()?);
        let (segment_length, segment_count_length) = (reader.u32()?, reader.u32()?);
        let is_whole =
            segment_length.is_power_of_two() && segment_count_length.is_multiple_of(segment_length);
        if !is_whole || segment_count_length == 0 {
            return Err(Undecodable("filter segments"));
        }
        let descriptor = Descriptor {
            seed,
            segment_length,
            segment_length_mask: segment_length - 1,
            segment_count_length,
        };
        let prints = u64::from(segment_count_length) + 2 * u64::from(segment_length);
        let rest = reader.rest();
        let has = |width: u64| u64::try_from(rest.len()) == Ok(prints * width);
        match bits {
            8 if has(1) => Ok(Self::Compact(BinaryFuse8 { descriptor, fingerprints: rest.into() })),
            16 if has(2) => {
                let prints = rest.chunks_exact(2).map(|pair| u16::from_le_bytes([pair[0], pair[1]]));
                Ok(Self::Sharp(BinaryFuse16 { descriptor, fingerprints: prints.collect() }))
            }
            _ => Err(Undecodable("filter length")),
        }
    }
}

fn distinct(mut keys: Vec<u64>) -> Vec<u64> {
    keys.sort_unstable();
    keys.dedup();
    keys
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Keys that look like derived ids.
    fn keys(count: u64, from: u64) -> Vec<u64> {
        let hash = |number: u64| *blake3::hash(&number.to_le_bytes()).as_bytes();
        (from..from + count).map(|number| u64::from_le_bytes(hash(number)[..8].try_into().unwrap())).collect()
    }

    #[test]
    fn a_filter_knows_all_its_keys_also_once_it_was_kept() {
        for count in (1..40).chain([1_000, 20_000]) {
            let keys = keys(count, 7);
            let twice = [keys.clone(), keys.clone()].concat();
            for filter in [KeyFilter::compact(twice.clone()).unwrap(), KeyFilter::sharp(twice).unwrap()] {
                let kept = KeyFilter::decode(&filter.encode()).unwrap();
                assert!(keys.iter().all(|key| filter.contains(*key) && kept.contains(*key)), "{count} keys");
            }
        }
    }

    #[test]
    fn a_damaged_filter_is_refused_and_never_asked() {
        let bytes = KeyFilter::sharp(keys(100, 0)).unwrap().encode();
        for end in 0..bytes.len() {
            assert!(KeyFilter::decode(&bytes[..end]).is_err(), "cut at {end}");
        }
        for at in 0..18 {
            for flip in [1, 0x80] {
                let mut wrong = bytes.clone();
                wrong[at] ^= flip;
                if let Ok(filter) = KeyFilter::decode(&wrong) {
                    assert!(keys(100, 0).iter().filter(|key| filter.contains(**key)).count() <= 100);
                }
            }
        }
    }
}
