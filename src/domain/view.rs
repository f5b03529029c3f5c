//! What people see, one struct a text.
