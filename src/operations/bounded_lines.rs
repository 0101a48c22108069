//! Log lines that a fault or a flood would write for each call: so many a second at most.

use std::num::NonZero;
use std::sync::atomic::{AtomicU64, Ordering};

use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};

/// Says which lines of one kind are written.
pub struct BoundedLines {
    limiter: DefaultDirectRateLimiter,
    /// Those since the last one that was written.
    left_out: AtomicU64,
}

impl BoundedLines {
    /// At most so many a second.
    pub fn new(per_second: NonZero<u32>) -> Self {
        Self { limiter: RateLimiter::direct(Quota::per_second(per_second)), left_out: AtomicU64::new(0) }
    }

    /// Whether the next line is written, and then how many before it were left out. One that is not is counted.
    pub fn next(&self) -> Option<u64> {
        match self.limiter.check() {
            Ok(()) => Some(self.left_out.swap(0, Ordering::Relaxed)),
            Err(_) => {
                self.left_out.fetch_add(1, Ordering::Relaxed);
                None
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_left_out_is_counted_and_told_with_the_next_line() {
        let lines = BoundedLines::new(NonZero::new(2).unwrap());
        let first: Vec<_> = (0..100).map(|_| lines.next()).collect();
        assert_eq!(first[..2], [Some(0), Some(0)]);
        let left_out = first.iter().filter(|line| line.is_none()).count();
        assert!(left_out >= 90, "{left_out}");
        let told: u64 = first.iter().flatten().sum();
        assert_eq!(told + lines.left_out.load(Ordering::Relaxed), u64::try_from(left_out).unwrap());
    }
}
