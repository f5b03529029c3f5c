//! Tests of message bodies for each service, hostile text in them, and the recipients of notices.

use crate::domain::lifecycle::effect::{ChannelEffect, Effect, ForgeEffect, StoreEffect};
use crate::domain::lifecycle::notices;
use crate::domain::report::view::View;
use std::collections::BTreeMap;

use proptest::prelude::*;
use serde_json::{Value, json};

use super::samples::notice;
use super::*;
use crate::domain::lifecycle;
use crate::domain::loops::{LoopStart, LoopState, LoopTask, RunOptions, TaskText};
use crate::domain::model::ids::IssueRef;
use crate::domain::model::ids::{AccountKind, User, UserId};
use crate::domain::model::plan::TaskPlan;
use crate::domain::report::view::EscalationSeverity;
use crate::domain::supervision::oversight::{self, DetectionKind, InterventionLevel};
use crate::domain::trust::policy::Policy;

const KINDS: [ChannelKind; 5] =
    [ChannelKind::Slack, ChannelKind::Discord, ChannelKind::PagerDuty, ChannelKind::Generic, ChannelKind::Mail];
const ANSWER: &str = "https://git.example.org/mira/app/issues/57";

fn body(kind: ChannelKind, notice: &Notice, delivery: &str, answer: Option<&str>) -> Value {
    (kind.definition().body)(NoticeBody { notice, delivery, answer, again: false })
}

/// Returns a notice whose foreign fields contain everything that services interpret.
fn hostile(text: &str) -> Notice {
    Notice {
        title: text.into(),
        cause: text.into(),
        reason: text.into(),
        what_happened: text.into(),
        evidence: vec![text.into(); 60],
        recommendations: vec![text.into(); 60],
        replies: vec![CommandHint { usage: text.into(), what: text.into() }; 60],
        repo: RepoRef { owner: text.into(), name: text.into(), ..notice().repo },
        issue_url: format!("https://git.example.org/{text}"),
        ..notice()
    }
}

fn a_loop() -> Loop {
    let notice = notice();
    let task = LoopTask {
        text: TaskText::new(notice.title, "", None),
        url: notice.issue_url,
        hash: "0123456789abcdef".into(),
        author: None,
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: Vec::new(),
    };
    let start = LoopStart {
        request: String::new(),
        existing: None,
        id: notice.loop_id,
        place: IssueRef { repo: notice.repo, issue: notice.issue },
        by: User { id: UserId(1), login: "mira".into(), kind: AccountKind::User },
        task,
        options: RunOptions::default(),
        policy: Policy::default(),
        plan: None,
        comment: None,
        hidden_removed: 0,
        round: 1,
    };
    lifecycle::start(start, Timestamp(1)).next
}

fn pretty(kind: ChannelKind, notice: &Notice, answer: Option<&str>) -> String {
    serde_json::to_string_pretty(&body(kind, notice, "0123456789abcdef", answer)).expect("JSON")
}

#[test]
fn each_service_gets_its_format() {
    insta::assert_snapshot!("slack", pretty(ChannelKind::Slack, &notice(), Some(ANSWER)));
    insta::assert_snapshot!("discord", pretty(ChannelKind::Discord, &notice(), Some(ANSWER)));
    insta::assert_snapshot!("pagerduty", pretty(ChannelKind::PagerDuty, &notice(), Some(ANSWER)));
    insta::assert_snapshot!("generic", pretty(ChannelKind::Generic, &notice(), Some(ANSWER)));
    insta::assert_snapshot!("mail", pretty(ChannelKind::Mail, &notice(), Some(ANSWER)));
    let reminder = Notice { occasion: Occasion::Reminder, ..notice() };
    insta::assert_snapshot!("slack_reminder", pretty(ChannelKind::Slack, &reminder, None));
    let resolved = Notice { occasion: Occasion::Resolved, ..notice() };
    insta::assert_snapshot!("mail_reminder", pretty(ChannelKind::Mail, &reminder, None));
    insta::assert_snapshot!("discord_resolved", pretty(ChannelKind::Discord, &resolved, None));
    insta::assert_snapshot!("slack_resolved", pretty(ChannelKind::SlackBot, &resolved, None));
    insta::assert_snapshot!("pagerduty_resolved", pretty(ChannelKind::PagerDuty, &resolved, None));
}

