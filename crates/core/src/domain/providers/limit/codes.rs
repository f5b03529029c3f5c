//! Error codes and HTTP statuses, with the limits that they indicate.

use std::sync::LazyLock;

use regex::Regex;

use crate::domain::providers::limit::LimitKind;

/// Code for a run that ended without an answer and without tokens.
pub const EMPTY_ANSWER: &str = "empty_answer";
/// Code for a run that the agent ended at its own cost limit.
pub const OWN_BUDGET: &str = "own_budget";

/// Codes that only model providers use. They count wherever an error contains them.
const DISTINCT: [(&str, LimitKind); 62] = [
    ("rate_limit_error", LimitKind::Rate),
    ("rate_limit_reached_error", LimitKind::Rate),
    ("throttlingexception", LimitKind::Rate),
    ("provider.rate_limit", LimitKind::Rate),
    ("usage_limit_reached", LimitKind::Quota),
    ("usage_limit_exceeded", LimitKind::Quota),
    ("workspace_member_usage_limit_reached", LimitKind::Quota),
    ("five_hour", LimitKind::Quota),
    ("seven_day", LimitKind::Quota),
    ("seven_day_opus", LimitKind::Quota),
    ("seven_day_sonnet", LimitKind::Quota),
    ("quota_exhausted", LimitKind::Quota),
    ("terminalquotaerror", LimitKind::Quota),
    ("user_weekly_rate_limited", LimitKind::Quota),
    ("user_global_rate_limited", LimitKind::Quota),
    ("access_terminated_error", LimitKind::Quota),
    ("overloaded_error", LimitKind::Overload),
    ("engine_overloaded_error", LimitKind::Overload),
    ("server_is_overloaded", LimitKind::Overload),
    ("model_at_capacity", LimitKind::Overload),
    ("model_capacity_exhausted", LimitKind::Overload),
    ("provider.auth_error", LimitKind::Auth),
    ("providerautherror", LimitKind::Auth),
    ("invalid_authentication_error", LimitKind::Auth),
    ("incorrect_api_key_error", LimitKind::Auth),
    ("api_key_invalid", LimitKind::Auth),
    ("api_key_service_blocked", LimitKind::Auth),
    ("oauth_org_not_allowed", LimitKind::Auth),
    ("refresh_token_expired", LimitKind::Auth),
    ("refresh_token_reused", LimitKind::Auth),
    ("refresh_token_invalidated", LimitKind::Auth),
    ("insufficient_quota", LimitKind::Billing),
    ("billing_error", LimitKind::Billing),
    ("billing_hard_limit_reached", LimitKind::Billing),
    ("billing_not_active", LimitKind::Billing),
    ("insufficient_balance_error", LimitKind::Billing),
    ("exceeded_current_quota_error", LimitKind::Billing),
    ("usage_not_included", LimitKind::Billing),
    ("arrearage", LimitKind::Billing),
    ("creditserror", LimitKind::Billing),
    ("freeusagelimiterror", LimitKind::Quota),
    ("context_length_exceeded", LimitKind::ContextTooLong),
    ("context_window_exceeded", LimitKind::ContextTooLong),
    ("contextwindowexceedederror", LimitKind::ContextTooLong),
    ("contextoverflowerror", LimitKind::ContextTooLong),
    ("model_context_window_exceeded", LimitKind::ContextTooLong),
    ("exceed_context_size_error", LimitKind::ContextTooLong),
    ("prompt_too_long", LimitKind::ContextTooLong),
    ("max_prompt_tokens_exceeded", LimitKind::ContextTooLong),
    ("model_max_prompt_tokens_exceeded", LimitKind::ContextTooLong),
    ("string_above_max_length", LimitKind::ContextTooLong),
    ("providermodelnotfounderror", LimitKind::ModelMissing),
    ("content_filter", LimitKind::Policy),
    ("content_policy_violation", LimitKind::Policy),
    ("responsibleaipolicyviolation", LimitKind::Policy),
    ("data_inspection_failed", LimitKind::Policy),
    ("datainspectionfailed", LimitKind::Policy),
    ("prohibited_content", LimitKind::Policy),
    ("refusal", LimitKind::Policy),
    ("ai_nooutputgeneratederror", LimitKind::Empty),
    (EMPTY_ANSWER, LimitKind::Empty),
    (OWN_BUDGET, LimitKind::OwnBudget),
];

