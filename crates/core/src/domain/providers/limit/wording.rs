//! Wording of providers and their programs for each kind of limit.
//!
//! Each pattern matches only at the beginning of a line or of an error message, after prefixes that programs add. [`SPECIFIC`]
//! contains wordings of single providers, which are sufficient alone. [`GENERAL`] contains wordings of any service, which count
//! only after a provider's prefix or with a matching status.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use crate::domain::providers::limit::LimitKind;

type Table = &'static [(LimitKind, &'static str)];

/// Words that can appear between "your" and "limit".
const WINDOW: &str = r"(?:(?:org(?:anization)?['’]?s?|workspace['’]?s?|team['’]?s?|account['’]?s?|claude|codex|chatgpt|monthly|weekly|daily|hourly|session|usage|opus|sonnet|haiku|fable|api|free|plan|message|spend(?:ing)?|premium|request|requests|token|specified|current|global|included|\d+[ -]hour|five-hour|\d-day|extra|[0-9.]{1,4})\s)*";

const SPECIFIC: Table = &[
    // Longer than the model takes. Before the rest: some come with the status of a rate.
    (LimitKind::ContextTooLong, r"request too large (?:for|\(max)"),
    (
        LimitKind::ContextTooLong,
        r"(?:prompt|input|conversation|context) (?:is|was) too long(?:: ?\d| for requested model| ·|\.? ?$)",
    ),
    (LimitKind::ContextTooLong, r"(?:this|the) (?:model|endpoint)['’]?s maximum (?:context|prompt|input) length\b"),
    (
        LimitKind::ContextTooLong,
        r"(?:input length and `?max_tokens`? exceed|(?:your|the) input exceeds the (?:model['’]s )?context)",
    ),
    (
        LimitKind::ContextTooLong,
        r"(?:the|your) (?:input|prompt|request|message)(?:'s)?(?: token count)? ?(?:\([^)]{0,40}\) )?exceeds? the (?:maximum number of tokens|available context|model['’]?s? (?:context|maximum)|configured limit|limit of \d+ tokens|maximum (?:context|allowed number))",
    ),
    (
        LimitKind::ContextTooLong,
        r"(?:requested token count|prompt (?:length|token count)[^.]{0,40}) exceeds? the (?:model['’]?s |limit)",
    ),
    (LimitKind::ContextTooLong, r"(?:codex )?ran out of room in the model['’]s context"),
    (
        LimitKind::ContextTooLong,
        r"(?:context window|maximum context length|context length) (?:exceeded|is exceeded|of this model)",
    ),
    (
        LimitKind::ContextTooLong,
        r"(?:total )?(?:number of )?tokens? (?:in|of) (?:the )?(?:prompt|request|input)[^.]{0,60} exceeds",
    ),
    (
        LimitKind::ContextTooLong,
        r"(?:conversation too long|model .{1,60} has hit a token limit|input tokens exceed the configured limit|prompt exceeds max length|prompt token count of \d+ exceeds)",
    ),
    (LimitKind::ContextTooLong, r"(?:extra usage is required for|the long context beta is not)"),
    (
        LimitKind::ContextTooLong,
        r"please reduce the length of (?:the messages|either one|(?:the|your) (?:prompt|input|messages))",
    ),
    // No money.
    (
        LimitKind::Billing,
        r"(?:insufficient_quota: |prompt tokens limit exceeded: \d|budget has been exceeded! current|you(?:['’]ve| have) exceeded your monthly included credits)",
    ),
    (LimitKind::Billing, r"(?:your )?credit balance is too low\b"),
    (
        LimitKind::Billing,
        r"(?:this request requires more credits|more credits are required|insufficient (?:credits|balance)(?:\. add|[.,] (?:please|manage)| or no resource)|insufficient account balance|your (?:credit|account) balance is (?:insufficient|too low|exhausted))",
    ),
    (
        LimitKind::Billing,
        r"your account .{0,160}(?:insufficient balance|exceeded current quota|is not active, please check your billing)",
    ),
    (LimitKind::Billing, r"billing hard limit has been reached"),
    (LimitKind::Billing, r"you exceeded your current quota, please check your plan and billing"),
    (
        LimitKind::Billing,
        r"(?:no payment method\. add|to use codex with your chatgpt plan|your (?:prepay(?:ment)?|prepaid) credits are depleted|this (?:key|account) (?:has exceeded|is over) its (?:spend|credit)|key limit exceeded \()",
    ),
    (LimitKind::Billing, r"your team .{0,100}(?:used all available credits|reached its monthly spending limit)"),
    (LimitKind::Billing, r"(?:you have |you've )?(?:run|ran) out of (?:credits|tokens, please)"),
    // Nobody is logged in, or the key is not accepted.
    (LimitKind::Auth, r"invalid api key (?:·|provided|\.? ?please)"),
    (
        LimitKind::Auth,
        r"(?:please run /login|not logged in (?:·|\. ?please)|failed to authenticate(?:[.:]|$)|oauth (?:access )?token (?:has )?(?:expired|been revoked|revoked)|invalid oauth token|oauth authentication is currently not)",
    ),
    (
        LimitKind::Auth,
        r"(?:incorrect api key provided|invalid x-api-key|invalid bearer token|x-api-key header is required|invalid authentication credentials|api key not valid|no auth credentials found|api key (?:expired|not found)\. please|the api_key client option must be set|could not resolve authentication method|your authentication token has been (?:invalidated|revoked))",
    ),
    (
        LimitKind::Auth,
        r"your (?:access token could not be refreshed|refresh token (?:was|has)|session has (?:ended|expired)\. please (?:log|sign)|api key (?:is invalid|has been (?:revoked|disabled)))",
    ),
    (LimitKind::Auth, r"you didn['’]t provide an api key"),
    (
        LimitKind::Auth,
        r"(?:please set an auth method|when using (?:the )?gemini api,? you must specify|no authentication information found\.|must specify (?:the )?gemini_api_key|missing environment variable: `?\w+_(?:API_KEY|TOKEN)`?)",
    ),
    (LimitKind::Auth, r"(?:this|your) organization has (?:been )?disabled"),
    (
        LimitKind::Auth,
        r"(?:authentication (?:fails|failed)[ ,(.]{1,3}(?:\(?governor|your api key|please (?:log|sign|run|check your api))|the api key (?:you provided|format) is (?:invalid|incorrect)|login expired(?:[.,:;]| ·|$)|ide token expired)",
    ),
    (
        LimitKind::Auth,
        r"request had invalid authentication credentials|your credentials (?:have expired|are invalid)\b|the security token included in the request is (?:invalid|expired)",
    ),
    (
        LimitKind::Auth,
        r"(?:provider\.auth_error:|the api provider is not able to authenticate you|access denied due to invalid subscription key|you have insufficient permissions for this operation\. missing scopes|your (?:account|organization) does not have access to claude)",
    ),
    // A model that is not there.
    (
        LimitKind::ModelMissing,
        r"(?:providermodelnotfounderror:|project .{1,80}does not have access to model|your organization must be verified to use the model|the api deployment for this resource does not exist|invocation of model id .{1,120}on-demand throughput|model use case details have not been|claude [\w. ]{1,20} is not available with)",
    ),
    (LimitKind::ModelMissing, r"the model ['\x22`][\w./:@-]{1,80}['\x22`] was not found\. to download it"),
    (LimitKind::ModelMissing, r"the model .{1,100}does not ?exist or you do not have access"),
    (LimitKind::ModelMissing, r"there['’]s an issue with the selected model"),
    (LimitKind::ModelMissing, r"(?:the )?['`]?[\w./:-]{2,60}['`]? model is not supported when using"),
    (LimitKind::ModelMissing, r"models/[\w./:-]{1,80} is not found for api version"),
    (
        LimitKind::ModelMissing,
        r"(?:model ['\x22`]?[\w./:@-]{1,80}['\x22`]? not found, try pulling|no endpoints found (?:for|matching|that support)|[\w./:-]{1,80} is not a valid model id|the provided model identifier is invalid|invalid model name passed in model=|you don['’]t have access to (?:this|the) model|the requested model (?:is not supported|does not exist)|you do not have access to the model)",
    ),
    (LimitKind::ModelMissing, r"model not found: [\w.-]+/"),
    (LimitKind::ModelMissing, r"publisher model .{1,160}(?:was not found|is not servable)"),
    // A plan's share.
    (
        LimitKind::Quota,
        r"you(?: \([^)]{1,40}\))?(?:['’]ve| have) (?:hit|reached|exceeded|used up) your {WINDOW}(?:limits?|allowance|quota)(?: (?:for|of) (?:claude|gpt|gemini|this (?:billing|month|week|cycle|period)|the (?:day|week|month))| ?[.·∙•|,!—–(-]| (?:reset|try|until|upgrade|and)\b|$)",
    ),
    (LimitKind::Quota, r"claude (?:ai )?usage limit reached"),
    (
        LimitKind::Quota,
        r"(?:(?:\d+-hour|five-hour|weekly|session|opus|sonnet|free|usage|daily|monthly|credit) ){1,3}limit reached ?(?:[·∙•|]|$|\. (?:your|you|it|try)|for \d+ (?:hour|day|week)|, (?:please )?(?:try|wait|reset))",
    ),
    (LimitKind::Quota, r"the usage limit has been reached(?:[.,;\x22]|$)"),
    (LimitKind::Quota, r"you(?:['’]re| are) out of (?:codex messages|extra usage|usage credits|free)"),
    (
        LimitKind::Quota,
        r"your (?:usage|rate|weekly|session|5-hour) limit (?:will )?resets? (?:on|at|in) [a-z]{0,9} ?\d",
    ),
    (LimitKind::Quota, r"you have exhausted your (?:capacity on this model|daily quota|[\w.-]+ quota)"),
    (
        LimitKind::Quota,
        r"(?:your )?(?:qwen|gemini|copilot|claude)[\w .-]{0,30} quota (?:has been )?(?:exhausted|exceeded)",
    ),
    (
        LimitKind::Quota,
        r"(?:free allocated quota exceeded|allocated quota exceeded|month allocated quota exceeded|quota exceeded for quota metric|daily quota exceeded for)",
    ),
    (LimitKind::Quota, r"rate limit exceeded: free-models-per-day"),
    (LimitKind::Quota, r"too many tokens per day, please wait"),
    (
        LimitKind::Quota,
        r"you(?:['’]ve| have) (?:hit your global rate limit|exceeded your (?:copilot|monthly|weekly|5-hour) (?:token|request|usage|premium|chat)|no quota)",
    ),
    (
        LimitKind::Quota,
        r"(?:this|your) (?:workspace|organization|team|account) has (?:reached|hit|exceeded) its (?:specified )?(?:api |monthly |weekly |daily |spend(?:ing)? )*(?:usage |spend )?limits?",
    ),
    (LimitKind::Quota, r"(?:your project has exceeded its (?:monthly )?spending cap)"),
    (
        LimitKind::Quota,
        r"you(?:['’]ve| have) used (?:all (?:of )?|up )(?:your|today['’]s) (?:free |daily |weekly |monthly )*(?:usage|quota|messages|requests)",
    ),
    (
        LimitKind::Quota,
        r"(?:freeusagelimiterror:|free usage (?:limit )?exceeded[,.]|spending cap reached|已达到 ?\d+ ?小时的使用上限)",
    ),
    // Too much in a short time.
    (
        LimitKind::Rate,
        r"(?:provider\.rate_limit:|the api provider has rate limited you|server is temporarily limiting requests|(?:tokens|requests) per (?:second|minute|hour|day) limit exceeded|high concurrency usage of this api|service tier capacity exceeded|rate limit of \d+ per \d+s exceeded|you(?:['’]ve| have) (?:reached|exceeded) the rate limit (?:specific|for|,)|quota exceeded for [\w-]+\.googleapis)",
    ),
    (LimitKind::Rate, r"rate limit reached for .{1,160} (?:in organization|on (?:tokens|requests|input|output))"),
    (LimitKind::Rate, r"this request would exceed (?:your|the) (?:account|organization)['’]s (?:\w+ )*rate limit"),
    (
        LimitKind::Rate,
        r"(?:this request would exceed your organization['’]s maximum usage increase rate|number of (?:request tokens|requests|input tokens|output tokens|concurrent connections) has exceeded your|your request was rejected due to (?:rate|concurrency))",
    ),
    (LimitKind::Rate, r"(?:request rejected \(429\)|exceeded retry limit, last status: 429)"),
    (LimitKind::Rate, r"requests to the .{1,160}have exceeded (?:the )?(?:call|token) rate limit"),
    (LimitKind::Rate, r"your account .{0,160}request reached"),
    (LimitKind::Rate, r"request reached (?:organization|project|max)"),
    (LimitKind::Rate, r"too many (?:tokens|requests), please wait before trying again"),
    (LimitKind::Rate, r"we['’]re receiving too many requests at the moment"),
    (LimitKind::Rate, r"an error occurred \(throttling(?:exception)?\) when calling|throttlingexception(?::|\()"),
    (LimitKind::Rate, r"resource (?:has been )?exhausted(?: \(e\.g\. check quota\)|\. please try again later)"),
    (
        LimitKind::Rate,
        r"(?:you exceeded your current (?:quota|requests)\b|you['’]ve exceeded the rate limit, please slow down|rate limit exceeded: free-models-per-min)",
    ),
    (
        LimitKind::Rate,
        r"sorry, (?:you(?:['’]ve| have) (?:hit a rate limit|been rate.limited|exceeded)|your request was rate.limited|you['’]ve hit a)",
    ),
    (LimitKind::Rate, r"[\w./:-]{2,80} is temporarily rate-limited upstream"),
    // The provider has too much to do.
    (LimitKind::Overload, r"repeated 529 overloaded"),
    (LimitKind::Overload, r"overloaded_error(?: \d{3}| ?[:(.]|$)"),
    (
        LimitKind::Overload,
        r"(?:the|this|that) (?:model|engine) is (?:currently )?(?:overloaded|experiencing high demand|at capacity)(?:[.,;!]|$| (?:with other|right now))",
    ),
    (LimitKind::Overload, r"(?:we['’]re|we are|the system is) currently experiencing high (?:demand|load)"),
    (
        LimitKind::Overload,
        r"(?:selected model is at capacity(?:[.,;]|$)|(?:claude )?(?:opus|sonnet|haiku|fable)[ \d.]* is experiencing high load|the api provider['’]s servers are|the server is overloaded or not ready|no deployments available for selected model)",
    ),
    (LimitKind::Overload, r"no capacity available for model"),
    (LimitKind::Overload, r"our servers are currently (?:overloaded|experiencing)"),
    (LimitKind::Overload, r"the server had an error (?:while )?processing your request"),
    (
        LimitKind::Overload,
        r"the server is (?:currently )?(?:overloaded|busy), please|server overloaded, please|an error occurred while processing your request\. you can retry",
    ),
    (
        LimitKind::Overload,
        r"(?:model|bedrock|anthropic|openai|gemini) (?:service )?is (?:currently |temporarily )?(?:unable to process your request|not ready|overloaded)",
    ),
];

