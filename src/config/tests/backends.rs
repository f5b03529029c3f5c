//! Backends, what is decided about them, memory and money in the operator's file.

use super::*;
use crate::domain::backends::{Role, RotationMode};
use crate::domain::rules::{ActionName, Facts};

/// A file with these backends, in which `rest` stands as well.
fn file(backends: &str, rest: &str) -> String {
    let forge = "forges: [{ name: work, kind: gitea, url: 'https://g.example', token_env: T, webhook_secret_env: S }]";
    format!("{forge}\nbackends:\n{backends}{rest}")
}

const EVERYTHING: &str = r#"
  claude:
    models:
      default: sonnet
      rules:
        - { when: "consec_errors >= 2 || cost > 8", model: opus }
    thresholds: { max_requests_per_window: 50, window: 5h, max_cost_per_hour: 5, max_context_pct: 70 }
    prices: { gpt-5.2: { input: 1.5, output: 6 }, "house-*": { input: 0, output: 0, cache_read: 0 } }
    context_window: 200000
  mine: { type: external, command: ["./agent"], output: jsonl, args: ["-m", "{model}"], models: { default: m } }
  helper: { type: api, url: "https://api.anthropic.com", api_key_env: T, models: { default: haiku } }
  router: { type: internal, url: "https://api.openai.com/v1", models: { default: gpt-5 }, roles: [agent, assistant] }
  local: { type: internal, url: "http://localhost:11434", models: { default: qwen } }
  odd: { type: api, url: "https://gate.example/v1", wire: messages, models: { default: x }, api_key_file: key }
  codex: { enabled: false }
order: { agent: [claude, local, codex], assistant: [router] }
rotation: { mode: time_sliced, interval: 2h, order: [claude, local], iteration_cost: 0.25 }
parking: { backoff_first: 30s, backoff_max: 30m }
schedule:
  - { trigger: { when: "cost > 8.5", on_error: "rate limit" }, action: switch_backend, backend: local }
  - { trigger: { cron: "0 9 * * MON-FRI" }, action: pause, reason: "people are back" }
memory: { limit: 3, share_within_owner: true }
intelligence: full
limits: { cost_usd_per_repository_per_day: 20 }
"#;

#[test]
fn everything_about_backends_is_read_as_it_is_meant() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "k\n").unwrap();
    let config = Config::parse(&folder.path().join("c.yaml"), &file(&EVERYTHING[1..], ""), &env()).expect("valid");
    assert_eq!(config.backends.len(), 6, "one is off");
    let settings = config.backends_settings();
    assert_eq!(settings.in_order(Role::Agent), ["claude", "local", "mine", "router"]);
    assert_eq!(settings.in_order(Role::Assistant), ["router", "helper", "odd"]);
    assert!(settings.validate().iter().all(|problem| problem.message.contains("codex")), "one is off");
    assert_eq!((settings.rotation.mode, settings.rotation.interval_s), (RotationMode::TimeSliced, 7_200));
    assert_eq!((settings.parking.backoff_first_s, settings.parking.backoff_max_s), (30, 1_800));
    let thresholds = settings.thresholds("claude");
    assert_eq!((thresholds.max_requests_per_window, thresholds.window_s), (Some(50), 18_000));
    assert_eq!((thresholds.max_cost_per_hour, thresholds.max_context_pct), (Some(Money(5_000_000)), 70));

    let claude = &config.backends["claude"];
    let facts = |consec_errors| Facts { consec_errors, ..Facts::default() };
    assert_eq!(claude.rules.choose(&facts(0)).model.as_deref(), Some("sonnet"));
    assert_eq!(claude.rules.choose(&facts(2)).model.as_deref(), Some("opus"));
    assert_eq!(claude.prices.price("gpt-5.2").map(|price| price.output), Some(Money(6_000_000)));
    assert_eq!(claude.prices.price("house-small").map(|price| price.input), Some(Money(0)));
    assert!(claude.prices.price("opus").is_some(), "published prices lie below");
    assert_eq!(claude.context_window, Some(200_000));

    let wires: Vec<_> = ["helper", "router", "local", "odd", "mine"].map(|name| config.backends[name].wire).into();
    use WireName::{Chat, Messages, Responses};
    assert_eq!(wires, [Some(Messages), Some(Responses), Some(Chat), Some(Messages), None]);
    assert_eq!(config.backends["helper"].roles, [Role::Assistant], "it can do nothing else");
    assert_eq!(config.backends["odd"].api_key.as_ref().map(|key| key.expose_secret()), Some("k"));
    assert_eq!(config.backends["mine"].output, Some(OutputFormat::Jsonl));

    assert_eq!((config.memory.limit, config.memory.share_within_owner, config.memory.strategies), (3, true, 3));
    assert_eq!(config.money.per_repository_day, Some(Money(20_000_000)));
    assert_eq!(config.money.per_service_day, Some(Money(50_000_000)));
    let policy = config.policy(&ForgeName::new("work"));
    assert_eq!(policy.intelligence, Intelligence::Full);
    assert_eq!(
        policy.schedule.iter().map(|e| e.action).collect::<Vec<_>>(),
        [ActionName::SwitchBackend, ActionName::Pause]
    );
}