/// Codes that other services use as well. They count only if the error certainly comes from a model provider.
const GENERAL: [(&str, LimitKind); 67] = [
    ("resource_exhausted", LimitKind::Rate),
    ("invalid_model", LimitKind::ModelMissing),
    ("unknown_model", LimitKind::ModelMissing),
    ("unsupported_model", LimitKind::ModelMissing),
    ("model_not_available", LimitKind::ModelMissing),
    ("model_not_supported", LimitKind::ModelMissing),
    ("model_not_found", LimitKind::ModelMissing),
    ("insufficient_credits", LimitKind::Billing),
    ("insufficient_balance", LimitKind::Billing),
    ("authentication_failed", LimitKind::Auth),
    ("authentication_error", LimitKind::Auth),
    ("rate_limit", LimitKind::Rate),
    ("rate_limited", LimitKind::Rate),
    ("rate_limit_exceeded", LimitKind::Rate),
    ("ratelimitexceeded", LimitKind::Rate),
    ("ratelimiterror", LimitKind::Rate),
    ("too_many_requests", LimitKind::Rate),
    ("throttling_error", LimitKind::Rate),
    ("throttling", LimitKind::Rate),
    ("quota_exceeded", LimitKind::Quota),
    ("usage_limit", LimitKind::Quota),
    ("overloaded", LimitKind::Overload),
    ("server_overloaded", LimitKind::Overload),
    ("server_error", LimitKind::Overload),
    ("internal_server_error", LimitKind::Overload),
    ("internalservererror", LimitKind::Overload),
    ("internal", LimitKind::Overload),
    ("api_error", LimitKind::Overload),
    ("unavailable", LimitKind::Overload),
    ("service_unavailable", LimitKind::Overload),
    ("serviceunavailableexception", LimitKind::Overload),
    ("internalserverexception", LimitKind::Overload),
    ("modelnotreadyexception", LimitKind::Overload),
    ("modeltimeoutexception", LimitKind::Overload),
    ("servicequotaexceededexception", LimitKind::Quota),
    ("accessdeniedexception", LimitKind::Auth),
    ("expiredtokenexception", LimitKind::Auth),
    ("unrecognizedclientexception", LimitKind::Auth),
    ("slow_down", LimitKind::Overload),
    ("high_demand", LimitKind::Overload),
    ("invalid_api_key", LimitKind::Auth),
    ("token_expired", LimitKind::Auth),
    ("token_invalidated", LimitKind::Auth),
    ("account_deactivated", LimitKind::Auth),
    ("unauthenticated", LimitKind::Auth),
    ("unauthorized", LimitKind::Auth),
    ("permission_error", LimitKind::Auth),
    ("permission_denied", LimitKind::Auth),
    ("payment_required", LimitKind::Billing),
    ("request_too_large", LimitKind::ContextTooLong),
    // Z.ai, <https://docs.z.ai/api-reference/api-code>.
    ("1000", LimitKind::Auth),
    ("1001", LimitKind::Auth),
    ("1002", LimitKind::Auth),
    ("1003", LimitKind::Auth),
    ("1004", LimitKind::Auth),
    ("1112", LimitKind::Auth),
    ("1113", LimitKind::Billing),
    ("1211", LimitKind::ModelMissing),
    ("1261", LimitKind::ContextTooLong),
    ("1301", LimitKind::Policy),
    ("1304", LimitKind::Quota),
    ("1308", LimitKind::Quota),
    ("1309", LimitKind::Billing),
    ("1310", LimitKind::Quota),
    ("1311", LimitKind::ModelMissing),
    ("1313", LimitKind::Quota),
    ("1316", LimitKind::Quota),
];

static AUTH: LazyLock<Regex> =
    LazyLock::new(|| words(r"api[ _-]?key|authenticat|log ?in\b|logged in|tokens?\b|credential|unauthori[sz]ed"));
