//! Page about the value of memory.

use super::{LabMemoryArgs, SeedFigures, table};

/// Maximum mean share of additional iterations that wrong learnings may cause.
const POISON_TARGET: f64 = 0.05;

const HEAD: &str = "\
This page reports the value of memory under stated assumptions, and the quality of retrieval. The agent is simulated; its memory is the
service's code: learning, merging, promotion, ranking for each prompt, and credit. This simulation omits the store's search,
because it can rank all learnings of a small memory. A separate section measures retrieval among many learnings.";

const MODEL: &str = "\
- There are 20 families of tasks with 6 approaches each. One approach gains 25 to 50 % of the task in 85 % of its iterations,
  one gains 10 to 30 % in half of them, and each of the others gains 2 to 12 % in a fifth of them. They differ between families,
  and their wording does not identify the best approach.
- The agent keeps an approach until two consecutive iterations gain less than 5 %. Then it chooses another approach: with a
  probability of 80 % the first strategy of its prompt that it has not abandoned, or an approach without a warning in its
  prompt; otherwise, and without memory, a random approach. A loop ends when the task is done, at the latest after 15
  iterations. 85 % of the pull requests are merged.
- A poisoned memory starts with two wrong learnings per family: that the worst approach works, and that the best approach
  does not. They look well proven: confidence 0.95, seen nine times, eight successes, merged.
- Tasks and the random numbers of each iteration are the same with and without memory.
- The loss to poison is relative to memory without poison. Single seeds differ by some points,
  because a family that finds its best approach late is late in all of its tasks.
- Thresholds and credit were tuned on the seeds 1 to 80, never on the table's seeds. Another fusion constant of retrieval
  (20) was tried once, and rejected also because of figures of these seeds. A simulation cannot show whether real tasks form
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