#[test]
fn untrusted_text_has_no_mentions_or_links() {
    let text = "<!channel> <!here> <@U123> <https://evil.example|safe> @everyone <@&9> [x](https://evil.example) \
                *b* `c` ~s~ ||h|| # h https://evil.example/a?b&c mailto:a@evil.example \u{202e}\u{200b}";
    let foreign = Notice { title: text.into(), what_happened: text.into(), evidence: vec![text.into()], ..notice() };
    insta::assert_snapshot!("hostile_slack", pretty(ChannelKind::Slack, &foreign, None));
    insta::assert_snapshot!("hostile_discord", pretty(ChannelKind::Discord, &foreign, None));
    insta::assert_snapshot!("hostile_pagerduty", pretty(ChannelKind::PagerDuty, &foreign, None));
    insta::assert_snapshot!("hostile_mail", pretty(ChannelKind::Mail, &foreign, None));
}

#[test]
fn bodies_respect_size_limits() {
    for text in ["&<>".repeat(1_400), "@:".repeat(1_600), "🦀".repeat(1_600), "word ".repeat(900), "()".repeat(900)] {
        within_limits(&hostile(&text));
    }
    within_limits(&Notice { occasion: Occasion::Reminder, ..hostile(&"&<>".repeat(1_400)) });
}

/// Asserts the documented limits, and the absence of forbidden text in all bodies.
fn within_limits(notice: &Notice) {
    let count = |value: &Value| value.as_str().map_or(0, |text| text.encode_utf16().count());
    let slack = body(ChannelKind::Slack, notice, "d", Some(ANSWER));
    let blocks = slack["blocks"].as_array().expect("blocks");
    assert!(blocks.len() <= 50 && count(&slack["text"]) <= 40_000);
    assert!(blocks.iter().all(|b| count(&b["text"]["text"]) <= if b["type"] == "header" { 150 } else { 3_000 }));
    assert!(slack["blocks"].to_string().encode_utf16().count() < 13_000, "{}", slack["blocks"].to_string().len());

    let discord = body(ChannelKind::Discord, notice, "d", Some(ANSWER));
    let embed = &discord["embeds"][0];
    let fields = embed["fields"].as_array().expect("fields");
    assert!(count(&embed["title"]) <= 256 && count(&embed["description"]) <= 4_096 && fields.len() <= 25);
    assert!(fields.iter().all(|f| count(&f["name"]) <= 256 && (1..=1_024).contains(&count(&f["value"]))), "{fields:?}");
    let parts = fields.iter().flat_map(|f| [&f["name"], &f["value"]]);
    let all: usize = parts.chain([&embed["title"], &embed["description"], &embed["footer"]["text"]]).map(count).sum();
    assert!(all <= 6_000, "{all}");
    assert_eq!(discord["allowed_mentions"], json!({ "parse": [] }));

    let pager = body(ChannelKind::PagerDuty, notice, "d", Some(ANSWER));
    assert!(count(&pager["dedup_key"]) <= 255 && count(&pager["payload"]["summary"]) <= 1_024);
    assert!(pager.to_string().len() <= 512 * 1024);
    assert!(body(ChannelKind::Generic, notice, "d", None).to_string().len() <= 8 << 20);
}

proptest! {
    // Each case fills every body up to its size limit.
    #![proptest_config(test_support::cases(64))]
    #[test]
    fn untrusted_text_cannot_break_format(text in r"[ -~\n]{0,80}|\PC{0,80}") {
        let notice = hostile(&text);
        within_limits(&notice);
        let slack = body(ChannelKind::Slack, &notice, "d", None);
        let mail = body(ChannelKind::Mail, &notice, "d", None);
        let (subject, html) = (mail["subject"].as_str().expect("text"), mail["html"].as_str().expect("text"));
        prop_assert!(!subject.contains(char::is_control), "{}", subject);
        for tag in html.split('<').skip(1) {
            let tag = tag.split('>').next().unwrap_or_default();
            let allowed_tags = ["!DOCTYPE html", "html", "body", "h2", "h3", "p", "ul", "li", "a"];
            let name = tag.trim_start_matches('/');
            prop_assert!(allowed_tags.contains(&name) || name.starts_with("a href=\"https://"), "<{}> in {}", tag, html);
        }
        for block in slack["blocks"].as_array().expect("blocks").iter().filter(|b| b["type"] == "section") {
            let text = block["text"]["text"].as_str().expect("text");
            // Only our links start with `<`.
            prop_assert!(text.matches('<').count() == text.matches("<https://git.example.org/").count(), "{}", text);
        }
        let discord = body(ChannelKind::Discord, &notice, "d", None);
        let description = discord["embeds"][0]["description"].as_str().expect("text");
        let mut plain = false;
        for c in description.chars() {
            prop_assert!(plain || !"`*_~|<>[]()#@:".contains(c), "{}", description);
            plain = c == '\\' && !plain;
        }
    }
}

