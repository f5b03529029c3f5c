//! Web pages of the fake forge: issues, conversations, and pull requests with their diffs.

use std::fmt::Write as _;

use pulldown_cmark::{Event as Markdown, Options, Parser, Tag, TagEnd, html};

use super::Dialect;
use super::call::{FakeReply, number, utc};
use super::core::Core;
use super::state::{FakeIssue, FakeRefusal, FakeRepo, FakeState};
use ralph_types::ids::ReviewVerdict;
use ralph_types::ids::{AccountKind, Number, RepoId, Timestamp, UserId};

const STYLE: &str = include_str!("pages.css");
const SCRIPT: &str = include_str!("pages.js");
const POLICY: &str = "default-src 'none'; style-src 'unsafe-inline'; script-src 'self'; connect-src 'self'";

/// HTML tags allowed in comments; other tags are shown as text.
const ALLOWED_TAGS: [&str; 20] = [
    "<details>",
    "<details open>",
    "</details>",
    "<summary>",
    "</summary>",
    "<br>",
    "<sub>",
    "</sub>",
    "<sup>",
    "</sup>",
    "<code>",
    "</code>",
    "<b>",
    "</b>",
    "<i>",
    "</i>",
    "<strong>",
    "</strong>",
    "<kbd>",
    "</kbd>",
];

/// Handles a request for a page.
pub(super) async fn serve(core: &Core, path: &str) -> FakeReply {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let page = match parts.as_slice() {
        ["-", "pages.js"] => {
            return FakeReply::text(200, SCRIPT.to_owned()).with("content-type", "text/javascript; charset=utf-8");
        }
        [] => Ok(front(core)),
        [owner, name] | [owner, name, "issues" | "pulls"] => {
            core.act(|state| state.find_repo(owner, name).map(|repo| list(core, state, repo)))
        }
        [owner, name, "issues" | "pulls" | "pull", text] => conversation(core, owner, name, text).await,
        _ => Err(FakeRefusal::NotFound(path.to_owned())),
    };
    let (status, body) = match page {
        Ok(body) => (200, body),
        Err(refusal) => (404, frame("Not found", &format!("<p>{}</p>", escape(&refusal.to_string())))),
    };
    FakeReply::text(status, body)
        .with("content-type", "text/html; charset=utf-8")
        .with("content-security-policy", POLICY)
}

pub(super) fn frame(title: &str, body: &str) -> String {
    format!(
        "<!doctype html><html lang=\"en\"><head><meta charset=\"utf-8\"><title>{title}</title>\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\
         <noscript><meta http-equiv=\"refresh\" content=\"5\"></noscript><style>{STYLE}</style><script src=\"/-/pages.js\" defer></script></head><body>\
         <header><a href=\"/\">local forge</a></header><main>{body}</main></body></html>",
        title = escape(title),
    )
}

fn front(core: &Core) -> String {
    let rows = core.act(|state| {
        let mut rows = String::new();
        for repo in state.repos.values() {
            let name = escape(&state.full_name(repo));
            let open = repo.issues.values().filter(|issue| issue.open).count();
            let _ = write!(rows, "<li class=row><a href=\"/{name}\">{name}</a><span class=dim>{open} open</span></li>");
        }
        rows
    });
    frame("Repositories", &format!("<h1>Repositories</h1><ul class=box>{rows}</ul>"))
}

fn list(core: &Core, state: &FakeState, repo: &FakeRepo) -> String {
    let name = escape(&state.full_name(repo));
    let mut rows = String::new();
    for issue in repo.issues.values().rev() {
        let _ = write!(
            rows,
            "<li class=row>{}<div><a class=title href=\"{}\">{}</a> {}<div class=dim>#{} by {}, {}{}</div></div></li>",
            badge(core, issue),
            address(&name, issue),
            escape(&issue.title),
            chips(repo, issue),
            issue.number,
            escape(&author(state, issue.author).0),
            time(issue.created_at),
            match issue.comments.len() {
                0 => String::new(),
                1 => " · 1 comment".to_owned(),
                count => format!(" · {count} comments"),
            },
        );
    }
    if rows.is_empty() {
        rows = "<li class=row><span class=dim>No issues yet.</span></li>".to_owned();
    }
    frame(&name, &format!("<h1>{name}</h1><ul class=box>{rows}</ul>"))
}

