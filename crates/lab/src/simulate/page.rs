//! Page about a simulation: targets, figures, assumptions, and the defaults that were changed because of them.

use std::fmt::Write as _;

use ralph_bot::domain::supervision::{Preset, SupervisionSettings};
use serde_json::Value;

use super::{MixFigures, OURS, SimulateArgs, about, interval, percent, simulate_mix};
use crate::tasks::{Mix, PolicyFigures, ProgressModel, ReleaseChances, TaskKind};

/// Policies that the pipeline has to beat.
const RIVALS: [&str; 2] = ["stall rule", "Luby restarts"];

/// Name of the policy that serves as an upper bound.
const BOUND: &str = "all seen, three late";

const HEAD: &str = "\
This page says what control, oversight and strategy are worth under stated assumptions. A stochastic agent takes many
tasks. Each task is played by every policy with the same luck, and the outcomes are compared. The policy called \"ours\" is
the pipeline that loops run (`domain/supervision.rs`), fed with the records that the agent leaves.

A simulation shows what follows from its assumptions. It does not show that real agents behave like this. How agents behave
was laid down before thresholds were tuned; the oracle and the unit of the Luby restarts were corrected after first runs.
Thresholds were tuned on the mixes `everyday`, `rough` and `bleak` and on twelve that were drawn by chance (`drawn-101` to
`drawn-112`): in a drawn mix every weight, chance and price of `everyday` is multiplied by a factor of its own (log-normal,
sigma 0.5). Twelve more (`drawn-201` to `drawn-212`) and the mixes `gentle`, `hopeless` and `shifty` were not tuned on, but
their figures were looked at meanwhile. The mixes `drawn-16` to `drawn-21` were played once, when tuning was over, and nothing
was changed after their figures were seen. They take the place of `drawn-1` to `drawn-15`, which earlier versions of
this page had. All was tuned with other seeds than those of this page.

The tasks of a mix are taken to be loops of one repository, one after the other. So `ours` knows from the second on what
earlier ones were like, as far as their records say (`domain/experience.rs`); `ours, no earlier loops` is the same where each
loop is the first. Most of what they bring, ten of them bring; fifty are remembered.";

const MODEL: &str = "\
- A task has a number of tests. A healthy agent makes some progress in most iterations and none in others; how much differs
  from task to task and from iteration to iteration. Tests fail by accident now and then, and runs break off.
- At some point of a task an agent may meet a snag: a wall (the same error whatever is tried), drift (work on something
  else), silence (nothing is changed), crashes, a seesaw (one thing mended, another broken), rot (each change spoils more
  than it mends) or a shortcut (checks are weakened). A snag stays until something ends it; the chances are in the table
  below. After it the agent goes on as before, and may meet another.
- A healthy agent that is warned, redirected or started afresh loses part of its next iteration.
- A person who is asked may not answer, and then the loop ends. One who answers gives guidance, or sees that a task is
  hopeless and ends it. A loop that asks too often is ended.
- More effort costs in proportion and pays by its square root. The strong model is a little faster and costs twice as much.
- What a policy sees are the records alone. The oracle sees what holds an agent up, steps in at once, and does not begin
  tasks that are hopeless or need more iterations than there are; it is out of reach.";

/// Interpretation of the figures.
const READING: &str = "\
- The prompt's tone was switched off. It followed a signal that is near 1 in most loops, so that it was a fixed factor: where
  a drawn mix has it that urgent prompts make agents faster, it brought up to 12 iterations a task, and where they make them
  slower it cost as much. The 93 % and 100 % that an earlier version of this page had for two drawn mixes came from it, and so
  did the -21 % of a third. They said nothing of supervision.
- What pays most besides: weakened checks are seen; an iteration that they were weakened in measures nothing, so that honest
  work after it is not held against it; a loop that stands still for longer than its own pace explains is redirected, up to
  three times in as many iterations; and a loop gives up, as at a limit, when its rest is not worth its likely cost.
- Earlier loops of a repository tell how often its loops stand still and at which pace they go. That halves the healthy loops
  that are disturbed, because a standstill that is nothing unusual there is left alone, and ends loops sooner whose like was
  never done in time. Over the mixes `drawn-201` to `drawn-212` 64 % of the gap were closed and 2.5 % disturbed; where each
  loop was the first, 63 % and 4.3 %. Here a repository does not change; real ones do, and what a loop was like is forgotten
  after fifty more. Where hardly a task can be done in time, more is gained and more healthy loops are disturbed: those few
  that would have been done by luck are given up with the others.
