//! Patterns of tokens and keys whose values are unknown to the service.

use std::sync::LazyLock;

use aho_corasick::AhoCorasick;
use regex::bytes::{Regex, RegexBuilder};

/// Patterns of tokens that are recognizable by themselves.
///
/// A search is linear only if the start of a token cannot match far beyond the next one: everything before the last
/// required part has a maximum length, or cannot contain another start.
const TOKENS: &[&str] = &[
    // GitHub; the newer installation tokens are several hundred characters with dots.
    r"gh[pousr]_[A-Za-z0-9._-]{36,}",
    r"github_pat_[A-Za-z0-9_]{22,}",
    // Models.
    r"sk-(?:ant|proj|or|svcacct|admin)-[A-Za-z0-9_-]{16,}",
    r"sk-[A-Za-z0-9]{32,}",
    r"AIza[A-Za-z0-9_-]{35}",
    r"(?:gsk|hf|xai|r8|pplx)[_-][A-Za-z0-9]{30,}",
    // Clouds.
    r"\b(?:AKIA|ASIA|ABIA|ACCA)[A-Z0-9]{16}\b",
    r"\bya29\.[A-Za-z0-9_-]{20,}",
    r"\bGOCSPX-[A-Za-z0-9_-]{28}",
    r"\b[A-Za-z0-9_~.]{3}[0-9]Q~[A-Za-z0-9_~.-]{31,34}",
    r"(?i:AccountKey|SharedAccessKey)=[A-Za-z0-9+/]{40,}={0,2}",
    r"\bdo[opr]_v1_[a-f0-9]{64}",
    r"\bhvs\.[A-Za-z0-9_-]{24,}",
    r"\bdapi[a-f0-9]{32}\b",
    // Chats.
    r"xox[abceoprs]-[A-Za-z0-9-]{10,}",
    r"\bxapp-[0-9]-[A-Z0-9]{1,30}-[0-9]{1,30}-[a-z0-9]{20,}",
    r"hooks\.slack\.com/(?:services|workflows)/[A-Za-z0-9+/]{40,}",
    r"discord(?:app)?\.com/api/webhooks/[0-9]{17,20}/[A-Za-z0-9_-]{60,}",
    r"\b[0-9]{8,10}:AA[A-Za-z0-9_-]{33}\b",
    // Registries, other forges, payment and mail.
    r"gl(?:pat|dt|rt|ptt|soat|cbt)-[A-Za-z0-9_.-]{20,}",
    r"npm_[A-Za-z0-9]{36}",
    r"pypi-AgE[A-Za-z0-9_-]{50,}",
    r"\bcio[A-Za-z0-9]{32}\b",
    r"dckr_(?:pat|oat)_[A-Za-z0-9_-]{20,}",
    r"rubygems_[a-f0-9]{48}",
    r"[rs]k_live_[A-Za-z0-9]{20,}",
    r"\bSG\.[A-Za-z0-9_-]{22}\.[A-Za-z0-9_-]{43}",
    r"shp(?:at|ca|pa|ss)_[a-fA-F0-9]{32}",
    r"AGE-SECRET-KEY-1[A-Z0-9]{58}",
    // Signed tokens.
    r"eyJ[A-Za-z0-9_-]{10,300}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}",
    // Private keys, whole or from their start on; also inside JSON strings. No key contains `--`.
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:-?[A-Za-z0-9+/=\s:,.]|\\[nrt])*-----END [A-Z0-9 ]*PRIVATE KEY-----",
    r"-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----(?:[A-Za-z0-9+/=\s]|\\[nr])*",
];

/// Patterns of secrets that are recognizable by the preceding words.
const IN_CONTEXT: &[&str] = &[
    r#"(?i:authorization["'\\]*\s*[:=]\s*["'\\]*(?:bearer|basic|token))\s+[A-Za-z0-9._~+/-]{6,}=*"#,
    r"(?i:bearer)[ \t]+[A-Za-z0-9._~+/-]{16,}=*",
    r"://[^\s/:@]{0,100}:[^\s/:@]{3,600}@",
    // Tokens of Gitea and Forgejo are 40 hexadecimal digits, as are ids of commits.
    r#"(?i:(?:gitea|forgejo|codeberg|access|api|auth)[_-]?(?:access[_-]?)?(?:token|key|secret)["'\\]*\s*(?:[:=]|=>)\s*["'\\]*)[0-9a-fA-F]{40}\b"#,
    r#"(?i:aws_?secret_?(?:access_?)?key["'\\]*\s*(?:[:=]|=>)\s*["'\\]*)[A-Za-z0-9/+]{40}\b"#,
];

/// Substrings of which every match of [`TOKENS`] contains at least one.
const HINTS: &[&str] = &[
    "ghp_",
    "gho_",
    "ghu_",
    "ghs_",
    "ghr_",
    "github_pat_",
    "sk-",
    "AIza",
    "gsk_",
    "gsk-",
    "hf_",
    "hf-",
    "xai-",
    "xai_",
    "r8_",
    "r8-",
    "pplx-",
    "pplx_",
    "AKIA",
    "ASIA",
    "ABIA",
    "ACCA",
    "ya29.",
    "GOCSPX-",
    "Q~",
    "ccountkey=",
    "ccesskey=",
    "_v1_",
    "hvs.",
    "dapi",
    "xox",
    "xapp-",
    "hooks.slack.com/",
    ".com/api/webhooks/",
    ":AA",
    "glpat-",
    "gldt-",
    "glrt-",
    "glptt-",
    "glsoat-",
    "glcbt-",
    "npm_",
    "pypi-AgE",
    "cio",
    "dckr_",
    "rubygems_",
    "k_live_",
    "SG.",
    "shpat_",
    "shpca_",
    "shppa_",
    "shpss_",
    "AGE-SECRET-KEY-1",
    "eyJ",
    "-----BEGIN ",
];

/// All patterns.
pub(super) static PATTERNS: LazyLock<Regex> = LazyLock::new(|| alternatives(TOKENS.iter().chain(IN_CONTEXT)));
/// Patterns that need no context.
pub(super) static TOKEN_PATTERNS: LazyLock<Regex> = LazyLock::new(|| alternatives(TOKENS));
/// Fast pre-check for [`TOKEN_PATTERNS`].
static HINT: LazyLock<AhoCorasick> =
    LazyLock::new(|| AhoCorasick::builder().ascii_case_insensitive(true).build(HINTS).expect("constant texts"));

fn alternatives<'a>(patterns: impl IntoIterator<Item = &'a &'a str>) -> Regex {
    let all: Vec<&str> = patterns.into_iter().copied().collect();
    // Bytes, so that neighboring invalid UTF-8 hides nothing.
    RegexBuilder::new(&all.join("|")).unicode(false).size_limit(64 << 20).build().expect("constant patterns")
}

/// Whether a text may contain a match of [`TOKEN_PATTERNS`].
pub(super) fn may_hold_token(bytes: &[u8]) -> bool {
    HINT.is_match(bytes)
}
