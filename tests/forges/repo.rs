//! A repository of a story: actions of people by the server's API and by git, and the state that they see.

use std::path::Path;
use std::sync::{Arc, Mutex};

use axum::http::Method;
use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::bot::eventually_or;
use crate::harness::parts::{command, output};
use crate::server::{Account, Level, Server, ServerAnswer};

/// Verdict of a review.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ReviewEvent {
    Comment,
    Approve,
    RequestChanges,
}

/// Comment in a conversation.
#[derive(Debug, Clone)]
pub struct Comment {
    pub login: String,
    pub body: String,
}

/// Pull request as the API shows it.
#[derive(Debug, Clone)]
pub struct Pull {
    pub number: u64,
    pub open: bool,
    pub merged: bool,
    pub draft: bool,
    pub title: String,
    pub body: String,
    pub author: String,
    pub head: String,
    pub head_sha: String,
}

impl Pull {
    fn read(value: &Value) -> Self {
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Self {
            number: value["number"].as_u64().expect("a number"),
            open: value["state"] == "open",
            merged: value["merged"] == true || value["merged_at"].is_string(),
            draft: value["draft"] == true,
            title: text(&value["title"]),
            body: text(&value["body"]),
            author: text(&value["user"]["login"]),
            head: text(&value["head"]["ref"]),
            head_sha: text(&value["head"]["sha"]),
        }
    }
}

/// A repository by its present name.
pub struct Repo {
    pub server: Arc<Server>,
    name: Mutex<String>,
}

impl Repo {
    pub fn new(server: Arc<Server>, name: &str) -> Self {
        Self { server, name: Mutex::new(name.to_owned()) }
    }

    /// Present name, `owner/name`.
    pub fn name(&self) -> String {
        self.name.lock().expect("not poisoned").clone()
    }

    fn path(&self, rest: &str) -> String {
        format!("/repos/{}{rest}", self.name())
    }

    /// Sends a request about the repository.
    pub async fn call(&self, by: &Account, method: Method, rest: &str, body: Value) -> ServerAnswer {
        self.server.call(&by.token, method, &self.path(rest), body).await
    }

    async fn ok(&self, by: &Account, method: Method, rest: &str, body: Value) -> Value {
        self.server.ok(&by.token, method, &self.path(rest), body).await
    }

    async fn get(&self, by: &Account, rest: &str) -> Value {
        self.ok(by, Method::GET, rest, Value::Null).await
    }

    async fn list(&self, by: &Account, rest: &str) -> Vec<Value> {
        self.server.list(&by.token, &self.path(rest)).await
    }

    // Settings.

    /// Makes an account a collaborator.
    pub async fn collaborator(&self, by: &Account, login: &str, level: Level) {
        let word = match (level, self.server.is_github()) {
            (Level::Read, true) => "pull",
            (Level::Read, false) => "read",
            (Level::Write, true) => "push",
            (Level::Write, false) => "write",
            (Level::Admin, _) => "admin",
        };
        self.ok(by, Method::PUT, &format!("/collaborators/{login}"), json!({ "permission": word })).await;
    }

    /// Removes a collaborator.
    pub async fn remove_collaborator(&self, by: &Account, login: &str) {
        self.ok(by, Method::DELETE, &format!("/collaborators/{login}"), Value::Null).await;
    }

    /// Creates a webhook with the events that the bot uses; returns its id.
    pub async fn hook(&self, by: &Account, url: &str, secret: &str) -> i64 {
        let config = json!({ "url": url, "content_type": "json", "secret": secret });
        let hook = if self.server.is_github() {
            let events = [
                "issues",
                "issue_comment",
                "pull_request",
                "pull_request_review",
                "pull_request_review_comment",
                "push",
                "status",
                "check_run",
                "repository",
            ];
            json!({ "name": "web", "active": true, "events": events, "config": config })
        } else {
            let events = [
                "issues",
                "issue_label",
                "issue_comment",
                "pull_request",
                "pull_request_review",
                "pull_request_sync",
                "push",
                "delete",
                "status",
                "repository",
            ];
            json!({ "type": "gitea", "active": true, "events": events, "config": config })
        };
        self.ok(by, Method::POST, "/hooks", hook).await["id"].as_i64().expect("an id")
    }

