//! Page about a simulation: targets, results, assumptions, and the defaults changed because of the results.

use std::fmt::Write as _;

use ralph_bot::domain::supervision::{SupervisionPreset, SupervisionSettings};
use serde_json::Value;

use super::{MixFigures, OURS, SimulateArgs, about, interval, percent, simulate_mix};
use crate::tasks::{Mix, PolicyFigures, ProgressModel, ReleaseChances, TaskKind};

/// Policies that the pipeline must beat.
const RIVALS: [&str; 2] = ["stall rule", "Luby restarts"];

/// Name of the policy that serves as an upper bound.
const BOUND: &str = "all seen, three late";

/// Maximum share of healthy loops that a mix may disturb.
const DISTURBED: f64 = 0.02;

const HEAD: &str = "\
A simulated random agent works on many tasks. Every policy runs each task with the same random numbers. The policy \"ours\" is the pipeline of
real loops (`domain/supervision`) on the records of the simulated agent. A simulation shows the consequences of its assumptions, not the
behavior of real agents.

The agent's behavior was fixed before the tuning of the thresholds. The oracle and the unit of the Luby restarts were corrected after first runs.
The tuning used other seeds and the mixes `everyday`, `rough`, `bleak` and `drawn-101` to `drawn-112`. A drawn mix multiplies every
weight, probability and value of `everyday` by a random factor (log-normal, sigma 0.5). The figures of `drawn-201` to `drawn-212`,
`gentle`, `hopeless` and `shifty` were known during tuning. `drawn-28` to `drawn-33` ran once, after the tuning, with these defaults;
they replace `drawn-1` to `drawn-27` of earlier versions of this page.

The tasks of a mix are consecutive loops of one repository. From the second loop on, `ours` uses the records of earlier loops
(`domain/supervision/experience.rs`). In `ours, no earlier loops` each loop is the first. Ten earlier loops provide most of the benefit;
the service keeps fifty.";

const MODEL: &str = "\
- A task has a number of tests. An agent without obstacles makes progress in most iterations, at rates that differ between tasks and
  iterations. Tests and agent runs sometimes fail by chance.
- An agent may meet an obstacle: a wall (the same error after every attempt), drift (other work), silence (no changes), crashes, a seesaw
  (each change fixes one test and breaks another), rot (changes break more than they fix) or a shortcut (weakened checks). An obstacle
  lasts until an intervention or chance ends it, with the probabilities in the table below. Another obstacle may follow.
- If an agent without obstacles is warned, redirected or restarted, it loses part of its next iteration.
- A person gives guidance, recognizes a hopeless task, or does not answer, which ends the loop. A loop that asks too often ends.
- Effort is a factor for the time and turns of a run. Progress, and the rate at which obstacles end, grow with its square root. Half of the cost of
  a usual iteration is proportional to effort; the rest (reading, checks) is fixed. With these shares, the usual effort is the best constant
  effort, so an actuator gains only by choosing the right iterations. Before, the rate at which obstacles end did not depend on effort, so that any
  saving in a stuck loop was free. The strong model is slightly faster and costs twice as much.
- Policies see only the records. The oracle knows the obstacles, intervenes immediately, and starts no task that is hopeless or exceeds the
  limit. No real policy can reach its value.";

/// Interpretation of the results.
const READING: &str = "\
- These rules gain most: the service detects weakened checks; it does not measure iterations with weakened checks; it redirects a loop up to three
  times if the loop stalls for longer than its rate of progress explains.
- A loop continues to its limits by default, because a person who sets a limit expects that the loop uses it. `strategy.outlook.enabled: true` lets a loop
  give up if the remaining work is not worth its likely cost. `ours, giving up` and the row `with giving up` show the gain.
- Earlier loops show how often loops of the repository stall and how fast they progress. This halves the share of disturbed healthy
  loops. Simulated repositories do not change. Real repositories change, so the service uses only the last fifty loops.
