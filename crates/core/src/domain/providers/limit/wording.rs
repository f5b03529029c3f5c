//! Wording of providers and their programs for each kind of limit.
//!
//! Each sentence matches only at its start: of a line, of an error message after the prefixes that programs add, or of a later
//! sentence of a message. [`SENTENCES`] states for each one what else has to show that it is about a model.

use std::sync::LazyLock;

use regex::{Regex, RegexSet};

use self::Needs::{Nothing, Provider, Time};
use crate::domain::providers::limit::LimitKind::{
    self, Auth, Billing, ContextTooLong, Empty, ModelMissing, Overload, OwnBudget, Policy, Quota, Rate,
};

/// Evidence that a sentence is about a model.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Needs {
    /// Nothing: only a provider or its program words it like this.
    Nothing,
    /// A provider's prefix or a matching status.
    Provider,
    /// A time that follows, at the end of a run's output.
    Time,
}

/// Word between "your" and "limit".
const WINDOW_WORD: &str = r"(?:org(?:anization)?['’]?s?|workspace['’]?s?|team['’]?s?|account['’]?s?|plan['’]?s?|claude|codex|chatgpt|gemini|qwen|kimi|cursor|copilot|go|pro|plus|monthly|weekly|daily|hourly|weekly/monthly|session|usage|opus|sonnet|haiku|fable|api|free|chat|agent|messages?|spend(?:ing)?|premium|requests?|tokens?|credits?|specified|current|global|included|(?:\d+|five|seven)[ -](?:hour|day)|5h|7d|extra|[a-z]+-[\w.-]*\d[\w.-]*|[0-9.]{1,4})";