const GENERAL: Table = &[
    (LimitKind::ContextTooLong, r"(?:prompt|input|request|context|payload)(?: \w+)? (?:is )?too (?:long|large)"),
    (LimitKind::ContextTooLong, r"request entity too large"),
    (
        LimitKind::Billing,
        r"(?:insufficient (?:credits?|account balance|balance|funds|quota)|payment required|no credits|quota is insufficient)",
    ),
    (
        LimitKind::Auth,
        r"(?:unauthorized|unauthenticated|invalid (?:api )?(?:key|token|credentials)|invalid authentication|authentication (?:failed|error|required)|forbidden|not logged in|user not found|the caller does not have permission|missing bearer|expired token)",
    ),
    (
        LimitKind::ModelMissing,
        r"(?:model .{0,80}(?:not found|does not exist|not supported|not available|is deprecated)|unknown model|invalid model|requested entity was not found|unsupported model)",
    ),
    (LimitKind::Quota, r"(?:your )?(?:\w+ ){0,2}quota (?:has been |was |is )?(?:exceeded|exhausted|reached)"),
    (LimitKind::Quota, r"(?:usage|daily|weekly|monthly|free usage) limit (?:reached|exceeded)"),
    (LimitKind::Rate, r"(?:\w+ )?(?:api )?rate[ -]limit(?:s|ed|ing)?\b"),
    (
        LimitKind::Rate,
        r"(?:too many requests|request (?:was )?(?:rejected|throttled)|throttl|requests? rate increased too quickly|resource_?\s?exhausted|concurrency limit)",
    ),
    (LimitKind::Overload, r"(?:\w+ )?(?:overloaded|at capacity)\b"),
    (
        LimitKind::Overload,
        r"(?:internal (?:server )?error|service (?:temporarily )?unavailable|bad gateway|gateway time-?out|unavailable|server error|upstream (?:connect )?error|no available (?:server|accounts?)|high demand|server is busy)",
    ),
];