- Resolved problems do not count: oscillation counts only with the latest iteration, and lost tests only until they return.
- In the model, weakened checks always appear as skipped tests. In real loops they do not, so these detect fewer false completions.
- Some mixes miss the target of 80 %, and some cannot reach it. `all seen, three late` knows obstacles and rates with certainty, three
  iterations late. The difference between `ours` and this bound is the cost of estimation. The difference between the bound and the oracle
  is the cost of starting a task.
- Iterations on a hopeless task cannot fall to six: the wall appears after three to five, looks like a plateau for three more, and only
  attempts show whether another approach overcomes it.
- If healthy loops are slow and uneven, `ours` misses the target for disturbed loops. A standstill chance of 0
  disturbs fewer loops and closes less of the gap.
- After three redirects, questions to people often cost more than they gain here. The service asks nevertheless, because real people know more
  than the model.
- If no check counts its tests, completion is 0 or 100 %. In such loops a new error counts as progress.
- PID control alone gains little: u and I are high in the middle of every longer task, so an actuator that follows them changes most runs of healthy
  loops. The overseer's interventions are rarer and mostly right. Effort and breadth follow them by default. Effort gains only if obstacles end
  sooner with more effort (see the row `more effort does not end obstacles sooner`), and costs value where interventions often hit healthy
  loops, as in `drawn-30`. The gain of breadth is too small to show in 1,000 tasks. Model, memory share and tone follow the signal, and are off
  by default. They did not pay on interventions either: the strong model costs twice as much and rarely ends an obstacle; memory slows the agent
  after the obstacle.
- The conformal step count keeps its promise within the noise, but gains little: the longest usual loops take nearly as many iterations as the
  limit. With our detections on top it costs value on most mixes, because it also cuts off slow loops that would finish.
- The pauses of strategy gain almost no value, because the overseer asks first. Detections with a value of about 0 are still useful:
  the model has no loops that waste money, and few that leave their task.";

const POLICIES: &str = "\
- `limit of 5`, `10`, `25`: continue until the checks pass, at most this many iterations. No policy may take more than 25.
- `the agent's claim`: continue until the agent reports completion.
- `stall rule`: after three iterations without improvement a fresh session, then a question, then the end. Two, four and five iterations
  were no better on the tuned mixes.
- `Luby restarts`: fresh sessions after 1, 1, 2, 1, 1, 2, 4, ... times three iterations, without loss of work.
- `conformal step count`: the first 50 finished loops calibrate a limit: the ceil((n + 1) 0.95)-th smallest of their n numbers of iterations.
  It promises to cut off at most 5 % of the loops that would finish. Until then, the limit is 25. Later loops do not calibrate, because the limit
  would cut them off and lower itself. All loops have one repository and one task type. A healthy loop that the limit cuts off counts as disturbed.
- `ours, conformal step count`: `ours` with this limit.
- `ours`: the defaults of this version. The end of a loop at its limit does not count as a question.
- `ours, no earlier loops`: the same, but each loop is the first of its repository.
- `ours, giving up`: the same with `strategy.outlook.enabled: true` and the real value of a finished task (`strategy.outlook.task_value`). A loop
  that gives up ends like a loop at its limit.
- `all seen, three late`: an upper bound. It knows obstacles after three iterations, redirects up to three times in a row, asks a person
  once, and ends; it also ends if the rest exceeds the limit or its value.

The function of real loops measures completion (`CheckReport::completion`). At the start, build and lint pass, and all tests fail.

The unit of value is a usual iteration. The value of a loop is the value of a finished task, minus the cost of its iterations, questions to people, and
a penalty for a false completion. The gap is the difference in value between a limit of ten iterations and the oracle. A healthy loop has no obstacles and
would finish within the limit; it counts as disturbed if it was warned, redirected, restarted, paused or given up. Loops without obstacles
that would not finish within the limit are counted separately. Intervals are 95 %: normal distribution for means, bootstrap over tasks for ratios;
`±` is half of their width.";

