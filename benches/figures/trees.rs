//! Cost of a loop's work tree, compared with `git worktree add`.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::bail;
use ralph_bot::clock::{Clock, Stopwatch};
use ralph_bot::domain::model::ids::{ForgeName, LoopId, RepoId, RepoRef};
use ralph_bot::workspace::{GitUrl, PrepareTree, TreeInfo, WorkspaceSettings, Workspaces};

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The repository has small files and 200 commits; its mirror is filled in advance. \"First time\" is a new tree. \
    \"From the pool\" is a tree that another loop changed and released 200 commits earlier. The baseline is `git \
    worktree add` of the same commit. The three alternate, and the figures are medians. The time of plain git \
    depends on the place of the files on the disk (0.4 to 6 s), so these ratios show only that the service's trees \
    are not slower.";

const NAME: &str = "trees";
/// Number of commits between the reused tree and the requested one.
const COMMITS: usize = 200;

/// Measures all rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (files, rounds) = match run.size {
        Size::Brief => (1_000, 1),
        Size::Usual => (20_000, 3),
        Size::Full => (100_000, 3),
    };
    let folder = run.folder()?;
    let origin = folder.join("origin.git");
    generate(&folder, &origin, files)?;
    git(&folder, &["clone", "--quiet", "--bare", &origin.display().to_string(), "plain.git"])?;
    let repo = RepoRef { forge: ForgeName::new("forge"), id: RepoId(1), owner: "mira".into(), name: "app".into() };
    let access = GitUrl { url: format!("file://{}", origin.display()), credential: None, settling: Default::default() };
    let trees = open(folder.join("data"))?;
    for base in ["old", "main"] {
        trees.fetch(&repo, &access, base, "ralph/none", false).await?;
    }
    let (mut plain, mut first, mut pooled) = (Vec::new(), Vec::new(), Vec::new());
    for round in 0..rounds {
        let watch = Stopwatch::start();
        git(
            &folder.join("plain.git"),
            &["worktree", "add", "--quiet", "--detach", &format!("../plain-{round}"), "main"],
        )?;
        plain.push(watch.elapsed());
        let prepare = async |base: &str, name: String| {
            let watch = Stopwatch::start();
            let (id, tree) = prepare(&trees, &repo, &access, base, &name).await?;
            anyhow::Ok((watch.elapsed(), tree.dir, id))
        };
        let (_, dir, old) = prepare("old", format!("r-1-old{round}")).await?;
        let (time, _, other) = prepare("main", format!("r-1-new{round}")).await?;
        first.push(time);
        std::fs::write(dir.join("left-by-the-agent.txt"), "something")?;
        std::fs::write(dir.join("d0/f0.txt"), "changed by the agent")?;
        trees.release(&old, &repo).await?;
        let (time, dir, reused) = prepare("main", format!("r-1-again{round}")).await?;
        pooled.push(time);
        anyhow::ensure!(!dir.join("left-by-the-agent.txt").exists(), "the pool gave a dirty tree");
        // Empties the pool for the next round by taking its only tree.
        for id in [&other, &reused] {
            std::fs::remove_dir_all(trees.tree_dir(id, &repo))?;
            trees.release(id, &repo).await?;
        }
    }
    let plain = median(plain).as_secs_f64();
    for (what, times, most) in [("first time", first, 1.2), ("from the pool", pooled, 0.2)] {
        let row = FigureRow::new(NAME, format!("a tree of {files} files, {what}"), median(times).as_secs_f64(), "s");
        run.add(row.beside("git worktree add", plain).target(FigureTarget::RatioAtMost(most)));
    }
    Ok(())
}

/// Opens work trees with their data in `root`; one tree is kept for reuse.
pub fn open(root: PathBuf) -> anyhow::Result<Workspaces> {
    let settings = WorkspaceSettings {
        root,
        pool: 1,
        committer_name: "ralph-bot".into(),
        committer_email: "ralph-bot@localhost".into(),
        authors: Default::default(),
        signing: None,
        protected: Vec::new(),
        outbound: Default::default(),
        submodule_hosts: Vec::new(),
    };
    Ok(Workspaces::open(settings, Clock::System)?)
}

/// Prepares a new tree of a loop with this id on a base branch.
pub async fn prepare(
    trees: &Workspaces,
    repo: &RepoRef,
    access: &GitUrl,
    base: &str,
    name: &str,
) -> anyhow::Result<(LoopId, TreeInfo)> {
    let id = LoopId::new(name);
    let request = PrepareTree {
        fork: None,
        loop_id: &id,
        repo,
        access,
        base_branch: base,
        branch: &format!("ralph/{name}"),
        resume_at: None,
        partial: false,
    };
    let tree = trees.prepare(request).await?;
    Ok((id, tree))
}

/// Creates the repository with the branch `old`, and `main` several commits later.
fn generate(folder: &Path, origin: &Path, files: usize) -> anyhow::Result<()> {
    git(folder, &["init", "--quiet", "--bare", "--initial-branch=main", &origin.display().to_string()])?;
    let mut import = Command::new("git");
    import.args(["fast-import", "--quiet"]).current_dir(origin).stdin(Stdio::piped());
    let mut child = import.spawn()?;
    {
        let mut to = std::io::BufWriter::new(child.stdin.take().expect("it was piped"));
        let data = |text: &str| format!("data {}\n{text}\n", text.len());
        let commit = |branch: &str, n: usize| {
            let when = 1_790_000_000 + n;
            format!("commit refs/heads/{branch}\ncommitter Mira <mira@localhost> {when} +0000\n{}", data("a commit"))
        };
        to.write_all(commit("old", 0).as_bytes())?;
        for n in 0..files {
            let text = format!("file {n}\n").repeat(20);
            write!(to, "M 100644 inline d{}/f{n}.txt\n{}", n / 100, data(&text))?;
        }
        writeln!(to, "reset refs/heads/main\nfrom refs/heads/old\n")?;
        for n in 1..=COMMITS {
            let file = n * (files / COMMITS).max(1) % files;
            let change = format!("M 100644 inline d{}/f{file}.txt\n{}", file / 100, data("changed\n"));
            write!(to, "{}{change}", commit("main", n))?;
        }
        writeln!(to, "done")?;
        to.flush()?;
    }
    if !child.wait()?.success() {
        bail!("the repository could not be made");
    }
    Ok(())
}

/// Runs git without user and system configuration.
pub fn git(folder: &Path, arguments: &[&str]) -> anyhow::Result<()> {
    let mut command = Command::new("git");
    command.args(["-c", "user.name=Mira", "-c", "user.email=mira@localhost", "-c", "gc.auto=0"]).args(arguments);
    command.env("GIT_CONFIG_GLOBAL", "/dev/null").env("GIT_CONFIG_NOSYSTEM", "1").current_dir(folder);
    let done = command.output()?;
    if !done.status.success() {
        bail!("git {arguments:?}: {}", String::from_utf8_lossy(&done.stderr));
    }
    Ok(())
}