/// Wordings of any service directly before a time. They are sufficient if they are at the end of a run's output.
const TIMED: Table = &[
    (
        LimitKind::Rate,
        r"(?:api )?rate limit (?:is |was |has been )?(?:exceeded|reached|hit)[.:,;!·—– -]{1,3}(?:please )?(?:try again|retry|wait|resets?)\b",
    ),
    (
        LimitKind::Rate,
        r"too many requests[.:,;!·—– -]{1,3}(?:please )?(?:try again|retry|wait|resets?) (?:in|after|at|until) ",
    ),
    (
        LimitKind::Quota,
        r"(?:your )?(?:\w+ )?quota (?:is |was |has been )?(?:exceeded|exhausted|reached)[.:,;!·—– -]{1,3}(?:please )?(?:(?:it |quota )?(?:will )?resets?|try again|retry)\b",
    ),
    (
        LimitKind::Quota,
        r"usage limit (?:is |was |has been )?(?:exceeded|reached)[.:,;!·—– -]{1,3}(?:please )?(?:(?:it |limit )?(?:will )?resets?|try again|retry)\b",
    ),
];

/// Words for a whole day, week or month, which show that a limit is a quota and not a rate.
static LONG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)per[ _-]?(?:day|week|month)|(?-u:\b)[TR]PD(?-u:\b)|daily|weekly|monthly|quota_exhausted")
        .expect("constant pattern")
});

