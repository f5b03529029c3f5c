//! Model providers: rate limits, backend states, reported usage, prices, budgets, rules for models and schedules, and
//! provider-independent chat types.

pub mod backends;
pub mod call_refusal;
pub mod chat;
pub mod limit;
pub mod money;
pub mod prices;
pub mod rules;
pub mod usage;
