//! Finds changes that weaken what measures them.