/// Reasons for the defaults that differ from the preset `pinned`, by key.
const REASONS: [(&str, &str); 31] = [
    (
        "control.windup_guard",
        "The integral term is high in the middle of every longer task and signals trouble only without progress.",
    ),
    ("oversight.stuck.limit_share", "A count of ten never applies in a loop of ten iterations. The simulation has 25."),
    (
        "strategy.limit_share",
        "Twelve iterations without progress never happen in a loop of ten. The simulation has 25.",
    ),
    (
        "control.actuators.cause",
        "The signal was near 1 for most of a loop, so each run got one and a half times the budget. More effort pays while an obstacle blocks progress, which the overseer's interventions show.",
    ),
    (
        "control.actuators.model.enabled",
        "Almost every run used the strong model. This pays only if its speed exceeds its cost.",
    ),
    (
        "control.actuators.breadth.one_change",
        "A narrow iteration ends a seesaw; in regressing loops it slows the agent as much as it helps.",
    ),
    (
        "control.actuators.tone.enabled",
        "The signal is high for most of a healthy loop, so nearly every prompt was urgent.",
    ),
    ("control.actuators.memory.enabled", "It follows the integral term, which grows in healthy loops too."),
    ("oversight.climb_after", "The effect of an intervention shows in the next iteration; a wait for two costs one."),
    (
        "oversight.redirects",
        "Another approach is cheaper than a question to a person, and often succeeds after earlier approaches failed.",
    ),
    ("oversight.min_progress", "One test of many is progress."),
    ("oversight.stuck.window", "A different error between two equal ones does not hide a wall."),
    ("oversight.stuck.progress_window", "Two more iterations distinguish a plateau of a healthy loop from a wall."),
    (
        "oversight.stuck.same_error_count",
        "Healthy loops repeat an error a few times; `standstill_chance` finds unusual standstills sooner.",
    ),
    ("oversight.stuck.critical_error_count", "It should pause a loop only after its redirects."),
    (
        "oversight.stuck.no_progress_iterations",
        "Healthy loops stall for some iterations; `standstill_chance` detects unusual standstills.",
    ),
    (
        "oversight.stuck.standstill_chance",
        "This compares a loop with its own rate of progress. Three iterations without progress are usual only in an uneven loop.",
    ),
    ("oversight.stuck.same_reflection_count", "Reflections repeat on short plateaus."),
    ("oversight.stuck.alarm_signals", "The alarm treats a plateau of three iterations as critical."),
    (
        "oversight.oscillation.tree_returns",
        "An equal tree is certain at its second occurrence; the first return only warns.",
    ),
    ("oversight.oscillation.critical_tree_returns", "An agent that repeats trees after a REDIRECT moves in a circle."),
    ("oversight.oscillation.critical_cycles", "It should pause a loop only after its redirects."),
    (
        "oversight.oscillation.trend_turns",
        "A single tool error reverses the proportional term; completion has to reverse as well.",
    ),
    ("oversight.oscillation.min_swing", "One or two tests that fail by chance are not an oscillation."),
    ("oversight.oscillation.sign_changes", "Chance failures reverse completion in healthy loops as well."),
    ("oversight.test_tampering.skipped", "The counts show newly skipped tests, even if the change does not."),
    (
        "oversight.test_tampering.repeats",
        "Agents restore checks after the second or third warning; a person costs more.",
    ),
    ("oversight.resource_burn.alarm_below", "A late loop that improves continues to its limits."),
    ("strategy.outlook.guided_iterations", "With the outlook, the loop does not ask again if a person could not help."),
    ("strategy.escalation_threshold", "It should come after the overseer's redirects."),
    ("strategy.budget_critical", "A pause shortly before the limit saves little and stops slow loops."),
];