/// Sentences by kind. Within the same needs, the first that matches counts.
#[rustfmt::skip]
const SENTENCES: &[(Needs, LimitKind, &str)] = &[
    // The provider declines the content of the request.
    (Nothing, Policy, r"(?:claude code|claude|the model) is unable to respond to this request, which appears to violate"),
    (Nothing, Policy, r"(?:output|input|request|response|prompt|content|completion) (?:was |is |has been )?(?:blocked|rejected|filtered) by (?:the |our |anthropic['’]s |azure openai['’]s )?(?:content|safety|moderation|usage)"),
    (Nothing, Policy, r"(?:invalid prompt: )?(?:this|your|the) (?:prompt|request|input|message|content|conversation|output|response) (?:(?:was|is|has been|could not be processed because it) )?(?:flagged|rejected|blocked|refused|declined|filtered|violates?|appears to violate)[^.]{0,80}(?:our (?:usage|content|safety|acceptable|terms|polic)|usage polic|acceptable use|safety system|content filter|possible cyber)"),
    (Nothing, Policy, r"the response was filtered due to the prompt triggering|the generated text has been blocked by our content filters"),
    (Nothing, Policy, r"system detected potentially unsafe or sensitive content|(?:input|output)(?: text)?(?: data)? may contain inappropriate content|系统检测到输入或生成内容可能"),
    (Nothing, Policy, r"the request was rejected because it was considered high risk"),
    (Nothing, Policy, r"(?:the model|claude|the provider) (?:refused|declined|rejected) (?:this|your|the) request"),
    (Nothing, Policy, r"(?:candidate|response|prompt) was blocked due to (?:safety|prohibited|recitation|spii|blocklist|other)"),
    // No answer, although nothing was refused.
    (Nothing, Empty, r"model stream ended (?:with empty response text|without)|no output generated\. check the stream|the provider['’]s answers had no content"),
    (Nothing, Empty, r"(?:no|(?:received )?(?:an? )?(?:empty|blank)) (?:response|answer|output|content|completion) (?:was )?(?:received |returned )?from (?:the )?(?:model|provider|llm)\b"),
    (Nothing, Empty, r"(?:the )?(?:model|provider|llm|assistant)(?:['’]s)? (?:response |answer |output )?(?:was|is|returned|gave|sent|produced|generated|did not return) (?:an? |any )?(?:empty|no|blank|response|answer|content|completion|text|output)\b"),
    // The agent's own limit of cost.
    (Nothing, OwnBudget, r"(?:(?:the )?(?:agent|session|run)(?:['’]s)? )?(?:has )?(?:reached|hit|exceeded) (?:the |its |your )?(?:max(?:imum)? |usd |cost |session |configured )+(?:budget|limit)\b"),
    (Nothing, OwnBudget, r"(?:max(?:imum)? |session |agent |run )+(?:cost |usd )?(?:budget|cost)(?: limit)?(?: of)?(?: \(?\$[\d.]+\)?)? (?:is |was |has been )?(?:reached|exceeded|used up|exhausted)|(?:budget|cost)(?: limit)?(?: of)? \(?\$[\d.]+\)? (?:was |is )?(?:reached|exceeded)|cost limit (?:exceeded|reached): "),
    // Longer than the model takes. Before the rest: some come with the status of a rate.
    (Nothing, ContextTooLong, r"request too large (?:for|\(max)"),
    (Nothing, ContextTooLong, r"(?:prompt|input|conversation|context) (?:is|was) too long(?:: ?\d| for requested model| ·|\.? ?$)"),
    (Nothing, ContextTooLong, r"(?:this|the) (?:model|endpoint)['’]?s maximum (?:context|prompt|input) length\b"),
    (Nothing, ContextTooLong, r"(?:input length and `?max_tokens`? exceed|(?:your|the) input exceeds the (?:model['’]s )?context)"),
    (Nothing, ContextTooLong, r"(?:the|your) (?:input|prompt|request|message)(?:'s)?(?: token count)? ?(?:\([^)]{0,40}\) )?exceeds? the (?:maximum number of tokens|available context|model['’]?s? (?:context|maximum)|configured limit|limit of \d+ tokens|maximum (?:context|allowed number))"),
    (Nothing, ContextTooLong, r"(?:requested token count|prompt (?:length|token count)[^.]{0,40}) exceeds? the (?:model['’]?s |limit)"),
    (Nothing, ContextTooLong, r"(?:codex )?ran out of room in the model['’]s context"),
    (Nothing, ContextTooLong, r"(?:context window|maximum context length|context length) (?:exceeded|is exceeded|exceeds (?:the )?limit|of this model)"),
    (Nothing, ContextTooLong, r"(?:total )?(?:number of )?tokens? (?:in|of) (?:the )?(?:prompt|request|input)[^.]{0,60} exceeds"),
    (Nothing, ContextTooLong, r"(?:conversation too long|model .{1,60} has hit a token limit|input tokens exceed the configured limit|prompt exceeds max length|prompt token count of \d+ exceeds)"),
    (Nothing, ContextTooLong, r"(?:extra usage is required for|the long context beta is not)"),
    (Nothing, ContextTooLong, r"please reduce the length of (?:the messages|either one|(?:the|your) (?:prompt|input|messages))"),
    // No money.
    (Nothing, Billing, r"(?:insufficient_quota: |prompt tokens limit exceeded: \d|budget has been exceeded! current|you(?:['’]ve| have) exceeded your monthly included credits)"),
    (Nothing, Billing, r"(?:your )?credit balance is too low\b"),
    (Nothing, Billing, r"(?:this request requires more credits|more credits are required|insufficient (?:credits|(?:credit )?balance)(?:\. add|[.,] (?:please|manage)| or no resource)|insufficient account balance|your (?:credit|account) balance is (?:insufficient|too low|exhausted))"),
    (Nothing, Billing, r"your account .{0,160}(?:insufficient balance|exceeded current quota|is not active, please check your billing)"),
    (Nothing, Billing, r"billing hard limit has been reached|access denied, please make sure your account is in good standing"),
    (Nothing, Billing, r"third-party apps now draw from your extra usage"),
    (Nothing, Billing, r"your (?:newly created )?team doesn['’]t have any credits"),
    (Nothing, Billing, r"your glm coding plan (?:package )?has expired|您的账户已欠费|您的 glm coding plan 套餐已到期"),
    (Nothing, Billing, r"you exceeded your current quota, please check your plan and billing|quota exceeded\. check your plan and billing details"),
    (Nothing, Billing, r"(?:no payment method\. add|to use codex with your chatgpt plan|your (?:prepay(?:ment)?|prepaid) credits are depleted|this (?:key|account) (?:has exceeded|is over) its (?:spend|credit)|key limit exceeded \(total)"),
    (Nothing, Billing, r"your (?:newly created )?team .{0,100}(?:used all available credits|reached its monthly spending limit)"),
    (Nothing, Billing, r"your workspace is out of credits|(?:you have |you've )?(?:run|ran) out of (?:credits|tokens, please)|out of credits\.(?:$| (?:please )?(?:purchase|add|buy|top))"),
    // There is no login, or the key is not accepted.
    (Nothing, Auth, r"invalid api key (?:·|provided|\.? ?please)"),
    (Nothing, Auth, r"(?:please run (?:/login|['`\x22]?(?:codex|claude|cursor-agent|agent|opencode|amp|kimi|qwen|gemini|copilot|droid|auggie) (?:auth )?login)|(?:you are )?not logged in(?: ·|\. ?(?:please|run))|authentication required\. please run ['`\x22]?(?:codex|claude|cursor-agent|agent|opencode|amp|kimi|qwen|gemini|copilot|droid|auggie) (?:auth )?login|oauth (?:access )?token (?:has )?(?:expired|been revoked|revoked)|invalid oauth token|oauth authentication is currently not)"),
    (Nothing, Auth, r"(?:incorrect api key provided|invalid x-api-key|invalid bearer token|x-api-key header is required|invalid authentication credentials|api key not valid|no auth credentials found|api key (?:expired|not found)\. please|the api_key client option must be set|could not resolve authentication method|your authentication token has (?:been (?:invalidated|revoked)|expired))"),
    (Nothing, Auth, r"your (?:access token could not be refreshed|refresh token (?:was|has)|session has (?:ended|expired)\. please (?:log|sign)|api key (?:is invalid|has been (?:revoked|disabled)))"),
    (Nothing, Auth, r"you didn['’]t provide an api key"),
    (Nothing, Auth, r"(?:please set an auth method|when using (?:the )?gemini api,? you must specify|no authentication information found\.|must specify (?:the )?gemini_api_key|missing environment variable: `?\w+_(?:API_KEY|TOKEN)`?)"),
    (Nothing, Auth, r"(?:this|your) organization has (?:been )?disabled|user location is not supported for the api use|access denied by policy settings"),
    (Nothing, Auth, r"(?:authentication (?:fails|failed)[ ,(.]{1,3}(?:\(?governor|your api key|please (?:log|sign|run|check your api))|the api key (?:you provided|format) is (?:invalid|incorrect)|login expired(?:[.,:;]| ·|$)|ide token expired)"),
    (Nothing, Auth, r"request had invalid authentication credentials|your credentials (?:have expired|are invalid)\b|the security token included in the request is (?:invalid|expired)"),
    (Nothing, Auth, r"(?:provider\.auth_error:|the api provider is not able to authenticate you|access denied due to invalid subscription key|you have insufficient permissions for this operation\. missing scopes|your (?:account|organization) does not have access to claude)"),
    // A model that is not there.
    (Nothing, ModelMissing, r"(?:providermodelnotfounderror:|project .{1,80}does not have access to model|your organization must be verified to use the model|the api deployment for this resource does not exist|invocation of model id .{1,120}on-demand throughput|model use case details have not been|claude [\w. ]{1,20} is not available with)"),
    (Nothing, ModelMissing, r"the model ['\x22`][\w./:@-]{1,80}['\x22`] was not found\. to download it"),
    (Nothing, ModelMissing, r"the model .{1,100}does not ?exist or you do not have access"),
    (Nothing, ModelMissing, r"there['’]s an issue with the selected model"),
    (Nothing, ModelMissing, r"(?:the )?['`]?[\w./:-]{2,60}['`]? model is not supported when using"),
    (Nothing, ModelMissing, r"models/[\w./:-]{1,80} is not found for api version"),
    (Nothing, ModelMissing, r"(?:model ['\x22`]?[\w./:@-]{1,80}['\x22`]? not found, try pulling|no endpoints found (?:for|matching|that support)|[\w./:-]{1,80} is not a valid model id|the provided model identifier is invalid|invalid model name passed in model=|you don['’]t have access to (?:this|the) model|the requested model (?:is not supported|does not exist)|you do not have access to the model|model \x22[\w./:@-]{1,80}\x22 from --model flag is not available)"),
    (Nothing, ModelMissing, r"model not found: [\w.-]+/"),
    (Nothing, ModelMissing, r"the current subscription plan does not yet include access to|当前订阅套餐暂未开放"),
    (Nothing, ModelMissing, r"publisher model .{1,160}(?:was not found|is not servable)"),
    // A plan's share.
    (Nothing, Quota, r"you(?: \([^)]{1,40}\))?(?:(?:['’]ve| have) (?:hit|reached|exceeded|used up|exhausted)| (?:hit|reached)) (?:your|the|all your) {WINDOW}(?:limits?|allowance|quota(?: limits?)?|cap)(?: (?:for|of) (?:claude|gpt|gemini|this (?:billing|month|week|cycle|period|model)|the (?:day|week|month)|today)| on this| ?[.·∙•|,!—–(-]| (?:reset|try|until|upgrade|get|and|you)\b|$)"),
    (Nothing, Quota, r"claude (?:ai )?usage limit reached|usage limit reached for [\w. -]{1,60}\. access resets"),
    (Nothing, Quota, r"(?:your |the )?(?:{WINDOW_WORD}\s){1,4}(?:limit|quota(?: limit)?|allowance|cap) (?:is |was |has been )?(?:reached|exceeded|exhausted|hit|used up|depleted) ?(?:[·∙•|]|$|\. (?:your|you|it|they|try|retry|wait|come|please|to|limits?|quota|usage|next|access|available|resets?|upgrade|add|switch)\b|for (?:\d+ (?:hour|day|week)|this|(?:claude|gpt|gemini|glm|qwen|kimi)\b)|, (?:please )?(?:try|wait|reset))"),
    (Nothing, Quota, r"(?:your )?(?:api )?access (?:is |was |has been )?paused for this (?:organization|workspace|account)|(?:your|this|the) (?:organization|workspace|account|team)(?:['’]s)? (?:api )?access (?:to \w{1,20} )?(?:is |was |has been )paused"),
    (Nothing, Quota, r"your account['’]s current usage pattern does not comply with the fair usage policy"),
    (Nothing, Quota, r"daily call limit for this api reached"),
    (Nothing, Quota, r"(?:您)?(?:的账户)?已达到[^。]{0,20}使用上限"),
    (Nothing, Rate, r"you(?:['’]ve| have) (?:hit|reached|exceeded) (?:your|the) {WINDOW}rate limit[ .,!·]"),
    (Nothing, Quota, r"the usage limit has been reached(?:[.,;\x22]|$)"),
    (Nothing, Quota, r"you(?:['’]re| are) out of (?:codex messages|user messages|extra usage|usage credits|free)"),
    (Nothing, Quota, r"your (?:(?:usage|rate|weekly|session|5-hour|daily|monthly) )?limits? (?:will )?resets? (?:on |at |in )?[a-z]{0,9} ?\d"),
    (Nothing, Quota, r"you(?:['’]ve| have) (?:run out of|no (?:remaining|more)) (?:your )?(?:free |daily |weekly |monthly |included |premium )*(?:usage|requests|messages|quota)\b"),
    (Nothing, Quota, r"you have exhausted your (?:capacity on this model|daily quota|[\w.-]+ quota)"),
    (Nothing, Quota, r"(?:your )?(?:qwen|gemini|copilot|claude)[\w .-]{0,30} quota (?:has been )?(?:exhausted|exceeded)"),
    (Nothing, Quota, r"(?:free allocated quota exceeded|allocated quota exceeded|month allocated quota exceeded|quota exceeded for quota metric|daily quota exceeded for)"),
    (Nothing, Quota, r"rate limit exceeded: free-models-per-day"),
    (Nothing, Quota, r"too many tokens per day, please wait"),
    (Nothing, Quota, r"you(?:['’]ve| have) (?:hit your global rate limit|exceeded your (?:(?:copilot|monthly|weekly|5-hour) ){1,2}(?:quota|token|request|usage|premium|chat)|no quota)"),
    (Nothing, Quota, r"(?:this|your) (?:workspace|organization|team|account|plan) has (?:reached|hit|exceeded|used up) (?:its|the|your) {WINDOW}(?:limits?|quota|allowance)\b"),
    (Nothing, Quota, r"(?:your project has exceeded its (?:monthly )?spending cap)"),
    (Nothing, Quota, r"you(?:['’]ve| have) used (?:100 ?%|all) of your {WINDOW}(?:limit|quota|allowance)\b"),
    (Nothing, Quota, r"you(?:['’]ve| have) used (?:all (?:of )?|up )(?:your|today['’]s) (?:free |daily |weekly |monthly |premium |included |chat )*(?:usage|quota|messages|requests|tokens|credits)"),
    (Nothing, Quota, r"(?:freeusagelimiterror:|key limit exceeded \((?:hourly|daily|weekly|monthly)|free usage (?:limit )?exceeded[,.]|spending cap reached)"),
    // Too much in a short time.
    (Nothing, Rate, r"(?:provider\.rate_limit:|the api provider has rate limited you|server is temporarily limiting requests|(?:tokens|requests) per (?:second|minute|hour|day) limit exceeded|high concurrency usage of this api|service tier capacity exceeded|rate limit of \d+ per \d+s exceeded|you(?:['’]ve| have) (?:reached|exceeded) the rate limit (?:specific|for|,)|quota exceeded for [\w-]+\.googleapis)"),
    (Nothing, Rate, r"rate limit reached for .{1,160} (?:in organization|on (?:tokens|requests|input|output))"),
    (Nothing, Rate, r"this request would exceed (?:your|the) (?:account|organization)['’]s (?:\w+ )*rate limit"),
    (Nothing, Rate, r"(?:this request would exceed your organization['’]s maximum usage increase rate|number of (?:request tokens|requests|input tokens|output tokens|concurrent connections) has exceeded your|your request was rejected due to (?:rate|concurrency))"),
    (Nothing, Rate, r"(?:connecterror: \[resource_exhausted\]|request rejected \(429\)|exceeded retry limit, last status: 429)"),
    (Nothing, Rate, r"requests to the .{1,160}have exceeded (?:the )?(?:call|token) rate limit"),
    (Nothing, Rate, r"your account .{0,160}request reached"),
    (Nothing, Rate, r"request reached (?:organization|project|max)"),
    (Nothing, Rate, r"too many (?:tokens|requests), please wait before trying again"),
    (Nothing, Rate, r"we['’]re receiving too many requests at the moment"),
    (Nothing, Rate, r"an error occurred \(throttling(?:exception)?\) when calling|throttlingexception(?::|\()"),
    (Nothing, Rate, r"resource (?:has been )?exhausted(?: \(e\.g\. check quota\)|\. please try again later)"),
    (Nothing, Rate, r"(?:you exceeded your current (?:quota|requests)\b|you['’]ve exceeded the rate limit, please slow down|rate limit exceeded: free-models-per-min)"),
    (Nothing, Rate, r"sorry, (?:you(?:['’]ve| have) (?:hit|reached|exceeded|used (?:up|all)|run out|been rate.limited)|your request was rate.limited)"),
    (Nothing, Rate, r"[\w./:-]{2,80} is temporarily rate-limited upstream"),
    // The provider has too much to do.
    (Nothing, Overload, r"repeated 529 overloaded|cannot connect to api: |upstream idle timeout exceeded"),
    (Nothing, Overload, r"the service may be temporarily overloaded|该模型当前访问量过大"),
    (Nothing, Overload, r"overloaded_error(?: \d{3}| ?[:(.]|$)"),
    (Nothing, Overload, r"(?:the|this|that) (?:model|engine) is (?:currently )?(?:overloaded|experiencing high (?:demand|traffic|load)|at capacity)(?:[.,;!]|$| (?:with other|right now))"),
    (Nothing, Overload, r"(?:we['’]re|we are|the system is) (?:currently )?experiencing high (?:demand|load|traffic)"),
    (Nothing, Overload, r"(?:selected model is at capacity(?:[.,;]|$)|(?:claude )?(?:opus|sonnet|haiku|fable)[ \d.]* is experiencing high load|the api provider['’]s servers are|the server is overloaded or not ready|no deployments available for selected model)"),
    (Nothing, Overload, r"no capacity available for model"),
    (Nothing, Overload, r"getaddrinfo (?:enotfound|eai_again) (?:api\.anthropic\.com|api\.openai\.com|chatgpt\.com|generativelanguage\.googleapis\.com|cloudcode-pa\.googleapis\.com|openrouter\.ai)\b"),
    (Nothing, Overload, r"our servers are currently (?:overloaded|experiencing)"),
    (Nothing, Overload, r"the server had an error (?:while )?processing your request"),
    (Nothing, Overload, r"the server is (?:currently )?(?:overloaded|busy), please|server overloaded, please|an error occurred while processing your request\. you can retry"),
    (Nothing, Overload, r"(?:model|bedrock|anthropic|openai|gemini) (?:service )?is (?:currently |temporarily )?(?:unable to process your request|not ready|overloaded)"),
    // Sentences of any service. Here a provider's prefix or a matching status has to show that they are about a model.
    (Provider, Policy, r"(?:[\w-]+ ){0,6}(?:violat(?:es?|ed|ing)|against) (?:our |the )?(?:[\w-]+ )?(?:usage|content|acceptable use|safety) (?:policy|policies|guidelines)"),
    // A request is refused for many reasons; only its content is refused for a policy.
    (Provider, Policy, r"(?:the |this |your )?(?:(?:content|prompt|input|output|response|message) (?:was |is |has been )?(?:flagged|blocked|refused|declined|filtered)|request (?:was |is |has been )?(?:flagged|filtered))\b"),
    (Provider, OwnBudget, r"(?:budget|cost) limit (?:reached|exceeded|hit)\b"),
    (Provider, Empty, r"(?:received )?(?:an )?empty (?:response|answer|completion|message)\b|no (?:response|output|content|completion|answer) (?:was )?(?:received|returned|generated|from)"),
    (Provider, ContextTooLong, r"(?:prompt|input|request|context|payload)(?: \w+)? (?:is )?too (?:long|large)"),
    (Provider, ContextTooLong, r"request entity too large"),
    (Provider, Billing, r"(?:insufficient (?:credits?|account balance|balance|funds|quota)|payment required|no credits|quota is insufficient)"),
    (Provider, Billing, r"your (?:[\w-]+ ){0,3}(?:subscription|trial|plan|package) (?:has |is )?(?:expired|ended|lapsed|past due|not active|inactive)"),
    (Provider, Billing, r"(?:please )?(?:add|update|purchase|buy|top up) (?:more )?(?:funds|credits|a payment method|your payment)|(?:no|you need an?) (?:active |paid )?(?:subscription|payment method)|your (?:card|payment) (?:was|has been) declined|(?:[\w ]{0,30})requires billing to be enabled"),
    (Provider, Billing, r"(?:your )?(?:\w+ ){0,2}credits (?:are |have been |were )?(?:exhausted|depleted|used up|insufficient)"),
    (Provider, Billing, r"(?:your )?(?:account |credit )?balance (?:is |has been )?(?:exhausted|depleted|insufficient|too low|negative)|you (?:do not|don['’]t) have an? (?:active |paid )?(?:subscription|plan)"),
    (Provider, Billing, r"(?:your |the |this )?(?:account|organization|team|workspace) (?:has |is )?(?:run |ran )?(?:out of (?:credits|funds)|insufficient)"),
    (Provider, Auth, r"(?:unauthorized|unauthenticated|invalid (?:api )?(?:key|token|credentials)|invalid authentication|authentication (?:failed|error|required)|forbidden|not logged in|user not found|the caller does not have permission|missing bearer|expired token)"),
    (Provider, Auth, r"(?:your |the |this )?(?:api |access |oauth |refresh )?(?:key|token|session|credentials?|login)(?: [\w-]+)? (?:is|are|has|have) (?:been )?(?:invalid|expired|revoked|disabled|not valid|missing)"),
    (Provider, Auth, r"(?:your |this |the )?(?:organization|account|workspace|user)(?:['’]s access)?(?: to \w+)? (?:is|was|has been) (?:disabled|suspended|deactivated|blocked|banned|locked)"),
    (Provider, Auth, r"no (?:valid )?(?:api key|credentials|authentication)|you must (?:be logged|log|sign) in|(?:log|sign)[ -]?in (?:is )?required|please (?:re-?authenticate|log in|sign in)"),
    (Provider, ModelMissing, r"(?:model .{0,80}(?:not found|does not exist|not supported|not available|is deprecated)|unknown model|invalid model|requested entity was not found|unsupported model)"),
    (Provider, Quota, r"(?:your )?(?:\w+ ){0,4}quota (?:limit )?(?:(?:for|of) (?:this|your|the) [\w-]+ )?(?:has been |was |is )?(?:exceeded|exhausted|reached|used up|depleted)"),
    (Provider, Quota, r"(?:usage|daily|weekly|monthly|hourly|session|request|plan|free usage) limit (?:has been |was |is )?(?:reached|exceeded|hit|exhausted)"),
    (Provider, Rate, r"you(?:['’]ve| have) (?:hit|reached|exceeded|used up|exhausted) (?:your|the|all) (?:[\w.'’/-]{1,30} ){0,5}rate limit"),
    (Provider, Quota, r"you(?:['’]ve| have) (?:hit|reached|exceeded|used up|exhausted) (?:your|the|all) (?:[\w.'’/-]{1,30} ){0,5}(?:limits?|quota|allowance|cap|credits)\b"),
    (Provider, Rate, r"(?:\w+ )?(?:api )?rate[ -]limit(?:s|ed|ing)?\b"),
    (Provider, Rate, r"(?:too many requests|request (?:was )?(?:rejected|throttled)|throttl|requests? rate increased too quickly|resource_?\s?exhausted|concurrency limit)"),
    (Provider, Overload, r"(?:\w+ )?(?:overloaded|at capacity)\b"),
    (Provider, Overload, r"(?:connection (?:error|refused|reset|timed out|closed)|(?:(?:read|write|connect) )?(?:econnreset|econnrefused|etimedout|epipe)\b|socket hang up|unable to connect|fetch failed|request timed out|internal (?:server )?error|service (?:temporarily )?unavailable|bad gateway|gateway time-?out|unavailable|server error|upstream (?:connect )?error|no available (?:server|accounts?)|high demand|server is busy)"),
    (Provider, Overload, r"(?:the |this )?(?:model|service|server|api|provider|upstream) (?:is |are )?(?:currently |temporarily )*(?:unavailable|overloaded|busy|down|unreachable)"),
    // Sentences of any service, directly before a time and at the end of the output.
    (Time, Rate, r"(?:api )?rate limit (?:is |was |has been )?(?:exceeded|reached|hit)[.:,;!·—– -]{1,3}(?:please )?(?:(?:it |limit )?(?:will )?(?:resets?|renews?)|try again|retry|wait|until)\b"),
    (Time, Rate, r"too many requests[.:,;!·—– -]{1,3}(?:please )?(?:try again|retry|wait|resets?) (?:in|after|at|until) "),
    (Time, Quota, r"(?:your )?(?:\w+ )?quota (?:is |was |has been )?(?:exceeded|exhausted|reached)[.:,;!·—– -]{1,3}(?:please )?(?:(?:it |(?:your )?quota )?(?:will )?(?:resets?|renews?)|try again|retry|until)\b"),
    (Time, Quota, r"usage limit (?:is |was |has been )?(?:exceeded|reached)[.:,;!·—– -]{1,3}(?:please )?(?:(?:it |(?:your )?limit )?(?:will )?(?:resets?|renews?)|try again|retry|until)\b"),
];