- What is over is not held against a loop again: going to and fro counts where the newest iteration has a part in it, and lost
  tests do not while they come back. Before that, agents that a redirect had freed were redirected once more, and slowed down.
- In the model, checks that are weakened always show as tests that are skipped. Real ones do not, so that in practice fewer
  false completions are caught than here.
- The aim of 80 % is not reached on every mix, and for some it cannot be. `all seen, three late` knows for certain what holds an
  agent up and how fast it is, three iterations late, but not what is hopeless; records do not say as much as that. What is
  left between ours and it is what has to be guessed from records; what is left between it and the oracle is the price of
  having to begin at all. Where most tasks cannot be done in 25 iterations or are not worth their cost, the oracle does not begin
  them, while any other policy pays for the iterations by which a pace is known.
- Iterations on a hopeless task cannot come down to six: the wall itself comes after three to five iterations, it looks
  like a plateau of a healthy loop for three more, and it is told from one that another approach overcomes only by trying.
  Of all tasks that are not done, the iterations are fewer by 40 % and more on most mixes.
- More healthy loops are disturbed than aimed at where they are slow and uneven. Some of these give up although they would be
  done at the end of their limit. To give up nothing (`strategy.outlook.enabled: false`) closed 12 points less of the gap over
  the mixes `drawn-201` to `drawn-212`, and disturbed 2.1 % instead of 2.5 %; not to look for standstills
  (`standstill_chance: 0`) closed 2 points less, and disturbed 1.6 %.
- People are worth little once three redirects came first, and often less than they cost here: who is asked then is mostly
  asked about a hopeless task. They are asked all the same, because a real one can say what no model knows.
- Where no check counts its tests, completion is nothing or everything, and rules that watch it take every loop for stuck:
  before that was seen to, half of the healthy loops were disturbed, and a limit of ten was worth more. There an error that was
  not met before counts as movement, and only a loop that goes round among its errors stands still.
- PID control as such brings little; its actuators are off by default, and can be switched on.
- The pauses of strategy itself are worth about nothing: the overseer has asked before. They are a last resort, for loops in
  which no detection fires. Detections that are worth about 0 here are not worthless: the model has no loops that run away with
  money, and few that leave their task.";

const POLICIES: &str = "\
- `limit of 5`, `10`, `25`: on until the checks hold, at most so many iterations. No policy may take more than 25.
- `the agent's claim`: on until the agent says that it is done.
- `stall rule`: where nothing got better for three iterations, a fresh start, the next time a person, then the end. This is
  the simple rule to beat; two, four and five iterations were no better on the mixes that we tuned on.
- `Luby restarts`: fresh sessions after 1, 1, 2, 1, 1, 2, 4, ... times three iterations; the work is kept.
- `ours`: the defaults of this version. A loop that gives up ends, as at its limit; nobody counts as asked for either.
- `ours, no earlier loops`: the same in a repository that had no loop before.
- `ours, told the worth`: the same where the operator has said what a finished task is worth (`strategy.outlook.task_worth`);
  `ours` takes it to be 40 whatever the mix.
- `all seen, three late`: no policy but a bound. It sees what holds an agent up when that has lasted for three iterations, then
  redirects at once and up to three times in a row, asks a person once, and ends; it ends also where the rest does not fit or
  costs more than the task is worth, which it knows for certain after three iterations.

Completion is measured from the records' checks by the function that measures it in loops (`CheckReport::completion`): a
build and a lint that hold at the start, and tests that all fail then.

Worth is counted in usual iterations: a finished task, less what its iterations cost, less what people cost who were asked,
less a fine for a task that was called done and was not. The gap is the one between a limit of ten iterations and the
oracle, in worth. A loop is healthy where nothing holds its agent up and it would be done within the limit if left alone;
it counts as disturbed where it was warned, redirected, started afresh, held or given up. Loops that nothing holds up but that
would not be done in time are counted apart. Intervals are those of 95 %: of the normal distribution for means, by bootstrap over the tasks for ratios; `±` gives half of
their width.";

