//! Tests of the adapters with the fake forge: all operations, on Gitea and GitHub, with a token and as an App. Requests to GitHub
//! and the fake's responses are validated against GitHub's description.

use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ::fake_forge::{Access, Dialect, FakeForge, PullDraft, ReviewDraft, StatusDraft};
use ::http::{HeaderMap, Request, Response};
use async_trait::async_trait;
use bytes::Bytes;
use secrecy::{ExposeSecret, SecretString};
use tokio::net::TcpListener;
use tokio::task::JoinSet;

use crate::clock::Clock;
use crate::domain::model::event::{CommentSnapshot, ForgeEvent, IssueSnapshot, PullSnapshot, ReviewVerdict};
use crate::domain::model::ids::{
    AccountKind, CommentId, ForgeName, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use crate::domain::report::view::CommitState;
use crate::domain::trust::outbound::{Outbound, OutboundFilter};
use crate::forge::contract::{ContractSpec, ContractTransport};
use crate::forge::gitea::{Gitea, GiteaSettings};
use crate::forge::github::{EVENTS, GitHub, GitHubAuth, GitHubSettings, PERMISSIONS};
use crate::forge::http::{RateSettings, ReqwestTransport, Timeouts, Transport, TransportError};
use crate::forge::{
    Capabilities, CiState, CommitStatus, Confirmations, Forge, ForgeErrorKind, InterruptedStatus, LabelSpec, NewIssue,
    NewPull, ParsedDelivery, Permission, Reaction,
};

/// Fake forge with one repository, three accounts and a manual clock.
struct AdapterWorld {
    forge: FakeForge,
    clock: Clock,
    repo: RepoId,
    maintainer: User,
    outsider: User,
    bot: User,
}

async fn world(dialect: Dialect) -> AdapterWorld {
    let clock = Clock::manual(Timestamp(1_700_000_000_000));
    let forge = FakeForge::start(dialect, clock.clone()).await.unwrap();
    let [maintainer, outsider] = ["mia", "otto"].map(|login| forge.add_user(login, AccountKind::User));
    let bot = forge.add_user("ralph", AccountKind::Bot);
    let files = [("README.md", "hello\n", false), ("run.sh", "#!/bin/sh\nexit 1\n", true)];
    let repo = forge.create_repo("acme", "app", &files).await.unwrap();
    forge.grant(repo, &maintainer, Access::Admin).unwrap();
    forge.grant(repo, &bot, Access::Admin).unwrap();
    AdapterWorld { forge, clock, repo, maintainer, outsider, bot }
}

/// Headers and body of each webhook delivery, in the order of arrival.
type ReceivedRequests = Arc<Mutex<Vec<(HeaderMap, String)>>>;

/// Starts a receiver of webhooks, which ends when the returned set is dropped.
async fn receiver() -> (String, ReceivedRequests, JoinSet<()>) {
    let received = ReceivedRequests::default();
    let log = received.clone();
    let router = axum::Router::new().fallback(move |headers: HeaderMap, body: String| {
        log.lock().unwrap().push((headers, body));
        async { "ok" }
    });
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/hook", listener.local_addr().unwrap());
    let mut tasks = JoinSet::new();
    tasks.spawn(async move { axum::serve(listener, router).await.unwrap() });
    (url, received, tasks)
}

#[expect(clippy::disallowed_methods, reason = "plays the client's git, away from the code under test")]
async fn run_git(directory: &Path, args: &[&str]) -> (bool, String) {
    let output = tokio::process::Command::new("git")
        .args(args)
        .current_dir(directory)
        .env("GIT_TERMINAL_PROMPT", "0")
        .env("GIT_CONFIG_GLOBAL", "/dev/null")
        .env("GIT_CONFIG_NOSYSTEM", "1")
        .output()
        .await
        .unwrap();
    (output.status.success(), String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned())
}

const QUICK: RateSettings = RateSettings {
    mutation_interval_ms: Some(0),
    mutation_hold: Duration::from_secs(2),
    reserve: 0,
    attempts: 1,
    settling_ms: 0,
    timeouts: Timeouts::USUAL,
};

/// HTTP transport that validates each request and response against GitHub's description.
struct Described {
    network: ReqwestTransport,
    description: Arc<ContractTransport>,
}

impl Described {
    fn new() -> Arc<Self> {
        Arc::new(Self {
            network: ReqwestTransport::new(Timeouts::USUAL).unwrap(),
            description: ContractTransport::new(ContractSpec::GitHub),
        })
    }
}

#[async_trait]
impl Transport for Described {
    async fn send(&self, request: Request<Bytes>) -> Result<Response<Bytes>, TransportError> {
        let answer = self.network.send(request.clone()).await?;
        // The first is not in the subset, and the description of the second requires an account that is a user and an
        // enterprise. GraphQL and redirect targets are not REST.
        let undescribed = ["/user/repos", "/app/installations"];
        let path = request.uri().path().strip_prefix("/api/v3").filter(|path| !undescribed.contains(path));
        // Not described, and the target of redirects from former names.
        let path = path.filter(|path| !path.starts_with("/repositories/"));
        if let Some(path) = path {
            self.description.check(&request, path, &answer);
        }
        Ok(answer)
    }
}

fn gitea(world: &AdapterWorld) -> Gitea {
    let token = SecretString::from(world.forge.token_for(&world.bot));
    let settings =
        GiteaSettings { name: ForgeName::new("fake"), url: world.forge.url(), token, own: None, rates: QUICK };
    Gitea::new(settings, world.clock.clone()).unwrap()
}

fn github(world: &AdapterWorld, auth: GitHubAuth) -> GitHub {
    let settings = GitHubSettings {
        name: ForgeName::new("fake"),
        api_url: world.forge.api_url(),
        web_url: world.forge.url(),
        auth,
        rates: QUICK,
    };
    GitHub::with_transport(settings, world.clock.clone(), Described::new()).unwrap()
}

fn with_token(world: &AdapterWorld) -> GitHub {
    github(world, GitHubAuth::Token(SecretString::from(world.forge.token_for(&world.bot))))
}

/// Creates an App with the bot's account and a webhook to `url`.
fn with_app(world: &mut AdapterWorld, url: &str) -> GitHub {
    let made = world.forge.add_app("Ralph Bot", PERMISSIONS, EVENTS, url, "s3cret");
    world.forge.grant(world.repo, &world.bot, Access::None).unwrap();
    world.bot = made.bot.clone();
    let key = SecretString::from(made.private_key_pem);
    github(world, GitHubAuth::App { app_id: made.app_id, private_key_pem: key })
}

fn reference(world: &AdapterWorld) -> RepoRef {
    RepoRef { forge: ForgeName::new("fake"), id: world.repo, owner: "acme".to_owned(), name: "app".to_owned() }
}

fn spec(name: &str) -> LabelSpec {
    LabelSpec { name: name.to_owned(), color: "00ff00".to_owned(), description: "For Ralph", exclusive: false }
}

/// Calls all operations and checks their effects on the fake forge.
async fn exercise(forge: &dyn Forge, world: &AdapterWorld) {
    let repo = reference(world);
    let account = forge.own_account().await.unwrap();
    assert_eq!(account, world.bot);
    let known = forge.repositories().await.unwrap();
    assert_eq!(known.iter().map(|one| &one.repo).collect::<Vec<_>>(), [&repo]);
    let facts = forge.repository(&repo).await.unwrap();
    assert_eq!((facts.default_branch.as_str(), facts.private, facts.archived), ("main", false, false));
    assert!(!facts.empty);
    let stranger = RepoRef { id: RepoId(1), ..repo.clone() };
    assert_eq!(forge.repository(&stranger).await.unwrap_err().kind, ForgeErrorKind::NotFound);
    let info = forge.server_info().await.unwrap();
    assert!(info.product.starts_with("Git"), "{info:?}");

    permissions(forge, world, &repo).await;
    let number = issues(forge, world, &repo).await;
    comments(forge, world, &repo, number).await;
    let pull = pulls(forge, world, &repo, number).await;
    confirmations(forge, world, &repo, number, pull.number).await;
    ci(forge, world, &repo, &pull.head_sha).await;
    git(forge, world, &repo).await;
}

async fn permissions(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef) {
    let writer = world.forge.add_user("will", AccountKind::User);
    world.forge.grant(world.repo, &writer, Access::Write).unwrap();
    let unknown_user = User { id: UserId(1), login: "nobody".to_owned(), kind: AccountKind::User };
    let renamed = User { id: UserId(1), ..writer.clone() };
    for (user, expected) in [
        (&world.maintainer, Permission::Admin),
        (&writer, Permission::Write),
        (&world.outsider, Permission::Read),
        (&unknown_user, Permission::None),
        (&renamed, Permission::None),
    ] {
        assert_eq!(forge.permission(repo, user).await.unwrap(), expected, "{user:?}");
    }
}

async fn issues(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef) -> Number {
    let fake = &world.forge;
    forge.ensure_labels(repo, &[spec("ralph:run"), spec("ralph:done")]).await.unwrap();
    forge.ensure_labels(repo, &[spec("ralph:run"), spec("ralph:done")]).await.unwrap();
    let made = fake.with(|state| state.repo(world.repo).unwrap().labels.len());
    assert_eq!(made, 2, "labels that are there are not made again");

    let mut new = NewIssue {
        title: "Broken".into(),
        body: "Mend it".into(),
        labels: vec!["ralph:done".to_owned()],
        assignees: vec![world.outsider.login.clone()],
    };
    assert_eq!(forge.create_issue(repo, &new).await.unwrap_err().kind, ForgeErrorKind::Bug);
    new.assignees = vec![world.maintainer.login.clone()];
    let issue = forge.create_issue(repo, &new).await.unwrap();
    let assigned = fake.with(|state| state.issue(world.repo, issue.number).unwrap().assignees.clone());
    assert_eq!(assigned, [world.maintainer.id]);
    assert_eq!((issue.title.as_str(), issue.author.as_ref(), issue.is_pull), ("Broken", Some(&world.bot), false));
    let number = issue.number;
    forge.add_labels(repo, number, &["ralph:run".to_owned()]).await.unwrap();
    forge.add_labels(repo, number, &["ralph:run".to_owned()]).await.unwrap();
    assert_eq!(fake.labels(world.repo, number), ["ralph:run", "ralph:done"]);
    let found = forge.open_issues_with_label(repo, "ralph:run").await.unwrap();
    // Lists have no HTML.
    assert_eq!(found, [IssueSnapshot { html: None, ..forge.issue(repo, number).await.unwrap() }]);
    assert!(forge.render(repo, "**b**\nc").await.unwrap().starts_with("<p><strong>b</strong><br"));
    assert_eq!(forge.open_issues_with_label(repo, "no such label").await.unwrap(), []);
    if let Some(history) = forge.history() {
        let label = history.label_assignment(repo, number, "ralph:run").await.unwrap().unwrap();
        assert!(label.by == world.bot && label.renamed_at.is_none());
        assert_eq!(history.label_assignment(repo, number, "no such label").await.unwrap(), None);
    }
    forge.remove_label(repo, number, "ralph:run").await.unwrap();
    forge.remove_label(repo, number, "ralph:run").await.unwrap();
    assert_eq!(fake.labels(world.repo, number), ["ralph:done"]);
    for open in [false, true] {
        forge.set_issue_open(repo, number, open).await.unwrap();
        assert_eq!(forge.issue(repo, number).await.unwrap().open, open);
    }
    assert_eq!(forge.issue(repo, Number(99)).await.unwrap_err().kind, ForgeErrorKind::NotFound);

    if let Some(history) = forge.history() {
        assert_eq!(history.issue_edits(repo, number).await.unwrap(), []);
        world.clock.advance_ms(60_000);
        fake.edit_issue(&world.maintainer, world.repo, number, None, Some("Mend it well")).await.unwrap();
        let edits = history.issue_edits(repo, number).await.unwrap();
        let editors: Vec<_> = edits.into_iter().map(|edit| edit.editor).collect();
        let known = if history.records_edits() { vec![Some(world.maintainer.clone())] } else { Vec::new() };
        assert_eq!(editors, known);
    }
    number
}

async fn comments(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef, number: Number) {
    let fake = &world.forge;
    // More than a page.
    for count in 0..101 {
        fake.comment(&world.outsider, world.repo, number, &format!("Comment {count}")).await.unwrap();
    }
    world.clock.advance_ms(60_000);
    let since = world.clock.now();
    let made = forge.create_comment(repo, number, &Outbound::of_test("Working")).await.unwrap();
    assert_eq!((made.author.as_ref(), made.body.as_str()), (Some(&world.bot), "Working"));
    let all = forge.comments(repo, number, None).await.unwrap();
    assert_eq!((all.len(), all[0].body.as_str(), all[101].id), (102, "Comment 0", made.id));
    let new = forge.comments(repo, number, Some(since)).await.unwrap().into_iter();
    let new: Vec<_> = new.map(|comment| CommentSnapshot { html: None, ..comment }).collect();
    assert_eq!(new, std::slice::from_ref(&made));
    assert_eq!(forge.polling().unwrap().comments_changed_since(repo, since).await.unwrap(), [(number, made.clone())]);
    let since_ever = forge.polling().unwrap().comments_changed_since(repo, since.plus_ms(-3_600_000)).await.unwrap();
    assert_eq!(since_ever.len(), 102, "all pages");
    let changed = forge.polling().unwrap().issues_changed_since(repo, since).await.unwrap();
    assert_eq!(changed.iter().map(|issue| issue.number).collect::<Vec<_>>(), [number]);
    assert_eq!(forge.polling().unwrap().issues_changed_since(repo, since.plus_ms(3_600_000)).await.unwrap(), []);

    assert!(all.iter().all(|comment| !comment.edited));
    forge.reactions().unwrap().react(repo, made.id, Reaction::Rocket).await.unwrap();
    assert!(!forge.comments(repo, number, Some(since)).await.unwrap()[0].edited, "a reaction is no edit");
    world.clock.advance_ms(1_000);
    forge.edit_comment(repo, made.id, &Outbound::of_test("Done")).await.unwrap();
    assert!(forge.comments(repo, number, Some(since)).await.unwrap()[0].edited);
    forge.reactions().unwrap().react(repo, made.id, Reaction::Eyes).await.unwrap();
    forge.reactions().unwrap().react(repo, made.id, Reaction::Eyes).await.unwrap();
    if let Some(minimizing) = forge.minimizing() {
        minimizing.minimize_comment(repo, made.id).await.unwrap();
    }
    let remaining = fake.comments(world.repo, number).pop().unwrap();
    assert_eq!((remaining.body.as_str(), remaining.reactions.len()), ("Done", 2));
    assert_eq!(remaining.minimized.is_some(), forge.minimizing().is_some());
    forge.delete_comment(repo, made.id).await.unwrap();
    forge.delete_comment(repo, made.id).await.unwrap();
    assert_eq!(fake.comments(world.repo, number).len(), 101);
    let refused = forge.edit_comment(repo, made.id, &Outbound::of_test("again")).await.unwrap_err();
    assert_eq!(refused.kind, ForgeErrorKind::NotFound, "{refused}");
}

async fn pulls(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef, issue: Number) -> PullSnapshot {
    let fake = &world.forge;
    assert_eq!(forge.find_pull(repo, "ralph/1", "main").await.unwrap(), None);
    let head = fake.push_commit(&world.bot, world.repo, "ralph/1", &[("b", Some("b"), false)], "One").await.unwrap();

    let new = NewPull {
        title: "Mend".into(),
        body: Outbound::of_test(&format!("Closes #{issue}")),
        head: "ralph/1".to_owned(),
        base: "main".to_owned(),
        draft: true,
    };
    let made = forge.create_pull(repo, &new).await.unwrap();
    assert_eq!((made.draft, made.open, &made.head_sha, made.head_repo), (true, true, &head, Some(world.repo)));
    assert_eq!((made.head_repo_name, made.maintainers_may_push), (repo.full_name(), false));
    let again = forge.create_pull(repo, &new).await.unwrap_err();
    assert_eq!(again.kind, ForgeErrorKind::Conflict, "{again}");
    let nothing = NewPull { head: "nowhere".to_owned(), ..new };
    forge.create_pull(repo, &nothing).await.unwrap_err();
    assert_eq!(forge.open_issues_with_label(repo, "ralph:done").await.unwrap().len(), 1, "pulls are no issues");

    for (protected, branch) in [(false, "ralph/1"), (true, "ralph/1"), (false, "nowhere/1")] {
        fake.protect_branch(world.repo, "ralph/1", protected).unwrap();
        assert_eq!(forge.is_protected(repo, branch).await.unwrap(), protected, "{branch}");
    }

    let number = made.number;
    forge
        .update_pull(repo, number, &Outbound::of_test("Mend it"), &Outbound::of_test(&format!("Closes #{issue}!")))
        .await
        .unwrap();
    assert!(forge.pull(repo, number).await.unwrap().draft, "a new title keeps the draft");
    forge.drafts().unwrap().set_pull_ready(repo, number).await.unwrap();
    forge.drafts().unwrap().set_pull_ready(repo, number).await.unwrap();
    let found = forge.find_pull(repo, "ralph/1", "main").await.unwrap().unwrap();
    assert_eq!((found.number, found.draft, found.base_branch.as_str()), (number, false, "main"));

    let names = ["mia", "nobody", "ralph"].map(str::to_owned);
    forge.reviews().unwrap().request_reviewers(repo, number, &names).await.unwrap();
    let reviewers = fake.with(|state| state.pull(world.repo, number).unwrap().1.requested.clone());
    assert!(reviewers.contains(&world.maintainer.id), "{reviewers:?}");
    let review = ReviewDraft {
        verdict: ReviewVerdict::ChangesRequested,
        body: "Why?".to_owned(),
        remarks: vec![("b".to_owned(), 1, "here".to_owned())],
    };
    let id = fake.review(&world.maintainer, world.repo, number, &review).await.unwrap();
    let reviews = forge.reviews().unwrap().submitted_reviews(repo, number).await.unwrap();
    assert_eq!((reviews.len(), reviews[0].id, reviews[0].verdict), (1, id, ReviewVerdict::ChangesRequested));
    assert_eq!(reviews[0].author.as_ref(), Some(&world.maintainer));
    let remarks = forge.reviews().unwrap().review_comments(repo, number).await.unwrap();
    assert_eq!((remarks.len(), remarks[0].path.as_str(), remarks[0].line), (1, "b", Some(1)));
    assert_eq!(remarks[0].comment.body, "here");
    let (reviews, remark) = (forge.reviews().unwrap(), remarks[0].comment.id);
    assert_eq!(reviews.resolved_remarks(repo, number).await.unwrap(), []);
    fake.with(|state| state.remark_mut(world.repo, remark).map(|(_, found)| found.resolved = true)).unwrap();
    assert_eq!(reviews.resolved_remarks(repo, number).await.unwrap(), [remark]);

    fake.merge(&world.maintainer, world.repo, number).await.unwrap();
    let merged = forge.pull(repo, number).await.unwrap();
    assert_eq!((merged.merged, merged.open), (true, false));
    merged
}

async fn confirmations(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef, number: Number, pull: Number) {
    let (fake, asked, now) = (&world.forge, forge.webhooks().unwrap(), world.clock.now());
    let (mia, otto) = (&world.maintainer, &world.outsider);
    assert_eq!(asked.last_label_change(repo, number, "nothing", now).await.unwrap(), None);
    fake.label(mia, world.repo, number, "asked").await.unwrap();
    let set = asked.last_label_change(repo, number, "asked", now).await.unwrap().unwrap();
    assert_eq!((set.added, &set.by), (true, mia));
    world.clock.advance_ms(3_600_000);
    fake.unlabel(&world.bot, world.repo, number, "asked").await.unwrap();
    // The reported time may be wrong.
    for near in [now, world.clock.now(), world.clock.now().plus_ms(86_400_000), Timestamp(0)] {
        let removed = asked.last_label_change(repo, number, "asked", near).await.unwrap().unwrap();
        assert_eq!((removed.added, &removed.by), (false, &world.bot), "{near:?}");
        assert!(removed.id > set.id);
    }
    assert_eq!(asked.last_label_change(repo, Number(999), "asked", now).await.unwrap(), None);

    let comment = fake.comment(otto, world.repo, number, "Hello.").await.unwrap();
    let found = Confirmations::comment(asked, repo, number, comment).await.unwrap().unwrap();
    assert_eq!((found.body.as_str(), found.author.as_ref(), found.edited), ("Hello.", Some(otto), false));
    assert_eq!(Confirmations::comment(asked, repo, pull, comment).await.unwrap(), None, "in another conversation");
    assert_eq!(Confirmations::comment(asked, repo, number, CommentId(999_999)).await.unwrap(), None);
    let on_pull = fake.comment(otto, world.repo, pull, "There.").await.unwrap();
    assert!(Confirmations::comment(asked, repo, pull, on_pull).await.unwrap().is_some());
    world.clock.advance_ms(5_000);
    fake.edit_comment(otto, world.repo, comment, "Changed.").await.unwrap();
    assert!(Confirmations::comment(asked, repo, number, comment).await.unwrap().unwrap().edited);

    let known = forge.reviews().unwrap().submitted_reviews(repo, pull).await.unwrap().remove(0);
    assert_eq!(asked.review(repo, pull, known.id).await.unwrap(), Some(known));
    assert_eq!(asked.review(repo, pull, 999_999).await.unwrap(), None);
    let remark = forge.reviews().unwrap().review_comments(repo, pull).await.unwrap().remove(0);
    let id = remark.comment.id;
    assert_eq!(asked.review_comment(repo, pull, id).await.unwrap(), Some(remark));
    assert_eq!(asked.review_comment(repo, pull, CommentId(999_999)).await.unwrap(), None);
    assert_eq!(Confirmations::comment(asked, repo, number, id).await.unwrap(), None, "a comment on a line");
}

async fn ci(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef, sha: &Sha) {
    let none = forge.ci().unwrap().ci_results(repo, sha).await.unwrap();
    assert_eq!((none.passed.len(), none.pending.len(), none.failed.len()), (0, 0, 0));
    for (context, state) in [("a", "success"), ("b", "pending"), ("c", "pending"), ("c", "failure")] {
        let status = StatusDraft {
            context: context.to_owned(),
            state: state.to_owned(),
            description: format!("{context} is {state}"),
            target_url: "http://ci.invalid/1".to_owned(),
        };
        world.forge.set_status(&world.maintainer, world.repo, sha, &status).await.unwrap();
    }
    let state = forge.ci().unwrap().ci_results(repo, sha).await.unwrap();
    assert_eq!((state.passed.len(), state.pending.len(), state.failed.len()), (1, 1, 1));
    let failed = &state.failed[0];
    assert_eq!((failed.name.as_str(), failed.log.as_str()), ("c", "c is failure"));
    assert_eq!(failed.url, "http://ci.invalid/1");
}

async fn git(forge: &dyn Forge, world: &AdapterWorld, repo: &RepoRef) {
    for push in [false, true] {
        let access = forge.git_access(repo, push).await.unwrap();
        let (name, secret) = access.credential.unwrap();
        let pair = format!("{name}:{}", secret.expose_secret());
        let header = format!("http.extraHeader=Authorization: Basic {}", data_encoding::BASE64.encode(pair.as_bytes()));
        let tree = tempfile::tempdir().unwrap();
        let (cloned, said) = run_git(tree.path(), &["-c", &header, "clone", "-q", &access.url, "."]).await;
        assert!(cloned, "{said}");
        let target = ["-c", &header, "push", "-q", "origin", "HEAD:refs/heads/pushed"];
        let (pushed, said) = run_git(tree.path(), &target).await;
        let narrowed = world.forge.with(|state| state.app_of(world.bot.id).is_some());
        assert_eq!(pushed, push || !narrowed, "a token for fetching does not push: {said}");
    }
    assert!(world.forge.branch_sha(world.repo, "pushed").await.is_some());
}

/// Parses deliveries with the adapter.
fn read(forge: &dyn Forge, received: &ReceivedRequests) -> Vec<ForgeEvent> {
    let taken = std::mem::take(&mut *received.lock().unwrap());
    let parsed = taken.into_iter().filter_map(|(headers, body)| {
        let kind = headers.get("x-gitea-event-type").or(headers.get("x-github-event")).unwrap().to_str().unwrap();
        match forge.webhooks().unwrap().parse(kind, body.as_bytes()) {
            ParsedDelivery::Event(event) => Some(*event),
            ParsedDelivery::Ignored(_) => None,
            ParsedDelivery::Malformed(wrong) => panic!("{kind} is malformed: {wrong}\n{body}"),
        }
    });
    parsed.collect()
}

/// Checks that the adapter parses all deliveries.
async fn deliveries(forge: &dyn Forge, world: &AdapterWorld, received: &ReceivedRequests, deltas: bool) {
    let (fake, repo) = (&world.forge, world.repo);
    let number = fake.open_issue(&world.maintainer, repo, "Again", "x", &["ralph:run"]).await.unwrap();
    fake.flush().await;
    let events = read(forge, received);
    assert!(matches!(&events[0], ForgeEvent::IssueOpened { issue, .. } if issue.number == number), "{events:?}");
    match &events[1] {
        ForgeEvent::Labeled { label, sender, .. } => {
            assert!(deltas && label == "ralph:run" && *sender == world.maintainer)
        }
        ForgeEvent::LabelSet { issue, .. } => assert!(!deltas && issue.labels == ["ralph:run"]),
        other => panic!("{other:?}"),
    }
    let id = fake.comment(&world.outsider, repo, number, "/ralph status").await.unwrap();
    let head = fake.push_commit(&world.maintainer, repo, "work", &[("w", Some("w"), false)], "W").await.unwrap();
    let draft = PullDraft {
        title: "W".to_owned(),
        body: String::new(),
        head: "work".to_owned(),
        base: "main".to_owned(),
        draft: false,
    };
    let pull = fake.open_pull(&world.maintainer, repo, &draft).await.unwrap();
    let verdict = ReviewVerdict::ChangesRequested;
    let remarks = vec![("w".to_owned(), 1, "here".to_owned())];
    let review = ReviewDraft { verdict, body: "No".to_owned(), remarks };
    fake.review(&world.outsider, repo, pull, &review).await.unwrap();
    let status = StatusDraft {
        context: "ci".to_owned(),
        state: "failure".to_owned(),
        description: String::new(),
        target_url: String::new(),
    };
    fake.set_status(&world.maintainer, repo, &head, &status).await.unwrap();
    fake.close_issue(&world.maintainer, repo, number).await.unwrap();
    fake.flush().await;
    let events = read(forge, received);
    let has = |what: &str, test: &dyn Fn(&ForgeEvent) -> bool| assert!(events.iter().any(test), "{what}: {events:#?}");
    has("comment", &|event| matches!(event, ForgeEvent::CommentCreated { comment, .. } if comment.id == id));
    has("push", &|event| matches!(event, ForgeEvent::Pushed { after, .. } if after.as_ref() == Some(&head)));
    has("pull", &|event| matches!(event, ForgeEvent::PullChanged { pull: found, .. } if found.number == pull));
    let reviewed = |event: &ForgeEvent| match event {
        ForgeEvent::ReviewSubmitted { verdict: found, body, .. } => *found == verdict && body == "No",
        _ => false,
    };
    has("review", &reviewed);
    has("status", &|event| matches!(event, ForgeEvent::ChecksChanged { sha, .. } if *sha == head));
    has("closed", &|event| matches!(event, ForgeEvent::IssueClosed { .. }));
}

#[tokio::test]
async fn gitea_adapter_implements_all_operations() {
    let mut world = world(Dialect::Gitea).await;
    // Its API does not distinguish bots from people.
    world.bot.kind = AccountKind::User;
    exercise(&gitea(&world), &world).await;
}

#[tokio::test]
async fn github_adapter_implements_all_operations_with_a_token() {
    let world = world(Dialect::GitHub).await;
    exercise(&with_token(&world), &world).await;
}

#[tokio::test]
async fn github_adapter_implements_all_operations_as_an_app() {
    let mut world = world(Dialect::GitHub).await;
    let forge = with_app(&mut world, "");
    exercise(&forge, &world).await;
}

#[tokio::test]
async fn webhooks_are_created_tested_and_parsed() {
    for dialect in [Dialect::Gitea, Dialect::GitHub] {
        let world = world(dialect).await;
        let (url, received, _tasks) = receiver().await;
        let forge: Box<dyn Forge> = match dialect {
            Dialect::Gitea => Box::new(gitea(&world)),
            Dialect::GitHub => Box::new(with_token(&world)),
        };
        let (repo, secret) = (reference(&world), SecretString::from("s3cret".to_owned()));
        let id = forge.webhooks().unwrap().ensure_webhook(&repo, &url, &secret).await.unwrap().unwrap();
        let again = forge.webhooks().unwrap().ensure_webhook(&repo, &url, &secret).await.unwrap();
        assert_eq!(again, Some(id), "{dialect:?}: one webhook is enough");
        forge.webhooks().unwrap().test_webhook(&repo, id).await.unwrap();
        world.forge.flush().await;
        assert!(!received.lock().unwrap().is_empty(), "{dialect:?}: a test is delivered");
        received.lock().unwrap().clear();
        deliveries(&*forge, &world, &received, dialect == Dialect::GitHub).await;
    }
}

#[tokio::test]
async fn app_webhook_reports_all_repositories() {
    let mut world = world(Dialect::GitHub).await;
    let (url, received, _tasks) = receiver().await;
    let forge = with_app(&mut world, &url);
    assert_eq!(
        forge
            .webhooks()
            .unwrap()
            .ensure_webhook(&reference(&world), &url, &SecretString::from("x".to_owned()))
            .await
            .unwrap(),
        None
    );
    deliveries(&forge, &world, &received, true).await;
}

#[tokio::test]
async fn failed_job_is_reported_with_its_log() {
    let mut world = world(Dialect::GitHub).await;
    let forge = with_app(&mut world, "");
    let sha = world.forge.branch_sha(world.repo, "main").await.unwrap();
    let log = "2026-01-31T12:00:00.1234567Z ##[group]Run cargo test\n\
               2026-01-31T12:00:01.1234567Z ##[error]Process completed with exit code 101.\n";
    for (name, outcome) in [
        ("test", Some(("failure", "", log))),
        ("lint", Some(("failure", "2 warnings", ""))),
        ("build", Some(("success", "", ""))),
    ] {
        world.forge.set_check_run(&world.maintainer, world.repo, &sha, name, outcome).await.unwrap();
    }
    let state = forge.ci().unwrap().ci_results(&reference(&world), &sha).await.unwrap();
    assert_eq!((state.passed.len(), state.pending.len()), (1, 0));
    let failures: Vec<(&str, &str)> = state.failed.iter().map(|one| (one.name.as_str(), one.log.as_str())).collect();
    let step = "##[group]Run cargo test\n##[error]Process completed with exit code 101.";
    assert_eq!(failures, [("test", step), ("lint", "2 warnings")]);
}

#[tokio::test]
async fn newest_check_run_of_a_name_workflow_and_event_counts() {
    let mut world = world(Dialect::GitHub).await;
    let forge = with_app(&mut world, "");
    let sha = world.forge.branch_sha(world.repo, "main").await.unwrap();
    let add = |name: &str, workflow: Option<(&str, &str)>, conclusion: &str| {
        let workflow = workflow.map(|(name, event)| (name.to_owned(), event.to_owned()));
        let outcome = Some((conclusion, "", if workflow.is_some() { "a log\n" } else { "" }));
        world
            .forge
            .with(|state| state.add_check_run(world.maintainer.id, world.repo, &sha, (name, workflow), outcome))
            .unwrap();
    };
    // Run again by hand, with success; a release with a job of the same name fails; another App's run is on its own.
    add("build", Some(("ci", "push")), "failure");
    add("build", Some(("ci", "pull_request")), "failure");
    add("build", Some(("release", "push")), "failure");
    add("build", Some(("ci", "push")), "success");
    add("build", None, "success");
    let token = with_token(&world);
    world.forge.grant(world.repo, &world.bot, Access::Write).unwrap();
    let repo = reference(&world);
    let both: [&dyn Forge; 2] = [&forge, &token];
    for (n, forge) in both.into_iter().enumerate() {
        // Fine-grained tokens cannot read check runs, and go by the jobs of Actions.
        world.forge.with(|state| state.fine_grained_tokens = n == 1);
        let state = forge.ci().unwrap().ci_results(&repo, &sha).await.unwrap();
        let passed = if n == 1 { 1 } else { 2 };
        assert_eq!((state.passed.len(), state.pending.len(), state.failed.len()), (passed, 0, 2), "{n}: {state:?}");
        assert!(state.failed.iter().all(|one| one.log == "a log"), "{n}: {state:?}");
    }
}

#[tokio::test]
async fn expired_app_tokens_are_renewed() {
    let mut world = world(Dialect::GitHub).await;
    let forge = with_app(&mut world, "");
    let repo = reference(&world);
    let number = world.forge.open_issue(&world.outsider, world.repo, "x", "", &[]).await.unwrap();
    let mints = || world.forge.requests().iter().filter(|request| request.path.ends_with("/access_tokens")).count();
    forge.issue(&repo, number).await.unwrap();
    world.clock.advance_ms(30 * 60_000);
    forge.issue(&repo, number).await.unwrap();
    assert_eq!(mints(), 1);
    world.clock.advance_ms(31 * 60_000);
    forge.issue(&repo, number).await.unwrap();
    assert_eq!(mints(), 2);

    world.forge.with(|state| state.tokens.clear());
    forge.issue(&repo, number).await.unwrap();
    assert_eq!(mints(), 3, "a token that was taken back is asked for again");

    world.forge.with(|state| {
        let app = state.apps.values_mut().next().unwrap();
        app.excluded.insert(world.repo);
    });
    let refused = forge.issue(&repo, number).await.unwrap_err();
    assert_eq!(refused.kind, ForgeErrorKind::NotFound, "{refused}");
}

#[tokio::test]
async fn apps_status_is_one_check_run_per_commit_and_no_ci_result() {
    let mut world = world(Dialect::GitHub).await;
    let forge = with_app(&mut world, "");
    let repo = reference(&world);
    let commit = world.forge.branch_sha(world.repo, "main").await.unwrap();
    let outbound = OutboundFilter::default();
    let status = |state: CommitState, title: &str| CommitStatus {
        commit: commit.clone(),
        state,
        title: outbound.title(title),
        summary: outbound.body("| check |"),
        url: "https://forge.test/acme/app/pull/2".to_owned(),
        annotations: Vec::new(),
    };
    let statuses = forge.commit_statuses().unwrap();
    let mut id = None;
    for (state, conclusion) in
        [(CommitState::Queued, None), (CommitState::Running, None), (CommitState::Failure, Some("failure"))]
    {
        let set = statuses.set_commit_status(&repo, &status(state, "a title"), id).await.unwrap();
        assert_eq!(*id.get_or_insert(set), set, "updated, not added");
        let found = statuses.interrupted_status(&repo, &status(state, "a title")).await.unwrap();
        assert_eq!(found, InterruptedStatus::Set(set));
        let found = statuses.interrupted_status(&repo, &status(state, "another title")).await.unwrap();
        let is_completed = conclusion.is_some();
        assert_eq!(found, if is_completed { InterruptedStatus::Missing } else { InterruptedStatus::Other(set) });
        let found = world.forge.with(|fake| fake.repo(world.repo).unwrap().check_runs.clone());
        let [run] = &found[..] else { panic!("{found:?}") };
        assert_eq!((run.name.as_str(), run.conclusion.as_deref()), ("ralph/verified", conclusion));
        if conclusion.is_some() {
            assert_eq!(run.summary.trim(), "| check |");
        }
    }
    assert_eq!(forge.ci().unwrap().ci_results(&repo, &commit).await.unwrap(), CiState::default());
    let gone = statuses.set_commit_status(&repo, &status(CommitState::Success, "again"), Some(999)).await.unwrap();
    assert_ne!(Some(gone), id, "one that is gone is set anew");

    let people = with_token(&world);
    world.forge.grant(world.repo, &world.bot, Access::Write).unwrap();
    let set =
        people.commit_statuses().unwrap().set_commit_status(&repo, &status(CommitState::Success, "x"), None).await;
    assert!(set.is_ok(), "a token sets a commit status: {set:?}");
    assert_eq!(people.ci().unwrap().ci_results(&repo, &commit).await.unwrap(), CiState::default());
}

/// Gitea takes a label's name twice.
#[tokio::test]
async fn labels_created_concurrently_exist_once() {
    let worlds = [world(Dialect::Gitea).await, world(Dialect::GitHub).await];
    let forges: [Box<dyn Forge>; 2] = [Box::new(gitea(&worlds[0])), Box::new(with_token(&worlds[1]))];
    for (world, forge) in worlds.iter().zip(forges) {
        let specs: Vec<LabelSpec> = (0..6).map(|n| spec(&format!("ralph:{n}"))).collect();
        let repo = reference(world);
        let made = (0..4).map(|_| forge.ensure_labels(&repo, &specs));
        for outcome in futures::future::join_all(made).await {
            outcome.unwrap();
        }
        let found: Vec<String> =
            world.forge.with(|state| state.repo(world.repo).unwrap().labels.iter().map(|l| l.name.clone()).collect());
        let of = |wanted: &LabelSpec| found.iter().filter(|known| **known == wanted.name).count();
        assert!(specs.iter().all(|spec| of(spec) == 1), "{found:?}");
    }
}
