//! Names of model providers, as defined by the semantic conventions for generative AI (`gen_ai.provider.name`).

use super::WireName;

/// Domains of provider APIs, each with the name of its provider.
const PROVIDERS: [(&str, &str); 15] = [
    ("anthropic.com", "anthropic"),
    ("openai.azure.com", "azure.ai.openai"),
    ("services.ai.azure.com", "azure.ai.inference"),
    ("openai.com", "openai"),
    ("generativelanguage.googleapis.com", "gcp.gemini"),
    ("aiplatform.googleapis.com", "gcp.vertex_ai"),
    ("amazonaws.com", "aws.bedrock"),
    ("moonshot.ai", "moonshot_ai"),
    ("moonshot.cn", "moonshot_ai"),
    ("deepseek.com", "deepseek"),
    ("mistral.ai", "mistral_ai"),
    ("groq.com", "groq"),
    ("x.ai", "x_ai"),
    ("cohere.com", "cohere"),
    ("perplexity.ai", "perplexity"),
];

/// Returns the name of the provider whose API is at `host`. For an unknown host, the conventions require the name of the provider
/// whose protocol (`wire`) the host uses. `None` if neither is known.
pub fn provider_name(host: &str, wire: Option<WireName>) -> Option<&'static str> {
    let is = |domain: &str| host.strip_suffix(domain).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'));
    let known = PROVIDERS.iter().find(|(domain, _)| is(domain) || is_regional(host, domain)).map(|(_, name)| *name);
    known.or_else(|| {
        wire.map(|wire| match wire {
            WireName::Messages => "anthropic",
            WireName::Responses | WireName::Chat => "openai",
        })
    })
}

/// Whether a host is a regional host of a domain, such as `europe-west4-aiplatform.googleapis.com`.
fn is_regional(host: &str, domain: &str) -> bool {
    domain.ends_with("googleapis.com") && host.ends_with(&format!("-{domain}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn provider_follows_from_the_host_then_from_the_protocol() {
        for (host, wire, expected) in [
            ("api.anthropic.com", Some(WireName::Messages), Some("anthropic")),
            ("api.openai.com", Some(WireName::Responses), Some("openai")),
            ("chatgpt.com", None, None),
            ("my.openai.azure.com", Some(WireName::Chat), Some("azure.ai.openai")),
            ("europe-west4-aiplatform.googleapis.com", Some(WireName::Chat), Some("gcp.vertex_ai")),
            ("generativelanguage.googleapis.com", None, Some("gcp.gemini")),
            ("bedrock-runtime.us-east-1.amazonaws.com", Some(WireName::Chat), Some("aws.bedrock")),
            ("api.x.ai", Some(WireName::Chat), Some("x_ai")),
            ("notx.ai", Some(WireName::Chat), Some("openai")),
            ("notanthropic.com", None, None),
            ("localhost", Some(WireName::Chat), Some("openai")),
            ("gateway.example.org", Some(WireName::Messages), Some("anthropic")),
        ] {
            assert_eq!(provider_name(host, wire), expected, "{host}");
        }
    }
}
