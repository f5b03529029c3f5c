//! Requests to the broker of model keys and answers of a model that repeats everything.
