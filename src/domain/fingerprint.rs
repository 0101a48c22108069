//! The fingerprint of a request, in sixteen bytes: a hash of what it asks for, and the lifetime of its hold. The
//! lifetime is stored apart, because a request may leave it to a default that changes before the request is repeated.

/// A request's fingerprint: twelve bytes of hash, then the seconds of its lifetime with two flags.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Fingerprint(pub [u8; 16]);

/// The lifetime of a hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Life {
    /// In seconds; 0 where nothing is held.
    pub seconds: u32,
    /// Whether the request names it.
    pub is_named: bool,
    /// Whether it was the default at the time of the request.
    pub is_default: bool,
}

const NAMED: u32 = 1 << 30;
const DEFAULT: u32 = 1 << 31;

impl Fingerprint {
    /// The fingerprint of a request, from the hash of everything but its lifetime.
    pub fn new(hash: &[u8; 32], life: Life) -> Self {
        let mut bytes = [0; 16];
        bytes[..12].copy_from_slice(&hash[..12]);
        let named = if life.is_named { NAMED } else { 0 };
        let default = if life.is_default { DEFAULT } else { 0 };
        let life = life.seconds.min(NAMED - 1) | named | default;
        bytes[12..].copy_from_slice(&life.to_le_bytes());
        Self(bytes)
    }

    /// Whether a request with this fingerprint repeats the first one under its key. A lifetime that it leaves out
    /// counts as the default at the time of the first one.
    pub fn repeats(&self, first: &Self) -> bool {
        let (now, was) = (self.life(), first.life());
        let same_life = if now & NAMED == 0 {
            was & DEFAULT != 0 || was == now
        } else {
            was & !(NAMED | DEFAULT) == now & !(NAMED | DEFAULT)
        };
        self.0[..12] == first.0[..12] && same_life
    }

    fn life(&self) -> u32 {
        let [.., a, b, c, d] = self.0;
        u32::from_le_bytes([a, b, c, d])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn life(seconds: u32, is_named: bool, is_default: bool) -> Fingerprint {
        Fingerprint::new(&[7; 32], Life { seconds, is_named, is_default })
    }

    #[test]
    fn a_life_left_out_is_the_default_of_the_first_request() {
        let (left_out, named) = (life(60, false, true), life(60, true, true));
        let left_out_later = life(120, false, true);
        for (again, first) in [
            (left_out, named),
            (named, left_out),
            (left_out_later, left_out),
            (left_out_later, named),
            (life(60, true, false), named),
            (life(0, false, true), life(0, false, true)),
        ] {
            assert!(again.repeats(&first), "{again:?} {first:?}");
        }
        for (again, first) in [
            (life(120, true, true), left_out),
            (left_out, life(30, true, false)),
            (life(30, false, true), life(30, true, false)),
            (Fingerprint::new(&[8; 32], Life { seconds: 60, is_named: false, is_default: true }), left_out),
        ] {
            assert!(!again.repeats(&first), "{again:?} {first:?}");
        }
    }
}