/// Renders the page.
pub(super) fn markdown(args: &SimulateArgs, mixes: &[MixFigures], settings: &SupervisionSettings) -> String {
    let mut page = String::from("# Simulation\n\n");
    let mix_arguments: String = args.mix.iter().map(|mix| format!(" --mix {mix}")).collect();
    let _ = writeln!(
        page,
        "Written by `cargo run --release -p lab -- simulate --tasks {} --seed {}{mix_arguments} --markdown docs/research/simulation.md`; do not edit. The same \
         command gives the same figures on any machine.\n\n{HEAD}\n",
        args.tasks, args.seed
    );
    targets(&mut page, mixes);
    for mix in mixes {
        mix_figures(&mut page, mix);
    }
    parts(&mut page, mixes);
    sensitivity(&mut page, args, settings);
    let _ = writeln!(page, "## Interpretation\n\n{READING}\n");
    let _ = writeln!(page, "## The model\n\n{MODEL}\n\n{POLICIES}\n");
    assumptions(&mut page);
    changed_defaults(&mut page);
    page
}

fn of<'a>(mix: &'a MixFigures, policy: &str) -> Option<&'a PolicyFigures> {
    mix.policies.iter().find(|figures| figures.policy == policy)
}

/// Appends the targets, and whether each mix meets them.
fn targets(page: &mut String, mixes: &[MixFigures]) {
    page.push_str("## Targets\n\n| target |");
    page.push_str(&mixes.iter().map(|mix| format!(" {} |", mix.mix)).collect::<String>());
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(mixes.len()));
    page.push('\n');
    let mut row = |target: &str, judge: &dyn Fn(&MixFigures) -> Option<(bool, String)>| {
        let cell = |mix: &MixFigures| match judge(mix) {
            Some((true, figure)) => format!(" met: {figure} |"),
            Some((false, figure)) => format!(" **missed**: {figure} |"),
            None => " |".to_owned(),
        };
        let _ = writeln!(page, "| {target} |{}", mixes.iter().map(cell).collect::<String>());
    };
    row("at least 80 % of the gap closed", &|mix| {
        let gap = of(mix, OURS)?.gap;
        Some((gap.value >= 0.8, interval(gap)))
    });
    for rival in RIVALS {
        row(&format!("ahead of {rival}"), &|mix| {
            let (ours, theirs) = (of(mix, OURS)?.gap, of(mix, rival)?.gap);
            Some((
                ours.value > theirs.value,
                format!("{:.0} % against {:.0} %", ours.value * 100.0, theirs.value * 100.0),
            ))
        });
    }
    let fewer = |figure: fn(&PolicyFigures) -> f64| {
        move |mix: &MixFigures| {
            let (ours, ten) = (figure(of(mix, OURS)?), figure(of(mix, "limit of 10")?));
            (ten > 0.0).then(|| {
                (ours <= 0.6 * ten, format!("{ours:.1} against {ten:.1} ({:+.0} %)", (ours / ten - 1.0) * 100.0))
            })
        }
    };
    row(
        "40 % fewer iterations per task on tasks that are not done than with a limit of 10",
        &fewer(|f| f.wasted.value),
    );
    row("40 % fewer iterations per hopeless task", &fewer(|f| f.hopeless.value));
    row("no fewer tasks done than with a limit of 10", &|mix| {
        let (ours, ten) = (of(mix, OURS)?.done, of(mix, "limit of 10")?.done);
        Some((ours.value >= ten.value, format!("{} against {}", percent(ours), percent(ten))))
    });
    row("at most 2 % of healthy loops disturbed", &|mix| {
        let disturbed = of(mix, OURS)?.disturbed;
        Some((disturbed.value <= DISTURBED, percent(disturbed)))
    });
    row(&format!("90 % of what `{BOUND}` closes"), &|mix| {
        let ours = of(mix, OURS)?.gap.value;
        let bound = of(mix, BOUND)?.gap.value;
        (bound > 0.0).then(|| (ours >= 0.9 * bound, format!("{:.0} %", ours / bound * 100.0)))
    });
    let undisturbed = |mix: &&MixFigures| of(mix, OURS).is_some_and(|ours| ours.disturbed.value <= DISTURBED);
    let calm = mixes.iter().filter(undisturbed).count();
    let is_met = calm * 10 >= mixes.len() * 9;
    row("at most 2 % of healthy loops disturbed on 9 of 10 mixes", &|mix| {
        let first = mixes.first().filter(|first| std::ptr::eq(*first, mix));
        first.map(|_| (is_met, format!("{calm} of {}", mixes.len())))
    });
    let bound = |mix: &MixFigures| of(mix, BOUND).map(|figures| interval(figures.gap)).unwrap_or_default();
    let bounds: String = mixes.iter().map(|mix| format!(" {} |", bound(mix))).collect();
    let _ = writeln!(page, "| for comparison, the gap that `{BOUND}` closes |{bounds}");
    page.push('\n');
}

