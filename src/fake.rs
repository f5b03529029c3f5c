//! A small forge for tests and the demo: state apart from wire format.