struct Set {
    table: Table,
    set: RegexSet,
}

impl Set {
    fn new(table: Table) -> Self {
        let anchored = table.iter().map(|(_, words)| format!("(?i)^(?:{})", ascii(&words.replace("{WINDOW}", WINDOW))));
        Self { table, set: RegexSet::new(anchored).expect("constant patterns") }
    }

    fn kind(&self, text: &str) -> Option<LimitKind> {
        self.set.matches(text).iter().next().map(|index| self.table[index].0)
    }
}

/// Returns the pattern with ASCII-only character classes, because all words are English and the compiled pattern is much smaller.
pub(super) fn ascii(pattern: &str) -> String {
    let classes =
        [(r"\w", "[0-9A-Za-z_]"), (r"\d", "[0-9]"), (r"\s", r"\ "), (r"\b", r"(?-u:\b)"), (".{", r"[\x20-~]{")];
    classes.iter().fold(pattern.to_owned(), |pattern, (class, narrow)| pattern.replace(class, narrow))
}

/// Messages of Z.ai whose times are in Beijing time without stating it.
static BEIJING: LazyLock<Regex> =
    LazyLock::new(|| Regex::new(r"(?i)usage limit reached for \d+ hour|使用上限").expect("constant pattern"));

/// Returns the time zone that a provider implies in a message; `None` if there is no such convention.
pub(super) fn zone(message: &str) -> Option<&'static str> {
    BEIJING.is_match(message).then_some("Asia/Shanghai")
}