fn address(repo: &str, issue: &FakeIssue) -> String {
    format!("/{repo}/{}/{}", if issue.pull.is_some() { "pulls" } else { "issues" }, issue.number)
}

fn badge(core: &Core, issue: &FakeIssue) -> String {
    let draft = issue.pull.as_ref().is_some_and(|pull| pull.draft)
        || (core.dialect == Dialect::Gitea && super::gitea::is_work_in_progress(&issue.title));
    let (class, word) = match (&issue.pull, issue.open) {
        (Some(pull), _) if pull.merged.is_some() => ("merged", "Merged"),
        (Some(_), true) if draft => ("draft", "Draft"),
        (_, true) => ("open", "Open"),
        (_, false) => ("closed", "Closed"),
    };
    let kind = if issue.pull.is_some() { "pull request" } else { "issue" };
    format!("<span class=\"badge {class}\" title=\"{kind}\">{word}</span>")
}

fn chips(repo: &FakeRepo, issue: &FakeIssue) -> String {
    let mut chips = String::new();
    for label in repo.labels.iter().filter(|label| issue.labels.contains(&label.id)) {
        let rgb = u32::from_str_radix(&label.color, 16).unwrap_or(0x0088_8888);
        let [_, red, green, blue] = rgb.to_be_bytes();
        // The perceived brightness determines whether the text is black or white.
        let bright = u32::from(red) * 299 + u32::from(green) * 587 + u32::from(blue) * 114 > 140_000;
        let (text, name) = (if bright { "#111" } else { "#fff" }, escape(&label.name));
        let _ = write!(
            chips,
            "<span class=chip style=\"background:#{rgb:06x};color:{text}\" title=\"{}\">{name}</span>",
            escape(&label.description),
        );
    }
    chips
}

async fn conversation(core: &Core, owner: &str, name: &str, text: &str) -> Result<String, FakeRefusal> {
    let wanted: Number = number(text)?;
    let (repo, range) = core.act(|state| {
        let repo = state.find_repo(owner, name)?.id;
        let facts = state.issue(repo, wanted)?.pull.as_ref().map(|pull| pull.facts.clone());
        Ok((repo, facts.map(|facts| (facts.merge_base.unwrap_or(facts.base_sha), facts.head_sha))))
    })?;
    let changes = match range {
        Some((from, to)) => {
            let commits = core.git.commits(repo, Some(&from), &to, 100).await?;
            let mut list = String::new();
            for commit in &commits {
                let subject = escape(commit.message.lines().next().unwrap_or_default());
                let _ = write!(list, "<li class=row><code>{}</code> {subject}</li>", commit.sha.short());
            }
            let diff = colored(&core.git.diff(repo, &from, &to).await?);
            format!("<h2>Commits</h2><ul class=box>{list}</ul><h2>Changes</h2><pre class=\"box diff\">{diff}</pre>")
        }
        None => String::new(),
    };
    core.act(|state| Ok(talk(core, state, repo, state.issue(repo, wanted)?, &changes)))
}