/// Reasons for the defaults that differ from the preset `seed`, by key.
const REASONS: [(&str, &str); 27] = [
    (
        "control.actuators.effort.enabled",
        "The signal is near 1 for most of a loop, so each run got one and a half times the budget. It pays only where progress grows as fast as the effort.",
    ),
    (
        "control.actuators.model.enabled",
        "For the same reason the strong model ran almost always. It pays only where it is faster by more than it costs.",
    ),
    ("control.actuators.breadth.enabled", "It slowed healthy loops as much as it helped those that go to and fro."),
    (
        "control.actuators.tone.enabled",
        "The signal is near 1 in healthy loops too, so that every prompt said it was urgent: a gain or a loss by luck.",
    ),
    ("control.actuators.memory.enabled", "It follows I, which grows in healthy loops too."),
    ("oversight.climb_after", "What is done about a snag shows in the next iteration; waiting for two costs one."),
    (
        "oversight.redirects",
        "Another approach is cheaper than a person, and the next often works where those before did not.",
    ),
    ("oversight.min_progress", "One test of many is progress."),
    (
        "oversight.stuck.window",
        "Errors are counted over more iterations, so that another error in between does not hide a wall.",
    ),
    ("oversight.stuck.progress_window", "Two iterations more tell a plateau of a healthy loop from a wall."),
    (
        "oversight.stuck.same_error_count",
        "Healthy loops show the same error a few times; what stands still for longer than is usual is found sooner by `standstill_chance`.",
    ),
    ("oversight.stuck.critical_error_count", "It pauses a loop only after its redirects."),
    (
        "oversight.stuck.no_progress_iterations",
        "Healthy loops stand still for a while; what is unusual for a loop is told by `standstill_chance`.",
    ),
    (
        "oversight.stuck.standstill_chance",
        "A loop is compared with its own pace: three iterations without a step are nothing in a halting one, and much in a steady one.",
    ),
    ("oversight.stuck.same_reflection_count", "Short plateaus teach the same thing."),
    (
        "oversight.stuck.alarm_beside",
        "The alarm takes a plateau of three iterations for the end of the road, with one other signal too.",
    ),
    ("oversight.oscillation.critical_cycles", "It pauses a loop only after its redirects."),
    (
        "oversight.oscillation.trend_turns",
        "A single error of a tool moves P to and fro; completion has to turn as well.",
    ),
    ("oversight.oscillation.min_swing", "A test or two that fail by accident are no swing."),
    ("oversight.oscillation.sign_changes", "Accidents turn completion to and fro in healthy loops as well."),
    (
        "oversight.test_tampering.skipped",
        "What the change does not show, the counts do: tests that ran before are skipped now.",
    ),
    ("oversight.test_tampering.repeats", "Agents put checks back at the second or third word; a person is dearer."),
    ("oversight.resource_burn.alarm_below", "A loop that is late and gets better is left to its limits."),
    (
        "strategy.outlook.enabled",
        "A loop whose rest does not fit, or costs more than the task is worth, is better ended early than at its limit.",
    ),
    ("strategy.outlook.guided", "Who was asked and could not help does not have to be asked again."),
    ("strategy.escalation_threshold", "It comes after the overseer's redirects, not before them."),
    (
        "strategy.budget_critical",
        "A pause shortly before the limit saves little and takes from slow loops their last iterations.",
    ),
];

/// Renders the page.
pub(super) fn markdown(args: &SimulateArgs, mixes: &[MixFigures], settings: &SupervisionSettings) -> String {
    let mut page = String::from("# Simulation\n\n");
    let mix_arguments: String = args.mix.iter().map(|mix| format!(" --mix {mix}")).collect();
    let _ = writeln!(
        page,
        "Written by `cargo run --release -p lab -- simulate --tasks {} --seed {}{mix_arguments} --markdown docs/simulation.md`; do not edit. The same \
         command gives the same figures on any machine.\n\n{HEAD}\n",
        args.tasks, args.seed
    );
    targets(&mut page, mixes);
    for mix in mixes {
        mix_figures(&mut page, mix);
    }
    parts(&mut page, mixes);
    sensitivity(&mut page, args, settings);
    let _ = writeln!(page, "## What the figures say\n\n{READING}\n");
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
    row("40 % fewer iterations on tasks that are not done than with a limit of 10, a task", &fewer(|f| f.wasted.value));
    row("the same of hopeless tasks alone, each", &fewer(|f| f.hopeless.value));
    row("no fewer tasks done than with a limit of 10", &|mix| {
        let (ours, ten) = (of(mix, OURS)?.done, of(mix, "limit of 10")?.done);
        Some((ours.value >= ten.value, format!("{} against {}", percent(ours), percent(ten))))
    });
    row("at most 2 % of healthy loops disturbed", &|mix| {
        let disturbed = of(mix, OURS)?.disturbed;
        Some((disturbed.value <= 0.02, percent(disturbed)))
    });
    let bound = |mix: &MixFigures| of(mix, BOUND).map(|figures| interval(figures.gap)).unwrap_or_default();
    let bounds: String = mixes.iter().map(|mix| format!(" {} |", bound(mix))).collect();
    let _ = writeln!(page, "| for comparison, the gap that `{BOUND}` closes |{bounds}");
    page.push('\n');
}

