//! Turns deliveries into steps, and effects into events.
