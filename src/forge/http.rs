//! The one retry layer: pacing, ETags, rate limits, error kinds.
