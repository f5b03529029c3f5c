//! Cost of starting a program in the service's sandbox, compared with plain bubblewrap.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ralph_bot::clock::Stopwatch;
use ralph_bot::process::sandbox::{EtcCopies, SandboxSettings, SandboxView, ScratchHome};
use ralph_bot::process::{self, ProcessSpec, Sandbox};
use tokio_util::sync::CancellationToken;

use crate::machine::median;
use crate::report::{FigureRow, FigureTarget};
use crate::{FigureRun, Size};

/// Description of the measurement, for the page.
pub const DESCRIPTION: &str = "\
    The test runs `/bin/true` in the sandbox of a check, with all filters, limits and covered files. The baseline \
    is `/bin/true` in bubblewrap with only the same namespaces and folders. Both alternate, and the figures are \
    medians. The first row is the difference of the starts.";

const NAME: &str = "sandbox";
/// Maximum difference, in milliseconds.
const MOST_MS: f64 = 10.0;

/// Measures both rows.
pub async fn run(run: &mut FigureRun) -> anyhow::Result<()> {
    let rounds = if run.size == Size::Brief { 3 } else { 100 };
    let folder = run.folder()?;
    let (tree, home, etc) = (folder.join("tree"), folder.join("home"), folder.join("etc"));
    for folder in [&tree, &home, &etc] {
        std::fs::create_dir(folder)?;
    }
    let settings = SandboxSettings { etc: Some(Arc::new(EtcCopies::new(etc))), ..SandboxSettings::default() };
    let (mut ours, mut plain) = (Vec::new(), Vec::new());
    for _ in 0..rounds {
        plain.push(time(plain_bubblewrap(&tree, &home)).await?);
        let mut spec = ProcessSpec::new("/bin/true", &tree).env("PATH", "/usr/bin:/bin");
        spec.sandbox = Sandbox::of(SandboxView {
            writable: vec![tree.clone()],
            home: ScratchHome::Folder(home.clone()),
            settings: settings.clone(),
            ..SandboxView::default()
        });
        ours.push(time(spec).await?);
    }
    let ms = |times: Vec<Duration>| median(times).as_secs_f64() * 1e3;
    let (ours, plain) = (ms(ours), ms(plain));
    let added = FigureRow::new(NAME, "additional time of a start compared with plain bubblewrap", ours - plain, "ms");
    run.add(added.target(FigureTarget::AtMost(MOST_MS)));
    run.add(
        FigureRow::new(NAME, "a program in the sandbox, start to end", ours, "ms").beside("plain bubblewrap", plain),
    );
    Ok(())
}

async fn time(spec: ProcessSpec) -> anyhow::Result<Duration> {
    let watch = Stopwatch::start();
    let done = process::run(spec, &CancellationToken::new(), None).await?;
    anyhow::ensure!(done.success(), "{:?}: {}", done.ended, done.stderr.text());
    Ok(watch.elapsed())
}

fn plain_bubblewrap(tree: &Path, home: &Path) -> ProcessSpec {
    let mut words = ["--unshare-all", "--die-with-parent", "--new-session", "--ro-bind", "/usr", "/usr"]
        .map(str::to_owned)
        .to_vec();
    for folder in ["bin", "sbin", "lib", "lib64"] {
        words.extend(["--symlink".to_owned(), format!("usr/{folder}"), format!("/{folder}")]);
    }
    words.extend(["--proc", "/proc", "--dev", "/dev", "--tmpfs", "/tmp"].map(str::to_owned));
    for folder in [tree, home] {
        words.extend(["--bind".to_owned(), folder.display().to_string(), folder.display().to_string()]);
    }
    words.push("/bin/true".to_owned());
    ProcessSpec::new("bwrap", "/").args(words).env("PATH", "/usr/bin:/bin:/usr/local/bin")
}
