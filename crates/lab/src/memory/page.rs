//! Page about the value of memory.

use super::{LabMemoryArgs, SeedFigures, table};

/// Maximum mean share of additional iterations that wrong learnings may cause.
const POISON_TARGET: f64 = 0.05;

const HEAD: &str = "\
Value of memory under stated assumptions, and quality of retrieval. The agent is simulated; its memory is the code that the
service runs: learning, merging, promotion, ranking for each prompt, and credit. The store's search is not part of this
simulation, because a simulated memory is small enough to rank all of it. Retrieval among many learnings is measured below.";

const MODEL: &str = "\
- There are 20 families of tasks with 6 approaches each. One approach gains 25 to 50 % of the task in 85 % of its iterations,
  one gains 10 to 30 % in half of them, and each of the others gains 2 to 12 % in a fifth. They differ from family to family,
  and their wording does not show which is which.
- The agent keeps an approach until two iterations in a row gain less than 5 %. Then it chooses another one: with a
  probability of 80 % the first strategy of its prompt that it has not abandoned, or else one that its prompt does not warn
  of; otherwise, and without memory, a random one. A loop ends when the task is done, at the latest after 15 iterations. 85 %
  of the pull requests are merged.
- Poisoned means that memory starts with two wrong learnings per family: that the worst approach works, and that the best one
  does not. They look well proven: confidence 0.95, seen nine times, eight successes, merged.
- Tasks and the random numbers of each iteration are the same with and without memory.
- The loss to poison is relative to memory without it. Single seeds differ by some points,
  because a family that finds its best approach late is late in all of its tasks.
- Thresholds and credit were tuned on the seeds 1 to 80, never on those of the table; another fusion constant of retrieval
  (20) was tried once and rejected after figures of these seeds as well. A simulation cannot show whether real tasks come in
  families, and whether real agents follow the advice in their prompts.";

/// Renders the page.
pub(super) fn markdown(args: &LabMemoryArgs, results: &[SeedFigures]) -> String {
    let seeds = || results.iter().filter(|result| result.seed.is_some());
    let worst = seeds().map(|result| result.loss).fold(f64::MIN, f64::max) * 100.0;
    let over = seeds().filter(|result| result.loss > POISON_TARGET).count();
    format!(
        "# Memory\n\n{HEAD}\n\n## Iterations saved\n\n`cargo run --release -p lab -- memory --tasks {} --seed {}`; the same \
         command gives the same figures on any machine.\n\n{}\nTargets: at least 15 % saved by each seed, and on average over \
         the seeds at most 5 % lost to poison. The worst seed lost {worst:.1} %; {over} of {} seeds lost more than 5 %.\n\n\
         ## Assumptions\n\n{MODEL}\n",
        args.tasks,
        args.seed,
        table(results),
        seeds().count()
    )
}
