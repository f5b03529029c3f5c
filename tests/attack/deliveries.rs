//! Webhook deliveries that are forged, stale, or about another repository.
