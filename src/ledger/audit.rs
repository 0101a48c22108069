//! The audit log: who changed what, in the transaction that changed it.