fn mix_figures(page: &mut String, mix: &MixFigures) {
    let _ = writeln!(
        page,
        "## {}\n\n{} tasks.\n\n| policy | done | falsely done | worth a task | iterations a task done | cost a task done | \
         iterations a hopeless task | iterations on tasks not done, a task | healthy disturbed | with those too slow | people asked, a task | gap \
         closed |\n|---|---|---|---|---|---|---|---|---|---|---|---|",
        mix.mix, mix.tasks
    );
    for figures in &mix.policies {
        let _ = writeln!(
            page,
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
        );
    }
    page.push('\n');
}

/// Appends the value of each part in each mix.
fn parts(page: &mut String, mixes: &[MixFigures]) {
    page.push_str(
        "## What each part is worth\n\nWhat a task is worth more with the part than without it, in usual iterations, task by \
         task with the same luck. Below 0, the part costs more than it brings. A part that is on by default is taken away, one \
         that is off is added, each alone. `with the usual iterations`: loops are told how many such a task usually takes (5 here), \
         twice of which is a burn; where they may take 25, that disturbs those that are slow, so real loops go by their limit until \
         earlier ones of their repository are known. `the same without forecast` is \
         held against the row above it.\n\n| ours |",
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

/// Appends the figures under other assumptions.
fn sensitivity(page: &mut String, args: &SimulateArgs, settings: &SupervisionSettings) {
    page.push_str(
        "## Under other assumptions\n\nPart of the gap closed in the mix `everyday`, as it is and with one assumption \
         changed. `the design's values` is ours with the preset `seed`: the thresholds as they were before they were tuned, \
         and every actuator on.\n\n| assumption | stall rule | Luby restarts | ours | the design's values |\n\
         |---|---|---|---|---|\n",
    );
    let mix = Mix::default();
    let variants = std::iter::once(("as it is", mix.clone())).chain(mix.variants());
    for (name, mix) in variants {
        let tuned = simulate_mix(&mix, settings, args.seed, args.tasks, false);
        let seed = simulate_mix(&mix, &SupervisionSettings::of(Preset::Seed), args.seed, args.tasks, false);
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
            "{:.1} % an iteration, none in {:.0} % of them, spread {}",
            pace.mean * 100.0,
            pace.idle * 100.0,
            pace.spread
        )
    };
    let _ = writeln!(
        page,
        "The assumptions of `everyday`; `--mix FILE` takes a YAML file with any of them, and its keys are those of `Mix` in \
         `crates/lab/src/tasks/mix.rs`.\n\n- Pace: {}; of slow tasks: {}.\n- A done task is worth {}, one falsely called done \
         {}, a person who is asked {}.\n- A person answers in {:.0} % of cases and sees a hopeless task in {:.0} %.\n- Sorts of \
         tasks, by weight: {}.\n",
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
        "Chance that a snag ends, by what is done:\n\n| snag | by itself | WARN | REDIRECT | fresh session | a person | \
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

/// Appends the defaults that differ from the preset `seed`, with the reasons.
fn changed_defaults(page: &mut String) {
    page.push_str(
        "## Defaults that were changed\n\nThe preset `seed` keeps the values of the design.\n\n| key | design | default | \
         reason |\n|---|---|---|---|\n",
    );
    for (key, before, now) in differences() {
        let reason = REASONS.iter().find(|(of, _)| *of == key).map_or("", |(_, reason)| reason);
        let _ = writeln!(page, "| `{key}` | {before} | {now} | {reason} |");
    }
}

/// Returns the keys whose default differs from the preset `seed`, with both values.
pub(super) fn differences() -> Vec<(String, Value, Value)> {
    let value = |preset| serde_json::to_value(SupervisionSettings::of(preset)).unwrap_or_default();
    let mut found = Vec::new();
    collect_differences("", &value(Preset::Seed), &value(Preset::Default), &mut found);
    // The preset `seed` repeats the built-in profiles.
    found.retain(|(key, ..)| !key.starts_with("control.profiles"));
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
