//! Tests of backends, rules, memory and money in the operator's file.

use super::*;
use crate::config::AssistantChoice;
use crate::domain::model::quantity::{Duration, Usd};
use crate::domain::providers::backends::{BackendRole, BackendType, OutputFormatName, RotationMode};
use crate::domain::providers::rules::{ActionName, CompiledCondition, RuleFacts};

/// Returns a file with these backends and the text `rest`.
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
priority: { agent: [claude, local, codex], assistant: [router] }
rotation: { mode: time_sliced, interval: 2h, order: [claude, local] }
cooldown: { backoff_first: 30s, backoff_max: 30m }
schedule:
  - { trigger: { when: "cost > 8.5", on_error: "rate limit" }, action: switch_backend, backend: local }
  - { trigger: { cron: "0 9 * * MON-FRI" }, action: pause, reason: "people are back" }
memory: { summary_interval: 3, share_within_owner: true }
intelligence: full
limits: { cost_usd_per_repository_per_day: 20 }
"#;

#[test]
fn all_backend_keys_are_parsed() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("key"), "k\n").unwrap();
    let config = Config::parse(&folder.path().join("c.yaml"), &file(&EVERYTHING[1..], ""), &env()).expect("valid");
    assert_eq!(config.backends.len(), 6, "one is off");
    let settings = config.backends_settings();
    assert_eq!(settings.in_order(BackendRole::Agent), ["claude", "local", "mine", "router"]);
    assert_eq!(settings.in_order(BackendRole::Assistant), ["router", "helper", "odd"]);
    assert!(settings.validate().iter().all(|problem| problem.message.contains("codex")), "one is off");
    assert_eq!((settings.rotation.mode, settings.rotation.interval), (RotationMode::TimeSliced, Duration::hours(2)));
    assert_eq!(
        (settings.cooldown.backoff_first, settings.cooldown.backoff_max),
        (Duration::seconds(30), Duration::minutes(30))
    );
    let thresholds = settings.thresholds("claude");
    assert_eq!((thresholds.max_requests_per_window, thresholds.window), (Some(50), Duration::hours(5)));
    assert_eq!((thresholds.max_cost_per_hour, thresholds.max_context_pct), (Some(Usd::dollars(5)), 70));

    let claude = &config.backends["claude"];
    let facts = |consec_errors| RuleFacts { consec_errors, ..RuleFacts::default() };
    assert_eq!(claude.rules.choose(&facts(0)).model.as_deref(), Some("sonnet"));
    assert_eq!(claude.rules.choose(&facts(2)).model.as_deref(), Some("opus"));
    assert_eq!(claude.prices.price("gpt-5.2").map(|price| price.output), Some(Money(6_000_000)));
    assert_eq!(claude.prices.price("house-small").map(|price| price.input), Some(Money(0)));
    assert!(claude.prices.price("opus").is_some(), "published prices lie below");
    assert_eq!(claude.settings.context_window, Some(200_000));

    let wires: Vec<_> = ["helper", "router", "local", "odd", "mine"].map(|name| config.backends[name].wire).into();
    use WireName::{Chat, Messages, Responses};
    assert_eq!(wires, [Some(Messages), Some(Responses), Some(Chat), Some(Messages), None]);
    assert_eq!(config.backends["helper"].settings.roles, [BackendRole::Assistant], "it can do nothing else");
    assert_eq!(config.backends["odd"].api_key.as_ref().map(|key| key.expose_secret()), Some("k"));
    assert_eq!(config.backends["mine"].settings.output.as_ref().map(OutputFormatName::as_str), Some("jsonl"));

    assert_eq!(
        (config.memory.summary_interval, config.memory.share_within_owner, config.memory.strategies),
        (3, true, 3)
    );
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
fn omitted_keys_have_their_defaults() {
    let config = parse(SMALL).expect("valid");
    assert_eq!(config.backends_settings().rotation, Default::default());
    assert_eq!(config.memory, MemorySettings::default());
    assert_eq!(config.intelligence, Intelligence::Summaries);
    assert_eq!(config.money, MoneyLimits { per_repository_day: None, per_service_day: Some(Money(50_000_000)) });
    assert!(config.policy(&ForgeName::new("work")).schedule.is_empty());
}