    /// Ids of the webhooks.
    pub async fn hooks(&self, by: &Account) -> Vec<i64> {
        self.list(by, "/hooks").await.iter().filter_map(|hook| hook["id"].as_i64()).collect()
    }

    /// Renames the repository.
    pub async fn rename(&self, by: &Account, name: &str) {
        self.ok(by, Method::PATCH, "", json!({ "name": name })).await;
        let mut known = self.name.lock().expect("not poisoned");
        let owner = known.split('/').next().unwrap_or_default().to_owned();
        *known = format!("{owner}/{name}");
    }

    /// Gives the repository to another organization.
    pub async fn transfer(&self, by: &Account, to: &str) {
        self.ok(by, Method::POST, "/transfer", json!({ "new_owner": to })).await;
        let mut known = self.name.lock().expect("not poisoned");
        let name = known.split('/').nth(1).unwrap_or_default().to_owned();
        *known = format!("{to}/{name}");
    }

    /// Protects a branch: it rejects pushes, and a merge needs an approval.
    pub async fn protect(&self, by: &Account, branch: &str) {
        if self.server.is_github() {
            let rule = json!({
                "required_status_checks": null, "enforce_admins": true, "restrictions": null,
                "required_pull_request_reviews": { "required_approving_review_count": 1 },
            });
            self.ok(by, Method::PUT, &format!("/branches/{branch}/protection"), rule).await;
        } else {
            let rule = json!({
                "branch_name": branch, "rule_name": branch, "enable_push": false, "required_approvals": 1,
            });
            self.ok(by, Method::POST, "/branch_protections", rule).await;
        }
    }

    /// Changes settings: `archived`, `private`, `has_issues`.
    pub async fn set(&self, by: &Account, setting: &str, value: bool) {
        self.ok(by, Method::PATCH, "", json!({ setting: value })).await;
    }

    /// Deletes the repository.
    pub async fn delete(&self, by: &Account) -> ServerAnswer {
        self.call(by, Method::DELETE, "", Value::Null).await
    }

    // git.

    /// Commits files to a branch and pushes it with git; a new branch starts at `main`. Returns the commit.
    pub async fn push(&self, by: &Account, branch: &str, files: &[(&str, &str)], message: &str) -> String {
        let folder = tempfile::tempdir().expect("a folder");
        let git = async |arguments: &[&str]| self.git(by, folder.path(), arguments).await;
        let (clone, _) = (self.address(), git(&["init", "-q", "-b", branch]).await);
        for start in [branch, "main"] {
            let mut fetch = self.git_command(by, folder.path(), &["fetch", "-q", "--depth=50", &clone, start]);
            if fetch.output().await.expect("git runs").status.success() {
                git(&["reset", "-q", "--hard", "FETCH_HEAD"]).await;
                break;
            }
        }
        write(folder.path(), files);
        git(&["add", "-A"]).await;
        git(&["commit", "-q", "--allow-empty", "-m", message]).await;
        git(&["push", "-q", &clone, &format!("HEAD:refs/heads/{branch}")]).await;
        git(&["rev-parse", "HEAD"]).await.trim().to_owned()
    }

    fn address(&self) -> String {
        format!("{}/{}.git", self.server.url, self.name())
    }

    fn git_command(&self, by: &Account, folder: &Path, arguments: &[&str]) -> tokio::process::Command {
        let basic = BASE64.encode(format!("{}:{}", by.login, by.token).as_bytes());
        let mut git = command("git");
        git.env("GIT_CONFIG_NOSYSTEM", "1").env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_TERMINAL_PROMPT", "0");
        git.current_dir(folder).args(["-c", &format!("http.extraHeader=Authorization: Basic {basic}")]);
        git.args(["-c", &format!("user.name={}", by.login), "-c", &format!("user.email={}@example.org", by.login)]);
        git.args(arguments);
        git
    }