/// Words for a whole day, week or month, which show that a limit is a quota and not a rate.
static LONG: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"(?i)per[ _-]?(?:day|week|month)|(?-u:\b)[TR]PD(?-u:\b)|daily|weekly|monthly|quota_exhausted")
        .expect("constant pattern")
});

/// Compiled sentences with the same needs.
struct Set {
    kinds: Vec<LimitKind>,
    set: RegexSet,
}

impl Set {
    fn new(needs: Needs) -> Self {
        let rows = || SENTENCES.iter().filter(move |(known, ..)| *known == needs);
        let window = format!(r"(?:{WINDOW_WORD}\s)*");
        let fill = |words: &str| words.replace("{WINDOW}", &window).replace("{WINDOW_WORD}", WINDOW_WORD);
        let anchored = rows().map(|(.., words)| format!("(?i)^(?:{})", ascii(&fill(words))));
        let set = RegexSet::new(anchored).expect("constant patterns");
        Self { kinds: rows().map(|(_, kind, _)| *kind).collect(), set }
    }

    fn kind(&self, text: &str) -> Option<LimitKind> {
        self.set.matches(text).iter().next().map(|index| self.kinds[index])
    }
}

/// Returns the pattern with ASCII-only character classes, because all words are English and the compiled pattern is much smaller.
pub(super) fn ascii(pattern: &str) -> String {
    let classes =
        [(r"\w", "[0-9A-Za-z_]"), (r"\d", "[0-9]"), (r"\s", r"\ "), (r"\b", r"(?-u:\b)"), (".{", r"[\x20-~]{")];
    classes.iter().fold(pattern.to_owned(), |pattern, (class, narrow)| pattern.replace(class, narrow))
}