static PERMISSION: LazyLock<Regex> = LazyLock::new(|| {
    words(r"api[ _-]?key|authenticat|log ?in\b|logged in|credential|unauthori[sz]ed|permission|forbidden|not allowed")
});
static MONEY: LazyLock<Regex> =
    LazyLock::new(|| words(r"credits?\b|billing|payment|balance|funds\b|insufficient|subscription|quota"));
static LENGTH: LazyLock<Regex> = LazyLock::new(|| words(r"too (?:large|long)|exceed|maximum|context"));
static MODEL: LazyLock<Regex> = LazyLock::new(|| words(r"\bmodels?\b"));

fn words(pattern: &str) -> Regex {
    Regex::new(&format!("(?i){pattern}")).expect("constant pattern")
}

/// Returns the limit that a provider's error code indicates, ignoring case.
pub(super) fn of_code(code: &str) -> Option<LimitKind> {
    of_distinct(code).or_else(|| find(&GENERAL, code)).or_else(|| code.trim().parse().ok().and_then(of_status))
}

/// Returns the limit that an error code indicates, considering only codes that no other service than a model provider uses.
pub(super) fn of_distinct(code: &str) -> Option<LimitKind> {
    find(&DISTINCT, code)
}

fn find(table: &[(&str, LimitKind)], code: &str) -> Option<LimitKind> {
    let code = code.trim();
    table.iter().find(|(word, _)| word.eq_ignore_ascii_case(code)).map(|(_, kind)| *kind)
}

/// Returns the limit that an HTTP status indicates by itself. The statuses 400 to 413 indicate none without a message; see
/// [`of_status_with_words`].
pub(super) fn of_status(status: u16) -> Option<LimitKind> {
    match status {
        429 => Some(LimitKind::Rate),
        500 | 502..=504 | 520..=524 | 529 => Some(LimitKind::Overload),
        _ => None,
    }
}

/// Returns the limit that an HTTP status indicates together with the message of its error.
pub(super) fn of_status_with_words(status: u16, words: &str) -> Option<LimitKind> {
    let (pattern, kind) = match status {
        401 => (&AUTH, LimitKind::Auth),
        402 => (&MONEY, LimitKind::Billing),
        403 => (&PERMISSION, LimitKind::Auth),
        404 => (&MODEL, LimitKind::ModelMissing),
        413 => (&LENGTH, LimitKind::ContextTooLong),
        _ => return of_status(status),
    };
    pattern.is_match(words).then_some(kind)
}

/// Whether an error of this kind can have this HTTP status.
pub(super) fn fits(status: u16, kind: LimitKind) -> bool {
    use LimitKind::{Auth, Billing, ContextTooLong, Empty, ModelMissing, Overload, OwnBudget, Policy, Quota, Rate};
    match status {
        _ if matches!(kind, Policy | Empty | OwnBudget) => matches!(status, 400 | 403 | 422 | 451 | 429 | 500..),
        400 | 422 => matches!(kind, Billing | ContextTooLong | ModelMissing | Quota | Rate),
        401 => matches!(kind, Auth | Billing | Quota),
        402 => matches!(kind, Billing | Quota),
        403 => matches!(kind, Auth | Billing | Quota | Rate | ModelMissing),
        404 => kind == ModelMissing,
        413 => kind == ContextTooLong,
        429 => matches!(kind, Rate | Quota | Billing | Overload | ContextTooLong),
        _ => status >= 500 && matches!(kind, Rate | Quota | Overload | Billing),
    }
}

/// Whether the HTTP status means that the key is rejected, regardless of the error's code.
pub(super) fn denied(status: Option<u16>, kind: LimitKind) -> bool {
    status == Some(401) && !fits(401, kind)
}

/// Returns the HTTP status for the exit code of a program that exits with the status (Gemini CLI). The system keeps only the
/// lowest 8 bits of it.
pub(super) fn of_exit(exit_code: i32) -> Option<u16> {
    const STATUSES: [u16; 12] = [400, 401, 402, 403, 404, 413, 429, 500, 502, 503, 504, 529];
    STATUSES.into_iter().find(|status| i32::from(*status) % 256 == exit_code)
}
