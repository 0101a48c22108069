//! The hash chains over the entries.