fn talk(core: &Core, state: &FakeState, repo: RepoId, issue: &FakeIssue, changes: &str) -> String {
    let Ok(entry) = state.repo(repo) else { return String::new() };
    let name = escape(&state.full_name(entry));
    let title = escape(&issue.title);
    let mut body = format!(
        "<p class=dim><a href=\"/{name}\">{name}</a></p><h1>{title} <span class=dim>#{}</span></h1><p>{} {}</p>",
        issue.number,
        badge(core, issue),
        chips(entry, issue),
    );
    if let Some(pull) = &issue.pull {
        let facts = &pull.facts;
        let merges = match (pull.merged.is_some(), facts.mergeable) {
            (true, _) => "merged",
            (_, true) => "merges cleanly",
            (_, false) => "has conflicts",
        };
        let _ = write!(
            body,
            "<p class=branches><code>{}</code> → <code>{}</code> <span class=dim>{} files, \
             <span class=plus>+{}</span> <span class=minus>−{}</span>, {merges}</span></p>",
            escape(&pull.head),
            escape(&pull.base),
            facts.changed_files,
            facts.additions,
            facts.deletions,
        );
        for status in state.latest_statuses(repo, &facts.head_sha) {
            let text = format!("{}: {} {}", status.context, status.state, status.description);
            let _ = write!(body, "<p class=dim>{}</p>", escape(&text));
        }
    }
    body += &post(state, issue.author, issue.created_at, &issue.body, "");
    // Comments and reviews, ordered by time.
    let mut posts: Vec<(Timestamp, i64, String)> = Vec::new();
    for comment in &issue.comments {
        let mut reactions = String::new();
        for reaction in &comment.reactions {
            let who = escape(&state.user(reaction.user).login);
            let _ = write!(reactions, "<span class=reaction title=\"{who}\">{}</span>", emoji(&reaction.content));
        }
        let mut text = post(state, comment.author, comment.created_at, &comment.body, &reactions);
        if let Some(reason) = &comment.minimized {
            text = format!("<details class=folded><summary>Hidden as {}</summary>{text}</details>", escape(reason));
        }
        posts.push((comment.created_at, comment.id.0, text));
    }
    for review in issue.pull.iter().flat_map(|pull| &pull.reviews) {
        let verdict = match review.verdict {
            ReviewVerdict::Approved => "approved these changes",
            ReviewVerdict::ChangesRequested => "asked for changes",
            ReviewVerdict::Commented => "reviewed",
            ReviewVerdict::Dismissed => "was dismissed",
        };
        let mut text = format!("*{verdict}*\n\n{}", review.body);
        for remark in &review.remarks {
            let _ = write!(text, "\n\n`{}:{}`\n\n{}", remark.path, remark.line, remark.body);
        }
        posts.push((review.at, review.id, post(state, review.author, review.at, &text, "")));
    }
    posts.sort_by_key(|(at, id, _)| (*at, *id));
    body.extend(posts.into_iter().map(|(_, _, text)| text));
    frame(&format!("{} #{}", issue.title, issue.number), &(body + changes))
}

fn author(state: &FakeState, id: Option<UserId>) -> (String, bool) {
    let Some(id) = id else { return ("ghost".to_owned(), false) };
    let user = state.user(id);
    (user.login, user.kind == AccountKind::Bot)
}

fn post(state: &FakeState, by: Option<UserId>, at: Timestamp, text: &str, reactions: &str) -> String {
    let (login, bot) = author(state, by);
    let bot = if bot { " <span class=bot>bot</span>" } else { "" };
    let text = if text.trim().is_empty() { "*No description.*" } else { text };
    format!(
        "<article class=box><div class=by><b>{}</b>{bot} <span class=dim>{}</span></div>\
         <div class=text>{}</div><div class=reactions>{reactions}</div></article>",
        escape(&login),
        time(at),
        markdown(text),
    )
}

fn time(at: Timestamp) -> String {
    utc(at).replace('T', " ").replace('Z', " UTC")
}

fn emoji(content: &str) -> &'static str {
    match content {
        "+1" => "👍",
        "-1" => "👎",
        "laugh" => "😄",
        "confused" => "😕",
        "heart" => "❤️",
        "hooray" => "🎉",
        "rocket" => "🚀",
        _ => "👀",
    }
}

