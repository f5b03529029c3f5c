//! The HTTP side: webhooks, health, metrics.
