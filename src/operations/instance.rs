//! This instance's name, under which it takes leases.

use std::fmt::Display;

use rand::random;

/// Distinguishes the leases of this instance from those of others. It stays the same while the instance lives, so a
/// lease that could not be given back to a dead ledger does not delay this instance.
pub(super) struct Instance(u128);

impl Default for Instance {
    fn default() -> Self {
        Self(random())
    }
}

impl Instance {
    /// The owner name for the lease of a piece of work that this instance does one at a time.
    pub(super) fn owner(&self, work: impl Display) -> String {
        format!("{work}/{:032x}", self.0)
    }

    /// A short name of it, for what the gate keeps by instance.
    pub(super) fn short(&self) -> [u8; 8] {
        let mut name = [0; 8];
        name.copy_from_slice(&self.0.to_le_bytes()[..8]);
        name
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_instance_knows_its_leases_again_and_no_other_takes_them_for_its_own() {
        let (here, there) = (Instance::default(), Instance::default());
        assert_eq!(here.owner("replay/p01"), here.owner("replay/p01"));
        assert_ne!(here.owner("replay/p01"), here.owner("replay/p02"));
        assert_ne!(here.owner("check"), there.owner("check"));
    }
}