fn mix_figures(page: &mut String, mix: &MixFigures) {
    let _ = writeln!(
        page,
        "## {}\n\n{} tasks.\n\n| policy | done | falsely done | value per task | iterations per task done | cost per task done | iterations per hopeless task | iterations on tasks not done, per task | healthy loops disturbed | including slow ones | questions per task | gap closed |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
        mix.mix, mix.tasks
    );
    for figures in &mix.policies {
        page.push_str(&policy_row(figures));
        page.push('\n');
    }
    page.push('\n');
}

/// Returns the row of a policy in the table of a mix.
pub(super) fn policy_row(figures: &PolicyFigures) -> String {
    format!(
        "| {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} | {} |",
        figures.policy,
        percent(figures.done),
        percent(figures.false_done),
        about(figures.worth, 2),
        about(figures.iterations_each, 1),
        about(figures.cost_each, 1),
        about(figures.hopeless, 1),
        about(figures.wasted, 2),
        percent(figures.disturbed),
        percent(figures.disturbed_of_all),
        about(figures.asked, 2),
        interval(figures.gap),
    )
}

/// Appends the value of each part in each mix.
fn parts(page: &mut String, mixes: &[MixFigures]) {
    page.push_str(
        "## Value of each part\n\nEach figure is the increase of the value per task by one part, in usual iterations, paired by task. A negative part costs more than it gains. The simulation removes parts that are enabled by default and adds others, one at a time. `with the usual iterations`: twice an estimate of the iterations (5 here) counts as resource burn; with a limit of 25 this disturbs slow loops, so real loops use their limit until earlier loops are known. `without interventions as the actuators' cause`: effort and breadth follow the control signal and the profile, as in `pinned`. `the same without forecast` is compared with the row above it.\n\n| ours |",
    );
    page.push_str(&mixes.iter().map(|mix| format!(" {} |", mix.mix)).collect::<String>());
    page.push_str("\n|---|");
    page.push_str(&"---|".repeat(mixes.len()));
    page.push('\n');
    for (at, part) in mixes.first().map(|mix| &mix.parts).into_iter().flatten().enumerate() {
        let _ = write!(page, "| {} |", part.figures.policy);
        for brings in mixes.iter().filter_map(|mix| Some(mix.parts.get(at)?.brings)) {
            let _ = write!(page, " {:+.2} ({:+.2} to {:+.2}) |", brings.value, brings.low, brings.high);
        }
        page.push('\n');
    }
    page.push('\n');
}

/// Appends the results under other assumptions.
fn sensitivity(page: &mut String, args: &SimulateArgs, settings: &SupervisionSettings) {
    page.push_str(
        "## Other assumptions\n\nThe table shows the closed share of the gap in the mix `everyday`, unchanged and with one changed assumption. `preset pinned` is the pipeline with the preset `pinned`: the thresholds before tuning, and every actuator enabled.\n\n| assumption | stall rule | Luby restarts | ours | preset pinned |\n\
         |---|---|---|---|---|\n",
    );
    let mix = Mix::default();
    let variants = std::iter::once(("unchanged", mix.clone())).chain(mix.variants());
    for (name, mix) in variants {
        let tuned = simulate_mix(&mix, settings, args.seed, args.tasks, false);
        let seed =
            simulate_mix(&mix, &SupervisionSettings::of(SupervisionPreset::Pinned), args.seed, args.tasks, false);
        let gap = |mix: &MixFigures, policy| of(mix, policy).map(|f| interval(f.gap)).unwrap_or_default();
        let _ = writeln!(
            page,
            "| {name} | {} | {} | {} | {} |",
            gap(&tuned, RIVALS[0]),
            gap(&tuned, RIVALS[1]),
            gap(&tuned, OURS),
            gap(&seed, OURS)
        );
    }
    page.push('\n');
}