#[test]
fn lowest_daily_limit_applies_to_a_repository() {
    let of = |repository: Option<i64>, service: Option<i64>, file: i64| {
        let limits = MoneyLimits { per_repository_day: repository.map(Money), per_service_day: service.map(Money) };
        limits.of_repository(Money(file)).map(|money| money.0)
    };
    // If the file sets no limit, loops use the operator's limit.
    assert_eq!(of(None, Some(50), 50), None);
    assert_eq!(of(None, Some(50), 20), Some(20));
    assert_eq!(of(Some(30), Some(50), 50), Some(30));
    assert_eq!(of(Some(10), Some(50), 20), Some(10));
    // An operator without a limit.
    assert_eq!(of(None, None, 0), None);
    assert_eq!(of(None, None, 20), Some(20));
    assert_eq!(of(Some(30), None, 0), Some(30));
}

#[test]
fn invalid_rules_report_their_position() {
    insta::assert_snapshot!(problems(&file(
        "  claude:\n    models:\n      default: 'a b'\n      cheap: '-x'\n      rules:\n        - { when: consec_eror >= 2, model: opus }\n        \
         - when: task_type > 3\n          model: opus\n        - { when: cost > , model: ' ' }\n",
        "schedule:\n  - { trigger: {}, action: pause }\n  - { trigger: { when: urgncy > 0.5 }, action: abort }\n  \
         - { trigger: { cron: '61 * * * *' }, action: set_model }\n  \
         - { trigger: { at_iteration: 0 }, action: switch_backend, backend: cloude }\n",
    )), @r"
    conf/ralph-control.yaml:5:16: `backends.claude.models.default`: is not the name of a model; letters, digits and ._-:/@+[] are allowed, and `-` does not come first
    conf/ralph-control.yaml:6:14: `backends.claude.models.cheap`: is not the name of a model; letters, digits and ._-:/@+[] are allowed, and `-` does not come first
    conf/ralph-control.yaml:8:19: `backends.claude.models.rules[0].when`: column 1: there is no `consec_eror`; did you mean `consec_errors`?
    conf/ralph-control.yaml:9:17: `backends.claude.models.rules[1].when`: column 11: `>` cannot take a text and a whole number
    conf/ralph-control.yaml:11:19: `backends.claude.models.rules[2].when`: column 7: is not an expression: mismatched input its end
    conf/ralph-control.yaml:11:35: `backends.claude.models.rules[2].model`: is not the name of a model; letters, digits and ._-:/@+[] are allowed, and `-` does not come first
    conf/ralph-control.yaml:13:16: `schedule[0].trigger`: is empty; set one of when, at_iteration, every_iterations, on_error and cron
    conf/ralph-control.yaml:14:24: `schedule[1].trigger.when`: column 1: there is no `urgncy`; did you mean `urgency`?
    conf/ralph-control.yaml:15:5: `schedule[2].model`: is required by the action set_model
    conf/ralph-control.yaml:15:24: `schedule[2].trigger.cron`: is not a cron pattern of five fields: Component error: Number out of bounds.
    conf/ralph-control.yaml:16:32: `schedule[3].trigger.at_iteration`: is 0; iterations are counted from 1
    conf/ralph-control.yaml:16:70: `schedule[3].backend`: there is no backend `cloude`; did you mean `claude`?
    12 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(problems(&file(
        "  claude: { models: { rules: [{ when: has_error }] } }\n",
        "schedule: [{ action: pause }, { trigger: { whn: x }, action: pausse }]\n",
    )), @r"
    conf/ralph-control.yaml:3:31: `backends.claude.models.rules[0]`: `model` is missing
    conf/ralph-control.yaml:4:12: `schedule[0]`: `trigger` is missing
    conf/ralph-control.yaml:4:44: unknown key `whn` in `schedule[1].trigger`; did you mean `when`?
    conf/ralph-control.yaml:4:62: `schedule[1].action`: unknown value `pausse`; allowed: `pause`, `abort`, `switch_backend`, `set_model`, `escalate`; did you mean `pause`?
    4 errors in the configuration; the command did not run
    ");
}

#[test]
fn priority_rotation_and_cooldown_are_checked() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { thresholds: { max_cost_per_hour: 9, max_cost_per_day: 4, max_context_pct: 0, window: 2d } }\n  \
         helper: { type: api, url: 'https://h.example', models: { default: x } }\n  mine: { type: script, command: [sh], roles: [] }\n",
        "priority: { agent: [cluade, helper, claude, claude] }\n\
         rotation: { mode: round_robbin, interval: 5s, order: [codex] }\n\
         cooldown: { backoff_first: 2h, backoff_max: 1h }\n",
    )), @r"
    conf/ralph-control.yaml:3:46: `backends.claude.thresholds.max_cost_per_hour` is $9.00; it must be at most `backends.claude.thresholds.max_cost_per_day`, which is $4.00
    conf/ralph-control.yaml:3:87: `backends.claude.thresholds.max_context_pct` is 0; it must be between 1 and 100
    conf/ralph-control.yaml:3:98: `backends.claude.thresholds.window` is 2d; it must be between 1s and 1d
    conf/ralph-control.yaml:5:47: `backends.mine.roles` is empty; list `agent`, `assistant`, `reviewer` or several of them
    conf/ralph-control.yaml:6:21: `priority.agent[0]` is `cluade`; there is no such backend; did you mean `claude`?
    conf/ralph-control.yaml:6:29: `priority.agent[1]` is `helper`, which does not have this role
    conf/ralph-control.yaml:6:45: `priority.agent[3]` is `claude`, which is already listed
    conf/ralph-control.yaml:7:19: `rotation.mode`: unknown value `round_robbin`; allowed: `none`, `round_robin`, `time_sliced`; did you mean `round_robin`?
    conf/ralph-control.yaml:7:43: `rotation.interval` is 5s; it must be between 1m and 31d
    conf/ralph-control.yaml:7:55: `rotation.order[0]` is `codex`; there is no such backend
    conf/ralph-control.yaml:8:28: `cooldown.backoff_first` is 2h; it must be at most `cooldown.backoff_max`, which is 1h
    11 errors in the configuration; the command did not run
    ");
}

