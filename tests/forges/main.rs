//! Conformance stories: one test for each story and server, by the same code on the fake Gitea and, if one is configured, a real Gitea or
//! Forgejo; on the fake GitHub only the stories that `tests/it` and `tests/slow` do not have there.
//!
//! `cargo test --test forges` and `.ci/full` run them; `cargo test` does not. Package registries do not have a Gitea:
//! `RALPH_TEST_GITEA_URL` and `RALPH_TEST_GITEA_TOKEN` (of an administrator, all scopes) name one. It must be allowed to send
//! webhooks to loopback (`[webhook] ALLOWED_HOST_LIST = loopback`); where it runs on another machine or in a container,
//! `RALPH_TEST_HOOK_HOST` is the name by which it reaches this one. Both are looked at once, before the first story. Each story makes its own people, organization and
//! repository and deletes them, so that stories run in parallel. Stories use the server by HTTP and git only, as people do.
#![expect(clippy::disallowed_methods, reason = "the tests' own switches and processes are no part of the service")]

mod bot;
#[path = "../harness/mod.rs"]
mod harness;
mod network;
mod preflight;
mod repo;
mod server;
mod stage;
mod stories;
mod table;
