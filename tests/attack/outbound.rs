//! Secrets and instructions to the forge in what leaves the machine.
