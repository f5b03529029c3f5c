//! Time for the dependencies of a second loop, which the service copies from the environment that it kept, compared with `cp -r`.

use std::path::Path;
use std::process::Command;

use anyhow::ensure;
use ralph_bot::clock::Stopwatch;
use ralph_bot::domain::model::ids::{ForgeName, RepoId, RepoRef};
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::workspace::GitUrl;

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::trees::{git, open, prepare};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The setup commands of a first loop created `node_modules` with files of 10 kB, which the service kept. The figure \
    is the time from the request for a second loop's dependencies to its complete copy, with the lookup by lock file. \
    The baseline is `cp -r` of the same folder. Both alternate, and the figures are medians.";

const NAME: &str = "environments";
/// Size of a file, in bytes.
const FILE_BYTES: usize = 10_000;

/// Measures the row.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let (files, rounds) = if run.size == Size::Brief { (1_000, 1) } else { (20_000, 5) };
    let folder = run.folder()?;
    let origin = folder.join("origin");
    std::fs::create_dir(&origin)?;
    std::fs::write(origin.join(".gitignore"), "node_modules\n")?;
    std::fs::write(origin.join("package-lock.json"), "{}\n")?;
    for arguments in
        [&["init", "--quiet", "--initial-branch=main"][..], &["add", "."], &["commit", "--quiet", "-m", "1"]]
    {
        git(&origin, arguments)?;
    }
    let trees = open(folder.join("data"))?;
    let repo = RepoRef { forge: ForgeName::new("forge"), id: RepoId(1), owner: "mira".into(), name: "app".into() };
    let access = GitUrl { url: format!("file://{}", origin.display()), credential: None, settling: Default::default() };
    let policy = Policy { setup: vec!["npm ci".to_owned()], ..Policy::default() };
    let prepare = async |name: &str| prepare(&trees, &repo, &access, "main", name).await;
    trees.fetch(&repo, &access, "main", "ralph/none", false).await?;
    let (first, tree) = prepare("r-1-first").await?;
    let key = trees.environment_key((&first, &repo), &tree.head, &policy, "").await?;
    let checkout = trees.clean_checkout(&first, &repo, &tree.head).await?;
    let (home, original) = (folder.join("home"), folder.join("node_modules"));
    std::fs::create_dir(&home)?;
    create(&checkout.dir.join("node_modules"), files)?;
    create(&original, files)?;
    let effects = trees.setup_effects(&checkout, &[]).await?;
    trees.keep_environment(&key, (&checkout, &home), effects, Vec::new()).await?;
    trees.release_checkout(checkout).await?;
    let (mut plain, mut kept) = (Vec::new(), Vec::new());
    for round in 0..rounds {
        let to = folder.join(format!("plain-{round}"));
        let watch = Stopwatch::start();
        ensure!(Command::new("cp").arg("-r").args([&original, &to]).status()?.success(), "cp failed");
        plain.push(watch.elapsed());
        let (id, tree) = prepare(&format!("r-{}-later", round + 2)).await?;
        let watch = Stopwatch::start();
        let key = trees.environment_key((&id, &repo), &tree.head, &policy, "").await?;
        let environment = trees.environment(&key).ok_or_else(|| anyhow::anyhow!("no environment was kept"))?;
        environment.copy_to_tree(&tree.dir, &home).await?;
        environment.copy_to_home(&tree.dir, &folder.join(format!("home-{round}")), false).await?;
        kept.push(watch.elapsed());
        let last = tree.dir.join("node_modules").join(file_of(files - 1));
        ensure!(std::fs::metadata(&last)?.len() == FILE_BYTES as u64, "{} is not complete", last.display());
        // Nothing is deleted meanwhile: ext4 without a journal then creates files slowly for minutes.
    }
    let what = format!("dependencies of a second loop, {files} files");
    let row = FigureRow::new(NAME, what, median(kept).as_secs_f64(), "s");
    run.add(row.beside("cp -r", median(plain).as_secs_f64()).target(FigureTarget::Below(1.0)));
    Ok(())
}

/// Returns the path of the nth file in `node_modules`.
fn file_of(nth: usize) -> String {
    format!("package-{}/file-{nth}.js", nth / 100)
}

/// Creates a folder with files of different contents.
fn create(folder: &Path, files: usize) -> anyhow::Result<()> {
    for nth in 0..files {
        let file = folder.join(file_of(nth));
        if nth % 100 == 0 {
            std::fs::create_dir_all(file.parent().unwrap_or(folder))?;
        }
        let mut text = format!("// {nth}\n").repeat(FILE_BYTES / 4);
        text.truncate(FILE_BYTES);
        std::fs::write(file, text)?;
    }
    Ok(())
}
