//! Scripts of an obedient agent.