/// Converts Markdown to HTML. Shows raw HTML as text except for a few harmless tags, removes HTML comments, and keeps only
/// http links and images.
pub(super) fn markdown(text: &str) -> String {
    let options = Options::ENABLE_TABLES | Options::ENABLE_STRIKETHROUGH | Options::ENABLE_TASKLISTS;
    let events = Parser::new_ext(text, options).map(|event| match event {
        Markdown::Html(raw) | Markdown::InlineHtml(raw) => Markdown::Html(tame(&raw).into()),
        Markdown::Start(Tag::Link { link_type, dest_url, title, id }) if !is_web(&dest_url) => {
            drop(dest_url);
            Markdown::Start(Tag::Link { link_type, dest_url: "#".into(), title, id })
        }
        Markdown::Start(Tag::Image { .. }) => Markdown::Start(Tag::Emphasis),
        Markdown::End(TagEnd::Image) => Markdown::End(TagEnd::Emphasis),
        other => other,
    });
    let mut out = String::new();
    html::push_html(&mut out, events);
    out
}

fn is_web(target: &str) -> bool {
    ["http://", "https://", "/", "#"].iter().any(|start| target.starts_with(start))
}

/// Keeps allowed tags and entities, removes HTML comments, and escapes everything else.
fn tame(raw: &str) -> String {
    let mut out = String::new();
    let mut rest = raw;
    while let Some(start) = rest.find('<') {
        out += &rest[..start].replace('>', "&gt;");
        rest = &rest[start..];
        if rest.starts_with("<!--") {
            rest = rest.find("-->").map_or("", |end| &rest[end + 3..]);
        } else if let Some(tag) = ALLOWED_TAGS.iter().find(|tag| rest.starts_with(**tag)) {
            out += tag;
            rest = &rest[tag.len()..];
        } else {
            out += "&lt;";
            rest = &rest[1..];
        }
    }
    out + &rest.replace('>', "&gt;")
}

fn colored(diff: &str) -> String {
    let mut out = String::new();
    for line in diff.lines() {
        let class = match line.as_bytes().first() {
            _ if line.starts_with("diff ") => "file",
            _ if line.starts_with("+++") || line.starts_with("---") || line.starts_with("index ") => "dim",
            Some(b'+') => "plus",
            Some(b'-') => "minus",
            Some(b'@') => "hunk",
            _ => "",
        };
        let _ = write!(out, "<span class=\"line {class}\">{}</span>", escape(line));
    }
    out
}

pub(super) fn escape(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;").replace('"', "&quot;").replace('\'', "&#39;")
}

#[cfg(test)]
mod tests {
    use super::markdown;

    #[test]
    fn markup_in_comments_is_escaped() {
        for (text, expected) in [
            ("<script>alert(1)</script>", "&lt;script&gt;alert(1)&lt;/script&gt;"),
            ("a <img src=x onerror=y> b", "<p>a &lt;img src=x onerror=y&gt; b</p>\n"),
            ("[x](javascript:alert)", "<p><a href=\"#\">x</a></p>\n"),
            ("![x](http://elsewhere/p.png)", "<p><em>x</em></p>\n"),
            ("<!-- ralph:1 -->\nseen", "\n<p>seen</p>\n"),
            ("<details onclick=x>", "&lt;details onclick=x&gt;"),
            (
                "<details>\n<summary>s</summary>\n\n**b**\n\n</details>",
                "<details>\n<summary>s</summary>\n<p><strong>b</strong></p>\n</details>",
            ),
            ("```mermaid\ngraph\n```", "<pre><code class=\"language-mermaid\">graph\n</code></pre>\n"),
            (
                "| a |\n|---|\n| 1 |",
                "<table><thead><tr><th>a</th></tr></thead><tbody>\n<tr><td>1</td></tr>\n</tbody></table>\n",
            ),
        ] {
            assert_eq!(markdown(text), expected, "{text}");
        }
    }
}