fn audiences() -> Vec<Audience> {
    let audience = |channel: &str, kind, levels: &[EscalationLevel]| Audience {
        channel: channel.into(),
        kind,
        levels: levels.to_vec(),
    };
    use EscalationLevel::{Critical, Emergency, Warning};
    vec![
        audience("chat", ChannelKind::Slack, &[Critical, Emergency]),
        audience("duty", ChannelKind::PagerDuty, &[Emergency]),
        audience("all", ChannelKind::Generic, &[Warning, Critical, Emergency]),
    ]
}

fn notified(effects: &[Effect]) -> Vec<(String, Occasion)> {
    let one = |effect: &Effect| match effect {
        Effect::Channel(ChannelEffect::Notify { channel, notice }) => (channel.clone(), notice.occasion),
        other => panic!("{other:?}"),
    };
    effects.iter().map(one).collect()
}

#[test]
fn channels_receive_selected_levels() {
    let current = a_loop();
    let escalate = |level, reminder| {
        Effect::Forge(ForgeEffect::Escalate {
            cause: DetectionKind::Stuck.into(),
            view: Box::new(crate::domain::report::escalation(
                &current,
                &DetectionKind::Stuck.into(),
                "look at it",
                Timestamp(0),
            )),
            level,
            reminder,
        })
    };
    let of = |effect: &Effect| notified(&notices(effect, &current, &audiences(), |_| Vec::new(), Timestamp(5)));
    let (raised, reminder) = (Occasion::Raised, Occasion::Reminder);
    let to = |names: &[&str], occasion| names.iter().map(|n| ((*n).to_owned(), occasion)).collect::<Vec<_>>();
    assert_eq!(of(&escalate(EscalationLevel::Warning, false)), to(&["all"], raised));
    assert_eq!(of(&escalate(EscalationLevel::Critical, false)), to(&["chat", "all"], raised));
    assert_eq!(of(&escalate(EscalationLevel::Emergency, true)), to(&["chat", "duty", "all"], reminder));
    assert_eq!(of(&Effect::Store(StoreEffect::CancelWork)), []);
    // A channel with incidents gets no reminder if the incident is open, or if a person has resolved it.
    let open = |_: &str| vec!["stuck".to_owned()];
    let known =
        |level, reminder| notified(&notices(&escalate(level, reminder), &current, &audiences(), open, Timestamp(5)));
    assert_eq!(known(EscalationLevel::Emergency, true), to(&["chat", "all"], reminder));
    assert_eq!(known(EscalationLevel::Emergency, false), to(&["chat", "duty", "all"], raised), "what is new is told");
}

#[test]
fn warning_and_redirect_notify_only_channels_of_their_level() {
    for (level, cause) in [(InterventionLevel::Warn, "warn_stuck"), (InterventionLevel::Redirect, "redirect_stuck")] {
        warned_channels(level, cause);
    }
}

fn warned_channels(level: InterventionLevel, cause: &str) {
    let found = JudgedDetection {
        kind: DetectionKind::Stuck,
        severity: oversight::DetectionSeverity::High,
        basis: None,
        level,
        fresh: true,
        evidence: "the same error 4 times".into(),
        recommendations: vec!["Find the cause first".into()],
    };
    let mut current = a_loop();
    current.state = LoopState::Running;
    let notice = Notice::warned(&current, &found, Timestamp(5));
    let warn = Effect::Channel(ChannelEffect::Warn { notice: Box::new(notice.clone()) });
    assert_eq!((warn.lane(), warn.queue().as_ref()), (None, ""), "it is nothing but its notices");
    let effects = notices(&warn, &current, &audiences(), |_| Vec::new(), Timestamp(5));
    assert_eq!(
        effects,
        [Effect::Channel(ChannelEffect::Notify { channel: "all".into(), notice: Box::new(notice.clone()) })]
    );
    assert_eq!((notice.level, effects[0].key()), (EscalationLevel::Warning, format!("notify/all/raised/{cause}")));
    assert_ne!(notice.dedup_key(), Notice { cause: "stuck".into(), ..notice.clone() }.dedup_key());
    if level == InterventionLevel::Redirect {
        insta::assert_snapshot!("slack_warning", pretty(ChannelKind::Slack, &notice, None));
    }
}