#[test]
fn defaults_need_nothing_to_be_written() {
    let config = parse(SMALL).expect("valid");
    assert_eq!(config.backends_settings().rotation, Default::default());
    assert_eq!(config.memory, MemorySettings::default());
    assert_eq!(config.intelligence, Intelligence::Fallback);
    assert_eq!(config.money, MoneyLimits { per_repository_day: None, per_service_day: Some(Money(50_000_000)) });
    assert!(config.policy(&ForgeName::new("work")).schedule.is_empty());
}

#[test]
fn rules_say_where_they_are_wrong() {
    insta::assert_snapshot!(problems(&file(
        "  claude:\n    models:\n      default: 'a b'\n      cheap: '-x'\n      rules:\n        - { when: consec_eror >= 2, model: opus }\n        \
         - when: task_type > 3\n          model: opus\n        - { when: cost > , model: ' ' }\n",
        "schedule:\n  - { trigger: {}, action: pause }\n  - { trigger: { when: urgncy > 0.5 }, action: abort }\n  \
         - { trigger: { cron: '61 * * * *' }, action: set_model }\n  \
         - { trigger: { at_iteration: 0 }, action: switch_backend, backend: cloude }\n",
    )), @"");
    insta::assert_snapshot!(problems(&file(
        "  claude: { models: { rules: [{ when: has_error }] } }\n",
        "schedule: [{ action: pause }, { trigger: { whn: x }, action: pausse }]\n",
    )), @"");
}

#[test]
fn orders_rotation_and_parking_name_what_there_is() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { thresholds: { max_cost_per_hour: 9, max_cost_per_day: 4, max_context_pct: 0, window: 2d } }\n  \
         helper: { type: api, url: 'https://h.example', models: { default: x } }\n  mine: { type: script, command: [sh], roles: [] }\n",
        "order: { agent: [cluade, helper, claude, claude] }\n\
         rotation: { mode: round_robbin, interval: 5s, order: [codex] }\n\
         parking: { backoff_first: 2h, backoff_max: 1h }\n",
    )), @"");
}

#[test]
fn prices_memory_and_money_are_in_range() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { prices: { gpt-5.2: { input: -1, output: 6 }, 'x[1m]': { input: 1, output: 1e9 }, y: { input: 1 } } }\n",
        "memory: { limit: 1000, archive_below: 0.9, enabled: maybe }\n\
         limits: { cost_usd: 10, cost_usd_per_repository_per_day: 5 }\n",
    )), @"");
    insta::assert_snapshot!(
        problems(&format!("{SMALL}limits: {{ cost_usd_per_repository_per_day: 60 }}\nintelligence: most\n")),
        @""
    );
    insta::assert_snapshot!(problems(&format!("{SMALL}limits: {{ cost_usd_per_repository_per_day: 0 }}\n")), @"");
}

#[test]
fn what_a_backend_has_no_use_for_is_told() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { url: 'https://x.example', wire: chat, api_key_env: T, roles: [agent, assistant] }\n  \
         own: { type: internal, command: [x], args: [y], output: text, stdin: none }\n  \
         ask: { type: api, url: 'https://x.example', models: { default: x }, roles: [agent], wire: chats, context_window: 5 }\n",
        "",
    )), @"");
    let key = file("  own: { type: internal, url: 'http://x', models: { default: x }, api_key: hunter2 }\n", "");
    let told = problems(&key);
    assert!(told.contains("api_key_env") && !told.contains("hunter2"), "{told}");
}

#[test]
fn a_repository_can_only_lower_intelligence() {
    let operator = parse(SMALL).expect("valid").policy(&ForgeName::new("work"));
    let lowered = parse_repository(".ralph.yml", "intelligence: off\n", &operator).expect("valid");
    assert_eq!(operator.with_repository(&lowered).intelligence, Intelligence::Off);
    let raised = parse_repository(".ralph.yml", "intelligence: full\n", &operator).expect("valid");
    assert_eq!(operator.with_repository(&raised).intelligence, Intelligence::Fallback);
    assert_eq!(operator.overruled(&raised).len(), 1);
    insta::assert_snapshot!(repository_problems("schedule: []\nmemory: {}\nbackends: {}\n"), @"");
}
