//! Who may make something happen.