/// Messages that consist only of an HTTP status and its standard text.
static WHOLE: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r"(?ix)^(?:error:\ |http\ )?([45][0-9]{2})[:\ ]\ ?(?:too\ many\ requests|insufficient\ (?:balance|credits|quota)
        |payment\ required|unauthorized|overloaded|service\ (?:temporarily\ )?unavailable|internal\ server\ error
        |bad\ gateway|gateway\ time-?out)\.?$",
    )
    .expect("constant pattern")
});

/// Returns the HTTP status of a message that consists only of a status and its standard text.
pub(super) fn whole(message: &str) -> Option<u16> {
    WHOLE.captures(message)?[1].parse().ok()
}

static SPECIFIC_SET: LazyLock<Set> = LazyLock::new(|| Set::new(SPECIFIC));
static GENERAL_SET: LazyLock<Set> = LazyLock::new(|| Set::new(GENERAL));
static TIMED_SET: LazyLock<Set> = LazyLock::new(|| Set::new(TIMED));

/// Returns the limit at the beginning of `text`, by the wordings of single providers.
pub(super) fn specific(text: &str) -> Option<LimitKind> {
    SPECIFIC_SET.kind(text)
}

/// Returns the limit at the beginning of `text`, by the wordings of any service.
pub(super) fn general(text: &str) -> Option<LimitKind> {
    GENERAL_SET.kind(text)
}

/// Returns the limit at the beginning of `text`, by the wordings of any service that are followed by a time.
pub(super) fn timed(text: &str) -> Option<LimitKind> {
    TIMED_SET.kind(text)
}

/// Refines the kind by the rest of the message. A rate per day becomes a quota. Gemini words a used-up quota as OpenAI words an
/// account without credit; those are told apart here.
pub(super) fn refine(kind: LimitKind, message: &str) -> LimitKind {
    let google = || ["ai.google.dev", "RESOURCE_EXHAUSTED", "googleapis"].iter().any(|word| message.contains(word));
    match kind {
        LimitKind::Billing if google() && !message.contains("prepayment") => refine(LimitKind::Rate, message),
        LimitKind::Rate | LimitKind::Quota if message.contains("insufficient_quota") => LimitKind::Billing,
        LimitKind::Rate if LONG.is_match(message) => LimitKind::Quota,
        LimitKind::Quota if message.contains("metric") && !LONG.is_match(message) => LimitKind::Rate,
        kind => kind,
    }
}
