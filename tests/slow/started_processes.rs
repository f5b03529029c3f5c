//! Processes that the service starts between two runs of an agent. Each takes milliseconds of every iteration, so a new one
//! has to be seen in review; times themselves are measured by `cargo bench --bench figures -- iteration` and
//! `cargo run -p duel -- rates`.

use std::collections::{HashMap, HashSet};

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;
use ralph_bot::process::SandboxTier;
use regex::Regex;

use crate::harness::service::{Service, stop};
use crate::harness::{Setup, on_one_forge, sandbox};

on_one_forge!(iteration_starts_known_processes_only,);

/// Changes nothing in the first and the third iteration.
const AGENT: &str = r#"
case "$RALPH_ITERATION" in
  2) echo 39 >answer.txt ;;
  4) echo 40 >answer.txt ;;
  5) echo 42 >answer.txt ;;
esac
"#;

const CHECK: &str = "test \"$(cat answer.txt)\" = 42 || { echo \"the answer is $(cat answer.txt)\"; exit 1; }\n";

/// Number of additional files of the repository.
const FILES: usize = 1_000;

async fn iteration_starts_known_processes_only(dialect: Dialect) {
    if sandbox().await.tier != SandboxTier::A {
        return;
    }
    let files =
        (0..FILES).map(|n| (format!("src/part{}/file{n}.txt", n % 20), format!("line of file {n}\n").repeat(50)));
    let setup = Setup::new(dialect).agent(AGENT).file("check.sh", CHECK);
    let setup = files.fold(setup, |setup, (path, text)| setup.file(&path, &text));
    let service = Service::new(setup, true).await;
    let log = service.world.folder.path().join("strace.log");
    let options = ["-qq", "-v", "-s", "400", "--seccomp-bpf", "-e", "trace=execve,clone,clone3,fork,vfork"];
    let Some(mut child) = service.spawn_traced(&log, &options, "all") else { return };
    service.until("the service to listen", async || service.listens().await).await;
    service.world.label().await;
    let done = service.until_loop("the review", |l| l.state == LoopState::Review).await;
    service.wait_until_idle().await;
    stop(&mut child).await;
    assert_eq!(done.spent.iterations, 5, "{}", done.why);

    let started = started_processes(&std::fs::read_to_string(&log).expect("the log of strace"));
    let runs: Vec<_> = started.split(|process| process == "bwrap sh agent.sh").collect();
    assert_eq!(runs.len(), 6, "{started:#?}");
    let names = ["no change", "first change", "no change after one", "further change"];
    let lists = names.iter().zip(&runs[1..]).map(|(name, run)| format!("{name}:\n  {}\n", run.join("\n  ")));
    insta::assert_snapshot!(lists.collect::<String>(), @r"
    no change:
      git ls-files -z --stage
      git cat-file --batch-command
      git ls-files -z --modified --deleted --others --exclude-standard
      git write-tree
      git diff-index --cached --no-renames --raw --no-abbrev --numstat -z --no-ext-diff --no-textconv
      bwrap sh -c
      git read-tree --reset -u --no-recurse-submodules
    first change:
      git ls-files -z --stage
      git cat-file --batch-command
      git ls-files -z --modified --deleted --others --exclude-standard
      git update-index -z --add --remove --replace --stdin
      git write-tree
      git diff-index --cached --no-renames --raw --no-abbrev --numstat -z --no-ext-diff --no-textconv
      git commit-tree -F - -p
      git diff-tree -r -M --raw --no-abbrev --numstat --patch -z --no-color --no-ext-diff --no-textconv
      git update-ref -z --stdin
      git grep -l -z -I -F -e
      git cat-file --batch
      git cat-file --batch
      sh
      git push --porcelain --no-verify --no-signed --no-follow-tags --force-with-lease --
      bwrap sh -c
      git read-tree --reset -u --no-recurse-submodules
      git ls-tree -r -z --full-tree
    no change after one:
      git ls-files -z --stage
      git cat-file --batch-command
      git ls-files -z --modified --deleted --others --exclude-standard
      git write-tree
      git diff-index --cached --no-renames --raw --no-abbrev --numstat -z --no-ext-diff --no-textconv
      git diff-tree -r -M --patch --no-color --no-ext-diff --no-textconv --
      git grep -l -z -I -F -e
      git cat-file --batch
      git cat-file --batch
      bwrap sh -c
      git read-tree --reset -u --no-recurse-submodules
    further change:
      git ls-files -z --stage
      git cat-file --batch-command
      git ls-files -z --modified --deleted --others --exclude-standard
      git update-index -z --add --remove --replace --stdin
      git write-tree
      git diff-index --cached --no-renames --raw --no-abbrev --numstat -z --no-ext-diff --no-textconv
      git commit-tree -F - -p
      git diff-tree -r -M --raw --no-abbrev --numstat --patch -z --no-color --no-ext-diff --no-textconv
      git diff-tree -r -M --patch --no-color --no-ext-diff --no-textconv --
      git update-ref -z --stdin
      git grep -l -z -I -F -e
      git cat-file --batch
      git cat-file --batch
      sh
      git push --porcelain --no-verify --no-signed --no-follow-tags --force-with-lease --
      bwrap sh -c
      git read-tree --reset -u --no-recurse-submodules
      git ls-tree -r -z --full-tree
    ");
}

/// Returns the executed commands of the service's children, in order: program and subcommand.
fn started_processes(log: &str) -> Vec<String> {
    let call =
        Regex::new(r"^(\d+) +(?:<\.\.\. )?(clone3?|v?fork)(.*?)(?:= (\d+)|<unfinished \.\.\.>)$").expect("a pattern");
    let execution = Regex::new(r#"^(\d+) +execve\("([^"]+)", \[(.*?)\], \["#).expect("a pattern");
    let argument = Regex::new(r#""((?:[^"\\]|\\.)*)""#).expect("a pattern");
    let service = log.split_whitespace().next().expect("the first process");
    let (mut threads, mut children) = (HashSet::from([service]), HashSet::new());
    // Flags of a call whose result is reported later.
    let mut begun = HashMap::new();
    for found in log.lines().filter_map(|line| call.captures(line)) {
        let [by, rest] = [1, 3].map(|group| found.get(group).map_or("", |text| text.as_str()));
        let is_thread = rest.contains("CLONE_THREAD");
        match found.get(4) {
            None => drop(begun.insert(by, is_thread)),
            Some(_) if !threads.contains(by) => {}
            Some(new) if begun.remove(by).unwrap_or(is_thread) => drop(threads.insert(new.as_str())),
            Some(new) => drop(children.insert(new.as_str())),
        }
    }
    let executions = log.lines().filter_map(|line| execution.captures(line));
    let of_children = executions.filter(|found| children.contains(&found[1]));
    of_children
        .map(|found| {
            words(&found[2], &argument.captures_iter(&found[3]).map(|text| text[1].to_owned()).collect::<Vec<_>>())
        })
        .collect()
}

/// Returns the program and its subcommand.
fn words(program: &str, arguments: &[String]) -> String {
    let name = |path: &str| path.rsplit('/').next().unwrap_or(path).to_owned();
    let program = name(program);
    let mut rest = arguments.iter().skip(1);
    let what: Vec<String> = match program.as_str() {
        "git" => {
            let mut words = Vec::new();
            while let Some(word) = rest.next() {
                match word.as_str() {
                    "-c" => drop(rest.next()),
                    option if option.starts_with("--") && words.is_empty() => {}
                    // Without paths, ids and refs.
                    word if word.starts_with('-') || words.is_empty() => {
                        words.push(word.split('=').next().unwrap_or(word).to_owned());
                    }
                    _ => {}
                }
            }
            words
        }
        "bwrap" => {
            // Where the service is root, the program follows `setpriv ... --`.
            let mut inner: Vec<&String> = rest.skip_while(|word| *word != "--").skip(1).collect();
            if inner.first().is_some_and(|word| name(word) == "setpriv") {
                inner = inner.into_iter().skip_while(|word| *word != "--").skip(1).collect();
            }
            // A shell sets the environment of the program.
            if inner.get(3).is_some_and(|word| *word == "sandbox") {
                inner.drain(..4);
            }
            inner.into_iter().take(2).map(|word| name(word)).collect()
        }
        _ => Vec::new(),
    };
    [vec![program], what].concat().join(" ")
}