    async fn git(&self, by: &Account, folder: &Path, arguments: &[&str]) -> String {
        String::from_utf8_lossy(&output(&mut self.git_command(by, folder, arguments)).await).into_owned()
    }

    /// Text of a file on a branch; `None` if there is none.
    pub async fn file(&self, by: &Account, branch: &str, path: &str) -> Option<String> {
        let answer = self.call(by, Method::GET, &format!("/contents/{path}?ref={branch}"), Value::Null).await;
        let content = answer.body["content"].as_str().filter(|_| answer.status == 200)?;
        let content: String = content.split_whitespace().collect();
        Some(String::from_utf8_lossy(&BASE64.decode(content.as_bytes()).expect("base64")).into_owned())
    }

    /// Commit of a branch; `None` if there is none.
    pub async fn branch(&self, by: &Account, branch: &str) -> Option<String> {
        let answer = self.call(by, Method::GET, &format!("/branches/{branch}"), Value::Null).await;
        let commit = &answer.body["commit"];
        let sha = commit["sha"].as_str().or(commit["id"].as_str()).filter(|_| answer.status == 200)?;
        Some(sha.to_owned())
    }

    // Issues.

    /// Opens an issue; returns its number.
    pub async fn open_issue(&self, by: &Account, title: &str, body: &str) -> u64 {
        let issue = json!({ "title": title, "body": body });
        self.ok(by, Method::POST, "/issues", issue).await["number"].as_u64().expect("a number")
    }

    /// Opens an issue that has a label from the start; returns its number.
    pub async fn open_labeled(&self, by: &Account, title: &str, body: &str, label: &str) -> u64 {
        let labels = self.label_keys(by, &[label]).await;
        let issue = json!({ "title": title, "body": body, "labels": labels });
        self.ok(by, Method::POST, "/issues", issue).await["number"].as_u64().expect("a number")
    }

    /// Creates a label.
    pub async fn new_label(&self, by: &Account, name: &str) {
        let color = if self.server.is_github() { "0e8a16" } else { "#0e8a16" };
        self.ok(by, Method::POST, "/labels", json!({ "name": name, "color": color })).await;
    }

    /// Names of the labels of the repository, in order.
    pub async fn all_labels(&self, by: &Account) -> Vec<String> {
        names(&self.list(by, "/labels").await)
    }

    async fn label_keys(&self, by: &Account, wanted: &[&str]) -> Vec<Value> {
        if self.server.is_github() {
            return wanted.iter().map(|name| json!(name)).collect();
        }
        // Older servers take ids only.
        let known = self.list(by, "/labels").await;
        let key = |name: &&str| {
            let label = known.iter().find(|label| label["name"] == *name);
            label.unwrap_or_else(|| panic!("no label {name}: {known:?}"))["id"].clone()
        };
        wanted.iter().map(key).collect()
    }

    /// Adds labels to an issue (POST).
    pub async fn add_labels(&self, by: &Account, issue: u64, labels: &[&str]) -> ServerAnswer {
        let labels = self.label_keys(by, labels).await;
        self.call(by, Method::POST, &format!("/issues/{issue}/labels"), json!({ "labels": labels })).await
    }

    /// Replaces the labels of an issue (PUT).
    pub async fn replace_labels(&self, by: &Account, issue: u64, labels: &[&str]) {
        let labels = self.label_keys(by, labels).await;
        self.ok(by, Method::PUT, &format!("/issues/{issue}/labels"), json!({ "labels": labels })).await;
    }

    /// Removes a label from an issue (DELETE).
    pub async fn remove_label(&self, by: &Account, issue: u64, label: &str) {
        let key = self.label_keys(by, &[label]).await.remove(0);
        let key = key.as_str().map_or_else(|| key.to_string(), |name| name.replace(':', "%3A"));
        self.ok(by, Method::DELETE, &format!("/issues/{issue}/labels/{key}"), Value::Null).await;
    }