/// Appends the assumptions of the default mix.
fn assumptions(page: &mut String) {
    let Mix { agent, person, values, kinds, .. } = Mix::default();
    let pace = |pace: ProgressModel| {
        format!(
            "{:.1} % per iteration, none in {:.0} % of them, spread {}",
            pace.mean * 100.0,
            pace.idle * 100.0,
            pace.spread
        )
    };
    let _ = writeln!(
        page,
        "Assumptions of `everyday`. `--mix FILE` reads a YAML file that sets any of them with the keys of `Mix` in \
         `crates/lab/src/tasks/mix.rs`.\n\n- Progress: {}; in slow tasks: {}.\n- A finished task is worth {}, a falsely accepted one \
         {}, a question to a person {}.\n- A person answers in {:.0} % of cases and recognizes a hopeless task in {:.0} %.\n- Kinds of tasks, by weight: {}.\n",
        pace(agent.pace),
        pace(agent.slow),
        values.done,
        values.false_done,
        values.person,
        person.answers * 100.0,
        person.sees_hopeless * 100.0,
        kinds.iter().map(|(kind, weight)| format!("{} {weight}", kind_name(*kind))).collect::<Vec<_>>().join(", "),
    );
    page.push_str(
        "Probability that an obstacle ends, by intervention:\n\n| obstacle | none | warning | redirect | fresh session | person | \
         strong model | narrow iteration | memory |\n|---|---|---|---|---|---|---|---|---|\n",
    );
    for (obstacle, chances) in &agent.release {
        let ReleaseChances { alone, warn, redirect, fresh, person, strong, narrow, memory } = *chances;
        let chances = [alone, warn, redirect, fresh, person, strong, narrow, memory];
        let cells: String = chances.iter().map(|chance| format!(" {chance} |")).collect();
        let _ = writeln!(page, "| {} |{cells}", json_word(obstacle));
    }
    page.push('\n');
}

fn kind_name(kind: TaskKind) -> String {
    json_word(&kind)
}

fn json_word(value: &impl serde::Serialize) -> String {
    match serde_json::to_value(value) {
        Ok(Value::String(word)) => word.replace('_', " "),
        _ => String::new(),
    }
}

/// Appends the defaults that differ from the preset `pinned`, with the reasons.
fn changed_defaults(page: &mut String) {
    page.push_str(
        "## Defaults that were changed\n\nThe preset `pinned` has the values before tuning. Most of them are built in and have no key in the configuration.\n\n| value | `pinned` | default | reason |\n|---|---|---|---|\n",
    );
    for (key, before, now) in differences() {
        let reason = REASONS.iter().find(|(of, _)| *of == key).map_or("", |(_, reason)| reason);
        let _ = writeln!(page, "| {key} | {before} | {now} | {reason} |");
    }
}

/// Returns the keys whose default differs from the preset `pinned`, with both values.
pub(super) fn differences() -> Vec<(String, Value, Value)> {
    let value = |preset| serde_json::to_value(SupervisionSettings::of(preset)).unwrap_or_default();
    let mut found = Vec::new();
    collect_differences("", &value(SupervisionPreset::Pinned), &value(SupervisionPreset::Default), &mut found);
    found
}

fn collect_differences(path: &str, before: &Value, now: &Value, found: &mut Vec<(String, Value, Value)>) {
    match (before, now) {
        (Value::Object(before), Value::Object(now)) => {
            for (key, before) in before {
                let path = if path.is_empty() { key.clone() } else { format!("{path}.{key}") };
                collect_differences(&path, before, now.get(key).unwrap_or(&Value::Null), found);
            }
        }
        _ if before != now => found.push((path.to_owned(), before.clone(), now.clone())),
        _ => {}
    }
}

/// Returns the keys that have a reason.
#[cfg(test)]
pub(super) fn reasons() -> Vec<&'static str> {
    REASONS.iter().map(|(key, _)| *key).collect()
}
