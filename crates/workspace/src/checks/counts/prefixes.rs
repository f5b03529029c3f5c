//! Prefixes with which tools for several packages mark the lines of each package: Turborepo, pnpm, Docker Compose.
//!
//! A prefix counts only if the tool announced it, so that the output of a test cannot fake one.

use super::pattern;

// `@scope/a:test: cache miss, executing 1cdc9c45568df617`
pattern!(TURBO, r"^(\S+:\S+: )cache (?:bypass|hit|miss)\b");
// `packages/a test$ jest`
pattern!(PNPM, r"^(\S+ \S+)\$ \S");
// `Attaching to api-1, web-1`
pattern!(COMPOSE, r"^Attaching to (\S+(?:, \S+)*)$");
/// Lines that pnpm adds to the output of a package.
const PNPM_ENDS: [&str; 2] = ["Done", "Failed"];

/// Returns the lines of each announced prefix with the prefix removed, in the order of the announcements, followed by
/// all other lines.
pub(super) fn split(output: &str) -> Vec<String> {
    let mut prefixes: Vec<String> = TURBO.captures_iter(output).map(|found| found[1].to_owned()).collect();
    let pnpm = PNPM.captures_iter(output).map(|found| format!("{}: ", &found[1]));
    prefixes.extend(pnpm.filter(|prefix| output.contains(&format!("\n{prefix}"))));
    let services = |found: regex::Captures<'_>| found[1].split(", ").map(str::to_owned).collect::<Vec<_>>();
    let attached: Vec<String> = COMPOSE.captures_iter(output).flat_map(services).collect();
    let widest = attached.iter().map(String::len).max().unwrap_or(0);
    prefixes.extend(attached.iter().map(|name| format!("{name:widest$}  | ")));
    let mut blocks: Vec<(String, String)> = Vec::new();
    for prefix in prefixes {
        if !blocks.iter().any(|(known, _)| *known == prefix) {
            blocks.push((prefix, String::new()));
        }
    }
    let mut others = String::new();
    for line in output.split_inclusive('\n') {
        let own = blocks.iter_mut().find_map(|(prefix, text)| {
            let bare = line.strip_prefix(prefix.as_str()).or_else(|| {
                // An empty line may have lost the blank at the end of its prefix.
                (line.trim_end() == prefix.trim_end()).then_some("\n")
            })?;
            Some((bare, text))
        });
        match own {
            Some((bare, _)) if PNPM_ENDS.contains(&bare.trim_end()) => {}
            Some((bare, text)) => text.push_str(bare),
            None => others.push_str(line),
        }
    }
    blocks.into_iter().map(|(_, text)| text).chain([others]).collect()
}