/// Messages of Z.ai whose times are in Beijing time without stating it: by their words, their codes, or their language.
static BEIJING: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(
        r#"(?i)limit reached for \d+ (?:hour|day)|weekly/monthly limit|fair usage policy|[\["']13\d\d[\]"']|\p{Han}"#,
    )
    .expect("constant pattern")
});

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

static ALONE: LazyLock<Set> = LazyLock::new(|| Set::new(Nothing));
static OF_PROVIDER: LazyLock<Set> = LazyLock::new(|| Set::new(Provider));
static TIMED: LazyLock<Set> = LazyLock::new(|| Set::new(Time));

/// Returns the limit at the start of `text`, by sentences that suffice alone.
pub(super) fn specific(text: &str) -> Option<LimitKind> {
    ALONE.kind(text)
}

/// Returns the limit at the start of `text`, by sentences that need a provider's prefix or a status.
pub(super) fn general(text: &str) -> Option<LimitKind> {
    OF_PROVIDER.kind(text)
}

/// Returns the limit at the start of `text`, by sentences that a time has to follow.
pub(super) fn timed(text: &str) -> Option<LimitKind> {
    TIMED.kind(text)
}

/// Words that count anywhere in the error with which a provider ended a run, by kind in order of precedence.
const ANYWHERE: [(LimitKind, &[&str]); 5] = [
    (
        Policy,
        &[
            "content polic",
            "usage polic",
            "use policy",
            "content filter",
            "safety system",
            "safety filter",
            "flagged",
            "violat",
        ],
    ),
    (Billing, &["credit balance", "insufficient balance", "insufficient credit", "billing details"]),
    (Auth, &["/login", "invalid api key", "authenticat", "oauth token", "auth_error"]),
    (Quota, &["hit your", "usage limit", "rate limit"]),
    (
        Overload,
        &[
            "timed out",
            "connection",
            "unable to connect",
            "econn",
            "fetch failed",
            "overloaded",
            "high demand",
            "stream disconnected",
            "rate_limit",
            "too many requests",
        ],
    ),
];

/// Returns the limit that a word anywhere in the error of a provider indicates.
pub(super) fn anywhere(text: &str) -> Option<LimitKind> {
    let lower = text.to_lowercase();
    ANYWHERE.iter().find(|(_, words)| words.iter().any(|word| lower.contains(word))).map(|(kind, _)| *kind)
}

/// Refines the kind by the rest of the message. A rate per day becomes a quota. Gemini words a used-up quota as OpenAI words an
/// account without credit; this function distinguishes them.
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