    /// Removes all labels from an issue.
    pub async fn clear_labels(&self, by: &Account, issue: u64) {
        self.ok(by, Method::DELETE, &format!("/issues/{issue}/labels"), Value::Null).await;
    }

    /// Names of the labels of an issue.
    pub async fn labels(&self, by: &Account, issue: u64) -> Vec<String> {
        names(&self.list(by, &format!("/issues/{issue}/labels")).await)
    }

    /// Comments on an issue or pull request, oldest first.
    pub async fn comments(&self, by: &Account, issue: u64) -> Vec<Comment> {
        let found = self.list(by, &format!("/issues/{issue}/comments")).await;
        let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        let one = |value: &Value| Comment { login: text(&value["user"]["login"]), body: text(&value["body"]) };
        found.iter().map(one).collect()
    }

    /// Comments; returns the comment's id.
    pub async fn comment(&self, by: &Account, issue: u64, body: &str) -> i64 {
        let made = self.ok(by, Method::POST, &format!("/issues/{issue}/comments"), json!({ "body": body })).await;
        made["id"].as_i64().expect("an id")
    }

    /// Replaces the text of a comment.
    pub async fn edit_comment(&self, by: &Account, comment: i64, body: &str) {
        self.ok(by, Method::PATCH, &format!("/issues/comments/{comment}"), json!({ "body": body })).await;
    }

    /// Replaces title or text of an issue.
    pub async fn edit_issue(&self, by: &Account, issue: u64, fields: Value) {
        self.ok(by, Method::PATCH, &format!("/issues/{issue}"), fields).await;
    }

