//! Tests of workflows with and without secrets.

use super::*;
use crate::cli::check::FindingStatus;

fn workflow(text: &str) -> TextFile {
    TextFile { path: ".github/workflows/ci.yml".into(), text: text.into() }
}

fn gives(text: &str) -> Option<(Vec<&'static str>, Vec<String>)> {
    let found = exposed(&workflow(text), "ralph/").expect("understood");
    found.map(|found| (found.events, found.gives.into_iter().collect()))
}

/// Returns a workflow with these triggers whose job has a secret.
fn with_triggers(triggers: &str) -> String {
    format!("on: {triggers}\njobs:\n  one:\n    steps:\n      - run: publish ${{{{ secrets.NPM_TOKEN }}}}\n")
}

/// See docs/research/threats.md#s14.
#[test]
fn triggers_match_like_on_forges() {
    for (triggers, events) in [
        ("push", vec!["push"]),
        ("[push, pull_request]", vec!["push", "pull_request"]),
        ("{ push: , workflow_dispatch: }", vec!["push"]),
        ("{ push: { branches: [main] } }", vec![]),
        ("{ push: { branches: ['*'] } }", vec![]),
        ("{ push: { branches: ['**'] } }", vec!["push"]),
        ("{ push: { branches: ['ralph/*'] } }", vec!["push"]),
        ("{ push: { branches: ['**', '!ralph/**'] } }", vec![]),
        ("{ push: { branches: ['!ralph/**', '**'] } }", vec!["push"]),
        ("{ push: { branches-ignore: ['ralph/**'] } }", vec![]),
        ("{ push: { branches-ignore: [main] } }", vec!["push"]),
        ("{ push: { tags: ['v*'] } }", vec![]),
        ("{ push: { paths: ['src/**'] } }", vec!["push"]),
        ("{ pull_request: { branches: [main] } }", vec!["pull_request"]),
        ("{ pull_request_target: { types: [opened] } }", vec!["pull_request_target"]),
        ("[create, delete]", vec!["create"]),
        ("workflow_dispatch", vec![]),
        ("{ schedule: [{ cron: '0 0 * * *' }] }", vec![]),
    ] {
        let found = gives(&with_triggers(triggers)).map(|found| found.0).unwrap_or_default();
        assert_eq!(found, events, "{triggers}");
    }
}

/// See docs/research/threats.md#s14.
#[test]
fn exposed_secrets_are_named() {
    let exposed_by =
        |job: &str| gives(&format!("on: push\njobs:\n  one:\n{job}")).map(|found| found.1).unwrap_or_default();
    assert!(exposed_by("    steps: [{ run: cargo test }]").is_empty());
    assert!(exposed_by("    env: { T: '${{ secrets.GITHUB_TOKEN }}' }").is_empty(), "each run has it");
    assert_eq!(exposed_by("    env: { A: '${{ secrets.KEY }}', B: '${{ secrets[\"OTHER\"] }}' }"), ["KEY", "OTHER"]);
    assert_eq!(exposed_by("    env: { ALL: '${{ toJSON(secrets) }}' }"), ["all secrets"]);
    assert_eq!(exposed_by("    uses: ./.github/workflows/deploy.yml\n    secrets: inherit"), ["all secrets"]);
    assert_eq!(
        exposed_by("    permissions: { contents: write, checks: read }"),
        ["a token with write access (contents)"]
    );
    assert_eq!(exposed_by("    permissions: write-all"), ["a token with write access (everything)"]);
    assert!(exposed_by("    permissions: read-all").is_empty());
    let aware = "    if: ${{ !startsWith(github.head_ref, 'ralph/') }}\n    env: { A: '${{ secrets.KEY }}' }";
    assert!(exposed_by(aware).is_empty(), "its author thought of these branches");
    let common =
        "on: push\nenv: { A: '${{ secrets.KEY }}' }\npermissions: { id-token: write }\njobs: { one: { steps: [] } }";
    assert_eq!(gives(common).expect("found").1, ["KEY", "a token with write access (id-token)"]);
}

/// See docs/research/threats.md#s14.
#[test]
fn each_event_has_advice() {
    let judged = |triggers: &str| judge("CI of acme/app", &workflow(&with_triggers(triggers)), "ralph/");
    let both = judged("[push, pull_request]").expect("told");
    assert_eq!(
        both.detail,
        ".github/workflows/ci.yml runs on push and pull_request of branches `ralph/…` with NPM_TOKEN; code of an agent could \
         read it"
    );
    assert_eq!(
        both.fix,
        "exclude the branches under `push` (`branches-ignore: ['ralph/**']`) and add to its jobs `if: ${{ \
         !startsWith(github.head_ref || github.ref_name, 'ralph/') }}`; move checks without secrets to a separate \
         workflow"
    );
    let push = judged("push").expect("told");
    assert!(push.status == FindingStatus::Warn && !push.fix.contains("head_ref"), "{push:?}");
    assert_eq!(judged("workflow_dispatch"), None);
    let broken = judge("CI of acme/app", &workflow("on: [push\njobs: {"), "ralph/").expect("told");
    assert!(broken.status == FindingStatus::Warn && broken.detail.contains("could not parse"), "{broken:?}");
}
