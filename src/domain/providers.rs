//! Model providers: rate limits, backend states, prices, budgets, rules, and the neutral chat call.

pub mod backends;
pub mod chat;
pub mod limit;
pub mod money;
pub mod prices;
pub mod rules;