    /// Reactions of an account to a comment.
    pub async fn reactions(&self, by: &Account, comment: i64, of: &str) -> Vec<String> {
        let path = format!("/issues/comments/{comment}/reactions");
        let found = self.get(by, &path).await;
        let found = found.as_array().cloned().unwrap_or_default();
        let theirs = found.iter().filter(|reaction| reaction["user"]["login"] == of);
        theirs.map(|reaction| reaction["content"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Reactions of an account to a remark.
    pub async fn reactions_to_remark(&self, by: &Account, remark: i64, of: &str) -> Vec<String> {
        if !self.server.is_github() {
            return self.reactions(by, remark, of).await;
        }
        let found = self.list(by, &format!("/pulls/comments/{remark}/reactions")).await;
        let theirs = found.iter().filter(|reaction| reaction["user"]["login"] == of);
        theirs.map(|reaction| reaction["content"].as_str().unwrap_or_default().to_owned()).collect()
    }

    /// Remarks of all reviews of a pull request, as the server has them.
    pub async fn remarks(&self, by: &Account, pull: u64) -> Vec<Value> {
        if self.server.is_github() {
            return self.list(by, &format!("/pulls/{pull}/comments")).await;
        }
        let mut all = Vec::new();
        for review in self.list(by, &format!("/pulls/{pull}/reviews")).await {
            if review["comments_count"].as_i64().unwrap_or(0) > 0 {
                all.extend(self.list(by, &format!("/pulls/{pull}/reviews/{}/comments", review["id"])).await);
            }
        }
        all
    }

    /// State of a status of a commit; `None` if there is none.
    pub async fn status_of(&self, by: &Account, sha: &str, context: &str) -> Option<String> {
        let found = self.get(by, &format!("/commits/{sha}/status")).await;
        let all = found["statuses"].as_array().cloned().unwrap_or_default();
        let one = all.into_iter().find(|one| one["context"] == context)?;
        // GitHub and Gitea name the field differently.
        [&one["state"], &one["status"]].into_iter().find_map(|state| state.as_str().map(str::to_owned))
    }

    /// Names of the teams whose review of a pull request is requested.
    pub async fn requested_teams(&self, by: &Account, pull: u64) -> Vec<String> {
        let found = self.get(by, &format!("/pulls/{pull}")).await;
        let field = if self.server.is_github() { "requested_teams" } else { "requested_reviewers_teams" };
        if let Some(teams) = found[field].as_array() {
            return teams.iter().filter_map(|team| team["name"].as_str().map(str::to_owned)).collect();
        }
        // Older versions of Gitea show them among the reviews only.
        let reviews = self.list(by, &format!("/pulls/{pull}/reviews")).await;
        let asked = reviews.iter().filter(|review| review["state"] == "REQUEST_REVIEW");
        asked.filter_map(|review| review["team"]["name"].as_str().map(str::to_owned)).collect()
    }

    /// Closes or opens an issue or a pull request.
    pub async fn set_open(&self, by: &Account, number: u64, open: bool) {
        let state = if open { "open" } else { "closed" };
        self.ok(by, Method::PATCH, &format!("/issues/{number}"), json!({ "state": state })).await;
    }

    /// Whether an issue is open.
    pub async fn is_open(&self, by: &Account, issue: u64) -> bool {
        self.get(by, &format!("/issues/{issue}")).await["state"] == "open"
    }

    /// Deletes an issue.
    pub async fn delete_issue(&self, by: &Account, issue: u64) {
        if self.server.is_github() {
            let node = self.get(by, &format!("/issues/{issue}")).await["node_id"].clone();
            let query = "mutation($id: ID!) { deleteIssue(input: {issueId: $id}) { clientMutationId } }";
            let body = json!({ "query": query, "variables": { "id": node } });
            let answer = self.server.ok(&by.token, Method::POST, "/graphql", body).await;
            assert!(answer.get("errors").is_none(), "{answer}");
        } else {
            self.ok(by, Method::DELETE, &format!("/issues/{issue}"), Value::Null).await;
        }
    }

    /// Open issues with a label.
    pub async fn issues_with(&self, by: &Account, label: &str) -> Vec<u64> {
        let found = self.list(by, "/issues?state=open").await;
        let bears = |issue: &&Value| {
            let labels = issue["labels"].as_array().cloned().unwrap_or_default();
            labels.iter().any(|found| found["name"] == label)
        };
        found.iter().filter(bears).filter_map(|issue| issue["number"].as_u64()).collect()
    }

    // Pull requests.

    /// Pull request by number.
    pub async fn pull(&self, by: &Account, number: u64) -> Pull {
        Pull::read(&self.get(by, &format!("/pulls/{number}")).await)
    }

    /// All pull requests.
    pub async fn pulls(&self, by: &Account) -> Vec<Pull> {
        self.list(by, "/pulls?state=all").await.iter().map(Pull::read).collect()
    }

    /// Opens a pull request between two branches of the repository; returns its number.
    pub async fn open_pull(&self, by: &Account, head: &str, base: &str, title: &str, body: &str) -> u64 {
        let pull = json!({ "title": title, "body": body, "head": head, "base": base });
        self.ok(by, Method::POST, "/pulls", pull).await["number"].as_u64().expect("a number")
    }

    /// Merges a pull request.
    pub async fn merge(&self, by: &Account, number: u64) {
        let path = format!("/pulls/{number}/merge");
        if self.server.is_github() {
            self.ok(by, Method::PUT, &path, json!({})).await;
            return;
        }
        // Gitea refuses while it checks whether the pull request can be merged, and fails while it works on the branch.
        let refused = Mutex::new(String::new());
        eventually_or(
            async || {
                let answer = self.call(by, Method::POST, &path, json!({ "Do": "merge" })).await;
                let merged = answer.status < 300 || self.pull(by, number).await.merged;
                let passing = matches!(answer.status, 405 | 409 | 500..);
                assert!(merged || passing, "#{number}: {} {}", answer.status, answer.body);
                *refused.lock().expect("not poisoned") = format!("{} {}", answer.status, answer.body);
                merged.then_some(())
            },
            || format!("#{number} cannot be merged: {}", refused.lock().expect("not poisoned")),
        )
        .await;
    }

    /// Body of a review with remarks: file, line, text.
    fn review_body(&self, event: Option<ReviewEvent>, body: &str, remarks: &[(&str, u64, &str)]) -> Value {
        let github = self.server.is_github();
        let line = if github { "line" } else { "new_position" };
        let remark = |(path, at, text): &(&str, u64, &str)| {
            let mut remark = json!({ "path": path, line: at, "body": text });
            if github {
                remark["side"] = json!("RIGHT");
            }
            remark
        };
        let remarks: Vec<Value> = remarks.iter().map(remark).collect();
        let mut review = json!({ "body": body, "comments": remarks });
        if let Some(event) = event {
            review["event"] = json!(self.event(event));
        }
        review
    }

    fn event(&self, verdict: ReviewEvent) -> &'static str {
        match verdict {
            ReviewEvent::Comment => "COMMENT",
            ReviewEvent::Approve if self.server.is_github() => "APPROVE",
            ReviewEvent::Approve => "APPROVED",
            ReviewEvent::RequestChanges => "REQUEST_CHANGES",
        }
    }

    /// Reviews a pull request, with remarks on lines; returns the review's id.
    pub async fn review(
        &self,
        by: &Account,
        pull: u64,
        how: ReviewEvent,
        body: &str,
        remarks: &[(&str, u64, &str)],
    ) -> i64 {
        let review = self.review_body(Some(how), body, remarks);
        let made = self.ok(by, Method::POST, &format!("/pulls/{pull}/reviews"), review).await;
        made["id"].as_i64().expect("an id")
    }

    /// Drafts a review, which others do not see; returns its id.
    pub async fn draft_review(&self, by: &Account, pull: u64, remarks: &[(&str, u64, &str)]) -> i64 {
        // Gitea refuses a draft without a body.
        let mut review = self.review_body(None, "Draft.", remarks);
        if !self.server.is_github() {
            review["event"] = json!("PENDING");
        }
        let made = self.ok(by, Method::POST, &format!("/pulls/{pull}/reviews"), review).await;
        made["id"].as_i64().expect("an id")
    }

    /// Submits a drafted review.
    pub async fn submit_review(&self, by: &Account, pull: u64, review: i64, how: ReviewEvent, body: &str) {
        let events = if self.server.is_github() { "/events" } else { "" };
        let body = json!({ "event": self.event(how), "body": body });
        self.ok(by, Method::POST, &format!("/pulls/{pull}/reviews/{review}{events}"), body).await;
    }

    /// Replies in the thread of the first remark of a review.
    pub async fn reply(&self, by: &Account, pull: u64, review: i64, body: &str) {
        let found = self.get(by, &format!("/pulls/{pull}/reviews/{review}/comments")).await;
        let first = &found[0];
        if self.server.is_github() {
            let path = format!("/pulls/{pull}/comments/{}/replies", first["id"]);
            self.ok(by, Method::POST, &path, json!({ "body": body })).await;
            return;
        }
        // On Gitea a remark on the same line belongs to its thread.
        let (path, line) = (first["path"].as_str().expect("a path"), first["position"].as_u64().expect("a line"));
        self.review(by, pull, ReviewEvent::Comment, "", &[(path, line, body)]).await;
    }

    /// Sets a commit status.
    pub async fn status(&self, by: &Account, sha: &str, state: &str, context: &str, description: &str) {
        let status = json!({ "state": state, "context": context, "description": description });
        self.ok(by, Method::POST, &format!("/statuses/{sha}"), status).await;
    }
}

fn names(labels: &[Value]) -> Vec<String> {
    labels.iter().map(|label| label["name"].as_str().unwrap_or_default().to_owned()).collect()
}

fn write(folder: &Path, files: &[(&str, &str)]) {
    for (path, text) in files {
        let path = folder.join(path);
        std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
        std::fs::write(path, text).expect("a file");
    }
}