#[test]
fn prices_memory_and_cost_limits_are_range_checked() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { prices: { gpt-5.2: { input: -1, output: 6 }, 'x[1m]': { input: 1, output: 1e9 }, y: { input: 1 } } }\n",
        "memory: { summary_interval: 10000, enabled: maybe }\n\
         limits: { cost_usd: 10, cost_usd_per_repository_per_day: 5 }\n",
    )), @r"
    conf/ralph-control.yaml:3:41: `backends.claude.prices.gpt-5.2.input` is -1; 0 to 10000 dollars per million tokens are allowed
    conf/ralph-control.yaml:3:87: `backends.claude.prices.x[1m].output` is 1000000000; 0 to 10000 dollars per million tokens are allowed
    conf/ralph-control.yaml:3:97: `backends.claude.prices.y`: `output` is missing
    conf/ralph-control.yaml:4:29: `memory.summary_interval` is 10000; it must be between 1 and 1000
    conf/ralph-control.yaml:4:45: `memory.enabled`: expected true or false, found text
    conf/ralph-control.yaml:5:21: `limits.cost_usd` is $10.00; it must be at most `limits.cost_usd_per_repository_per_day`, which is $5.00
    6 errors in the configuration; the command did not run
    ");
    insta::assert_snapshot!(
        problems(&format!("{SMALL}limits: {{ cost_usd_per_repository_per_day: 60 }}\nintelligence: most\n")),
        @r"
    conf/ralph-control.yaml:4:44: `limits.cost_usd_per_repository_per_day` is $60.00; it must be at most `limits.cost_usd_per_day`, which is $50.00
    conf/ralph-control.yaml:5:15: `intelligence`: unknown value `most`; allowed: `off`, `facts`, `summaries`, `full`
    2 errors in the configuration; the command did not run
    "
    );
    insta::assert_snapshot!(problems(&format!("{SMALL}limits: {{ cost_usd_per_repository_per_day: 0 }}\n")), @r"
    conf/ralph-control.yaml:4:44: `limits.cost_usd_per_repository_per_day` is $0.00; it must be at least $0.000001
    conf/ralph-control.yaml:4:44: `limits.cost_usd` is $10.00; it must be at most `limits.cost_usd_per_repository_per_day`, which is $0.00
    2 errors in the configuration; the command did not run
    ");
}

