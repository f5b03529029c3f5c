//! Composition root: builds the adapters, starts and stops the loops in order.