#[test]
fn waiting_plan_is_a_decision_for_channels_and_reminds_incidents_once() {
    let mut current = a_loop();
    current.state = LoopState::NeedsAnswer;
    let plan = TaskPlan {
        summary: "Mend the parser.".into(),
        steps: vec!["Handle the empty text.".into()],
        questions: vec!["Which encoding?".into()],
        ..TaskPlan::default()
    };
    let plan = ProposedPlan { number: 1, hash: plan.hash(), plan, at: Timestamp(3) };
    let usual = Notice::plan(Occasion::Raised, &current, &plan, Timestamp(5));
    assert_eq!(usual.level, EscalationLevel::Info, "nothing has failed, so nobody is paged");
    assert_eq!(usual.key("chat"), "notify/chat/raised/plan_approval");
    let of = |occasion, open: &[&str]| {
        let notice = Notice::plan(occasion, &current, &plan, Timestamp(5));
        assert_eq!(notice.evidence, ["Mend the parser.", "Which encoding?"]);
        let open = |_: &str| open.iter().map(|cause| (*cause).to_owned()).collect::<Vec<_>>();
        let all = audiences().into_iter().map(|audience| Audience { levels: vec![EscalationLevel::Info], ..audience });
        notified(&notices(
            &Effect::Channel(ChannelEffect::Warn { notice: Box::new(notice) }),
            &current,
            &all.collect::<Vec<_>>(),
            open,
            Timestamp(5),
        ))
    };
    let to = |names: &[&str], occasion| names.iter().map(|n| ((*n).to_owned(), occasion)).collect::<Vec<_>>();
    assert_eq!(of(Occasion::Raised, &[]), to(&["chat", "duty", "all"], Occasion::Raised));
    assert_eq!(of(Occasion::Reminder, &["plan_approval"]), to(&["chat", "all"], Occasion::Reminder));
    assert_eq!(of(Occasion::Reminder, &[]), to(&["chat", "duty", "all"], Occasion::Reminder), "a new channel");
}

#[test]
fn incidents_are_resolved_once() {
    let current = a_loop();
    let close = Effect::Forge(ForgeEffect::CloseEscalations { why: "resumed".into() });
    let open = BTreeMap::from([("duty", vec!["a".to_owned(), "b".to_owned()]), ("chat", vec!["a".to_owned()])]);
    let open = |channel: &str| open.get(channel).cloned().unwrap_or_default();
    let effects = notices(&close, &current, &audiences(), open, Timestamp(5));
    assert_eq!(notified(&effects), [("duty".to_owned(), Occasion::Resolved), ("duty".to_owned(), Occasion::Resolved)]);
    let keys: Vec<String> = effects.iter().map(Effect::key).collect();
    assert_eq!(keys, ["notify/duty/resolved/a", "notify/duty/resolved/b"]);
    assert_eq!(effects[0].queue(), "notify/duty");

    assert_eq!(open_causes(["notify/duty/raised/a", "notify/duty/raised/b/c", "notify/duty/reminder/a"]), ["b/c", "a"]);
    assert_eq!(open_causes(["notify/duty/raised/a", "notify/duty/resolved/a"]), [""; 0]);
    assert_eq!(open_causes(["notify/duty/resolved/a", "notify/duty/raised/a", "nonsense"]), ["a"]);
}

#[test]
fn reminder_belongs_to_same_incident() {
    let reminder = Notice { occasion: Occasion::Reminder, at: Timestamp(9), ..notice() };
    let of = |notice: &Notice| body(ChannelKind::PagerDuty, notice, "d", None)["dedup_key"].clone();
    assert_eq!(of(&notice()), of(&reminder));
    assert_eq!(of(&notice()), "ralph-bot/work/7/r-42-k7m2qa/limit_iterations");
    for kind in KINDS {
        assert!(body(kind, &reminder, "d", None).to_string().to_lowercase().contains("reminder"), "{kind:?}");
    }
}

#[test]
fn escalation_level_matches_severity() {
    let current = a_loop();
    for (severity, wanted) in [
        (EscalationSeverity::Critical, EscalationLevel::Critical),
        (EscalationSeverity::Emergency, EscalationLevel::Emergency),
    ] {
        let mut view =
            crate::domain::report::escalation(&current, &DetectionKind::Stuck.into(), "look at it", Timestamp(0));
        if let View::Escalation(inner) = &mut view {
            inner.severity = severity;
        }
        let effect = Effect::escalate(DetectionKind::Stuck.into(), view);
        assert!(
            matches!(effect, Effect::Forge(ForgeEffect::Escalate { level, reminder: false, .. }) if level == wanted),
            "{effect:?}"
        );
    }
    // Format from before levels were introduced.
    let old = json!({ "effect": "escalate", "cause": "stuck", "view": crate::domain::report::escalation(&current, &DetectionKind::Stuck.into(), "", Timestamp(0)) });
    let old: Effect = serde_json::from_value(old).expect("it is read");
    assert!(matches!(
        old,
        Effect::Forge(ForgeEffect::Escalate { level: EscalationLevel::Critical, reminder: false, .. })
    ));
}