#[test]
fn context_keys_are_range_checked() {
    let context = "{ enabled: false, model: haiku, summary_model: sonnet, max_output_tokens: 900, budget_pct: 2.5 }";
    let read = parse(&format!("{SMALL}context: {context}\n")).expect("valid").context;
    assert_eq!(
        (read.enabled, read.model.as_deref(), read.summary_model.as_deref()),
        (false, Some("haiku"), Some("sonnet"))
    );
    assert_eq!((read.max_output_tokens, read.budget_pct), (900, 2.5));
    insta::assert_snapshot!(
        problems(&format!("{SMALL}context: {{ model: '-x', max_output_tokens: 20, budget_pct: 80, sumary_model: x }}\n")),
        @r"
    conf/ralph-control.yaml:4:19: `context.model` is not the name of a model; letters, digits and ._-:/@+[] are allowed, and `-` does not come first
    conf/ralph-control.yaml:4:44: `context.max_output_tokens` is 20; it must be between 100 and 20000
    conf/ralph-control.yaml:4:60: `context.budget_pct` is 80; it must be between 0.1 and 50
    conf/ralph-control.yaml:4:64: unknown key `sumary_model` in `context`; did you mean `summary_model`?
    4 errors in the configuration; the command did not run
    "
    );
}

#[test]
fn backend_keys_without_effect_are_refused() {
    insta::assert_snapshot!(problems(&file(
        "  claude: { url: 'https://x.example', wire: chat, api_key_env: T, roles: [agent, assistant], session_files: [.x, ../y, /z, ''], images: true }\n  \
         own: { type: internal, command: [x], args: [y], output: text, stdin: none, session_files: [z] }\n  \
         ask: { type: api, url: 'https://x.example', models: { default: x }, roles: [agent], wire: chats, context_window: 5 }\n",
        "",
    )), @r"
    conf/ralph-control.yaml:3:18: `backends.claude.url`: has no effect on a command; pass its key with `env`
    conf/ralph-control.yaml:3:45: `backends.claude.wire`: has no effect on a command; pass its key with `env`
    conf/ralph-control.yaml:3:64: `backends.claude.api_key_env`: has no effect on a command; pass its key with `env`
    conf/ralph-control.yaml:3:114: `backends.claude.session_files[1]`: `../y` is not a path within the home folder, such as `.tool/sessions`
    conf/ralph-control.yaml:3:120: `backends.claude.session_files[2]`: `/z` is not a path within the home folder, such as `.tool/sessions`
    conf/ralph-control.yaml:3:124: `backends.claude.session_files[3]`: `` is not a path within the home folder, such as `.tool/sessions`
    conf/ralph-control.yaml:3:137: `backends.claude.images`: has no effect on a command, which gets images as files; it is for `type: internal`
    conf/ralph-control.yaml:4:8: `backends.own`: `models.default` is missing; an HTTP API has no default model
    conf/ralph-control.yaml:4:35: `backends.own.command`: has no effect with `type: internal`, which runs no command; remove it
    conf/ralph-control.yaml:4:46: `backends.own.args`: has no effect with `type: internal`, which runs no command; remove it
    conf/ralph-control.yaml:4:59: `backends.own.output`: has no effect with `type: internal`, which runs no command; remove it
    conf/ralph-control.yaml:4:72: `backends.own.stdin`: has no effect with `type: internal`, which runs no command; remove it
    conf/ralph-control.yaml:4:93: `backends.own.session_files`: has no effect with `type: internal`, which runs no command; remove it
    conf/ralph-control.yaml:5:93: `backends.ask.wire`: unknown value `chats`; allowed: `messages`, `responses`, `chat`; did you mean `chat`?
    conf/ralph-control.yaml:5:116: `backends.ask.context_window` is 5; it must be between 4000 and 100000000
    15 errors in the configuration; the command did not run
    ");
    let key = file("  own: { type: internal, url: 'http://x', models: { default: x }, api_key: hunter2 }\n", "");
    let told = problems(&key);
    assert!(told.contains("api_key_env") && !told.contains("hunter2"), "{told}");
}

#[test]
fn hidden_keys_need_variable_and_address() {
    let backends = "  codex: { hide_keys: false, keys: { A: B } }\n  \
         own: { type: script, command: [x], env: [K, T], keys: { K: T, U: T } }\n  \
         ask: { type: api, url: 'https://x.example', models: { default: x }, hide_keys: false, keys: { A: B } }\n";
    insta::assert_snapshot!(problems(&file(backends, "")), @r"
    conf/ralph-control.yaml:3:36: `backends.codex.keys`: has no effect because `hide_keys` is false; remove one of them
    conf/ralph-control.yaml:3:41: `backends.codex.keys.A`: `A` is not in `env`, so the command does not get it
    conf/ralph-control.yaml:3:41: `backends.codex.keys.A`: `B` is not in `env`, so the command does not get it
    conf/ralph-control.yaml:4:62: `backends.own.keys.K`: `T` does not contain an address such as `https://example.org/v1`
    conf/ralph-control.yaml:4:68: `backends.own.keys.U`: `U` is not in `env`, so the command does not get it
    conf/ralph-control.yaml:4:68: `backends.own.keys.U`: `T` does not contain an address such as `https://example.org/v1`
    conf/ralph-control.yaml:5:82: `backends.ask.hide_keys`: has no effect with `type: api`, which runs no command; remove it
    conf/ralph-control.yaml:5:95: `backends.ask.keys`: has no effect with `type: api`, which runs no command; remove it
    8 errors in the configuration; the command did not run
    ");
    let text = file("  own: { type: script, command: [x], env: [S, KEY_URL], keys: { S: KEY_URL } }\n", "");
    let unset = with_env(&text, &[]).expect_err("nobody knows where the model is").to_string();
    assert!(
        unset.contains("`backends.own.keys.S`: `KEY_URL` is not set; set it to the address of the model"),
        "{unset}"
    );
    let config = with_env(&text, &[("KEY_URL", "http://models.lan:8080/v1")]).expect("valid");
    assert_eq!(config.backends["own"].settings.keys["S"], "KEY_URL");
    assert!(config.backends["own"].settings.hide_keys);
}

#[test]
fn repository_can_only_lower_intelligence() {
    let operator = parse(SMALL).expect("valid").policy(&ForgeName::new("work"));
    let lowered = parse_repository(".ralph.yml", "intelligence: off\n", &operator).expect("valid");
    assert_eq!(operator.with_repository(&lowered).intelligence, Intelligence::Off);
    let raised = parse_repository(".ralph.yml", "intelligence: full\n", &operator).expect("valid");
    assert_eq!(operator.with_repository(&raised).intelligence, Intelligence::Summaries);
    assert_eq!(operator.overruled(&raised).len(), 1);
    insta::assert_snapshot!(repository_problems("schedule: []\nmemory: {}\nbackends: {}\n"), @r"
    .ralph.yml:1:1: unknown key `schedule`
    .ralph.yml:2:1: unknown key `memory`
    .ralph.yml:3:1: unknown key `backends`; did you mean `base`?
    ");
}

#[test]
fn reference_lists_all_names_of_conditions() {
    let page = reference::configuration();
    let section =
        page.split("## Conditions").nth(1).and_then(|rest| rest.split("## Values").next()).expect("a section");
    let first_cells = section.lines().filter_map(|line| line.strip_prefix("| `")?.split(" | ").next());
    let names: Vec<&str> = first_cells
        .flat_map(|cell| cell.split(|c: char| !c.is_ascii_lowercase() && c != '_'))
        .filter(|name| !name.is_empty())
        .collect();
    assert_eq!(names.len(), 19, "{names:?}");
    for name in &names {
        let rule = CompiledCondition::compile(&format!("{name} == {name}"), "when");
        assert!(rule.is_ok(), "{name}: {rule:?}");
    }
    for example in ["consec_errors >= 2 && cost < 8", r#"task_type in ["lint", "docs"] || urgency == "critical""#] {
        assert!(section.contains(example) && CompiledCondition::compile(example, "when").is_ok(), "{example}");
    }
}

#[test]
fn old_keys_are_read_with_a_warning() {
    let old = file("  claude: {}\n  codex: {}\n", "order: { agent: [codex] }\nparking: { backoff_first: 2m }\n");
    let config = with_env(&old, &[("RALPH_PARKING__BACKOFF_MAX", "2h")]).expect("valid");
    let settings = config.backends_settings();
    assert_eq!(settings.in_order(BackendRole::Agent), ["codex", "claude"]);
    assert_eq!(
        (settings.cooldown.backoff_first, settings.cooldown.backoff_max),
        (Duration::minutes(2), Duration::hours(2))
    );
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    ralph-control.yaml:5:1: `order` is now called `priority`; rename it, the old name is read until version 1.0
    ralph-control.yaml:6:1: `parking` is now called `cooldown`; rename it, the old name is read until version 1.0
    environment variable RALPH_PARKING__BACKOFF_MAX: `parking` is now called `cooldown`; rename it, the old name is read until version 1.0
    ");
    let new = file("  claude: {}\n", "priority: { agent: [claude] }\ncooldown: { backoff_first: 2m }\n");
    assert_eq!(parse(&new).expect("valid").warnings, []);
}

#[test]
fn removed_rotation_mode_and_its_key_are_read_with_a_warning() {
    let old = file("  claude: {}\n", "rotation: { mode: adaptive, interval: 2h, iteration_cost: 0.25 }\n");
    let config = with_env(&old, &[("RALPH_ROTATION__ITERATION_COST", "0.5")]).expect("valid");
    let rotation = config.backends_settings().rotation;
    assert_eq!((rotation.mode, rotation.interval), (RotationMode::None, Duration::hours(2)));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    insta::assert_snapshot!(warnings.join("\n"), @r"
    ralph-control.yaml:4:19: `rotation.mode`: `adaptive` no longer exists and is read as `none`; choose another value
    ralph-control.yaml:4:43: `rotation.iteration_cost` no longer has an effect; remove it
    environment variable RALPH_ROTATION__ITERATION_COST: `rotation.iteration_cost` no longer has an effect; remove it
    ");
}

#[test]
fn old_key_beside_its_new_name_is_refused() {
    insta::assert_snapshot!(problems(&file("  claude: {}\n", "order: { agent: [x] }\npriority: { agent: [claude] }\n")), @r"
    conf/ralph-control.yaml:4:1: `order` is the old name of `priority`, which is also set; keep `priority`
    1 error in the configuration; the command did not run
    ");
}

#[test]
fn command_with_acp_rejects_input_and_format() {
    let text = |rest: &str| file(&format!("  goose: {{ type: acp, command: [goose, acp]{rest} }}\n"), "");
    let config = Config::parse(Path::new("conf/ralph-control.yaml"), &text(""), &env()).expect("valid");
    assert_eq!(config.backends["goose"].settings.kind, Some(BackendType::Acp));
    let wrong = problems(&text(", stdin: none, output: jsonl"));
    assert!(wrong.contains("`backends.goose.stdin`: has no effect") && wrong.contains("2 errors in"), "{wrong}");
}

#[test]
fn documentation_names_no_old_keys() {
    let page = reference::configuration();
    assert!(page.contains("### `priority`\n") && page.contains("### `cooldown`\n"));
    assert!(!page.contains("### `order`") && !page.contains("parking"));
}

/// Sample configuration with every backend key; the built-in agent has no address.
const FULL_SAMPLE: &str = include_str!("../../../../../tests/fixtures/full-sample.yaml");

#[test]
fn full_sample_is_read_and_has_an_assistant() {
    let text = file(FULL_SAMPLE, "");
    let config = Config::parse(Path::new("conf/ralph-control.yaml"), &text, &env()).expect("valid");
    assert_eq!(config.backends.keys().collect::<Vec<_>>(), ["claude", "kimi"]);
    // The models of `claude` name `haiku`, which writes the context block and the summaries.
    assert_eq!(config.assistant, Some(AssistantChoice { backend: "claude".into(), model: None }));
    assert_eq!(config.backends["claude"].settings.roles, [BackendRole::Agent, BackendRole::Assistant]);
    assert_eq!(config.backends_settings().in_order(BackendRole::Assistant), ["claude"]);
    assert_eq!(config.intelligence, Intelligence::Summaries);
    assert_eq!(config.backends["kimi"].settings.command, ["kimi"]);
    assert_eq!(config.context.model.as_deref(), Some("haiku"));
    assert_eq!(config.context.summary_model.as_deref(), Some("haiku"));
    assert_eq!((config.context.max_output_tokens, config.retention.days), (500, 45));
    let warnings: Vec<String> = config.warnings.iter().map(ToString::to_string).collect();
    assert!(warnings.iter().any(|text| text.contains("`context_processing` is now called `context`")), "{warnings:?}");
    assert!(warnings.iter().any(|text| text.contains("`backends.buckley`: is not used, because `url` is missing")));
    assert!(!warnings.iter().any(|text| text.contains("has no effect")), "{warnings:?}");
    for moved in [
        "`memory.summary_model` is now called `context.summary_model`",
        "`memory.retention_days` is now called `retention.days`",
    ] {
        assert!(warnings.iter().any(|text| text.contains(moved)), "{warnings:?}");
    }
    let config = with_env(&text.replace("  retention_days: 45\n", ""), &[("RALPH_MEMORY__RETENTION_DAYS", "60")]);
    assert_eq!(config.expect("valid").retention.days, 60);
}

#[test]
fn settings_of_unused_models_cause_a_warning() {
    let warnings = |text: &str| {
        let config = parse(&format!("{SMALL}{text}")).expect("valid");
        config.warnings.iter().map(|warning| warning.message.clone()).collect::<Vec<_>>()
    };
    let no_backend = "`context.model`: has no effect, because no backend answers questions; set `assistant.backend`";
    assert_eq!(warnings("context: { model: haiku }\n"), [no_backend]);
    let facts = |key: &str| {
        format!("`{key}`: has no effect, because `intelligence` asks no models; set `intelligence: summaries`")
    };
    assert_eq!(
        warnings(
            "intelligence: facts\ncontext: { summary_model: haiku }\nassistant: { backend: claude, model: haiku }\n"
        ),
        [facts("assistant.backend"), facts("assistant.model"), facts("context.summary_model")]
    );
    assert_eq!(warnings("context: { model: haiku }\nassistant: { backend: claude }\n"), [""; 0]);
    assert_eq!(
        warnings("intelligence: fallback\n"),
        ["`intelligence`: `fallback` no longer exists and is read as `facts`; choose another value"]
    );
}

#[test]
fn assistant_is_any_backend_and_is_asked_first() {
    let text = file(
        "  claude: {}\n  helper: { type: api, url: 'https://h.example', models: { default: x } }\n",
        "assistant: { backend: claude, model: haiku }\npriority: { assistant: [helper] }\n",
    );
    let config = parse(&text).expect("valid");
    assert_eq!(config.assistant, Some(AssistantChoice { backend: "claude".into(), model: Some("haiku".into()) }));
    assert_eq!(config.backends_settings().in_order(BackendRole::Assistant), ["claude", "helper"]);
    let wrong = problems(&text.replace("backend: claude, model: haiku", "backend: cluade, model: 'a b'"));
    assert!(wrong.contains("`assistant.backend`: there is no backend `cluade` in `backends`; did you mean `claude`?"));
    assert!(wrong.contains("`assistant.model`"), "{wrong}");
}

#[test]
fn moved_key_that_is_set_twice_is_an_error() {
    let text =
        file("  claude: { enabled: true }\nmemory: { summary_model: haiku }\ncontext: { summary_model: opus }\n", "");
    let wrong = problems(&text);
    assert!(wrong.contains("`memory.summary_model` is the old name of `context.summary_model`"), "{wrong}");
}

#[test]
fn command_with_blanks_stays_an_error() {
    let wrong = problems(&file("  mine: { type: script, command: \"agent --fast\" }\n", ""));
    assert!(wrong.contains("`backends.mine.command`: expected a list"), "{wrong}");
}

#[test]
fn keys_are_found_in_the_mapping_only() {
    for (text, found) in [
        ("forges: [{ name: work }]\n", true),
        ("{ \"forges\": [] }", true),
        ("# no forges here\nbackends: { claude: {} }\n", false),
        ("backends:\n  mine: { forges: x }\n", false),
        ("forges:\n", false),
        ("]", false),
    ] {
        assert_eq!(Config::has_key(text, "forges"), found, "{text}");
    }
}
