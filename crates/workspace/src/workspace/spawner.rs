//! Runs a git process and returns its output as bytes. The shared `process` module returns decoded and masked text,
//! which would corrupt paths, file contents and patches.
//!
//! Invariant: after [`run`] returns or is dropped, the process and its group are dead.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::Stdio;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process_group};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWriteExt};

/// Maximum size of standard error, in bytes.
const STDERR_BYTES: usize = 1 << 20;

/// Process to run.
pub(super) struct GitProcess {
    pub program: PathBuf,
    pub args: Vec<OsString>,
    pub cwd: PathBuf,
    /// Complete environment.
    pub env: Vec<(OsString, OsString)>,
    pub stdin: Vec<u8>,
    /// Time limit.
    pub limit: Duration,
    /// Maximum size of the output, in bytes; the rest is dropped.
    pub output: usize,
}

/// Result of a git command.
#[derive(Debug)]
pub(super) struct GitOutput {
    /// Exit code; -1 if a signal ended the process.
    pub code: i32,
    pub stdout: Vec<u8>,
    pub stderr: String,
    /// Whether the output exceeded its maximum size.
    pub truncated: bool,
}

impl GitOutput {
    /// Returns the output as text without surrounding whitespace.
    pub fn text(&self) -> String {
        String::from_utf8_lossy(&self.stdout).trim().to_owned()
    }
}

/// Reason why a process has no output.
pub(super) enum GitProcessFailure {
    TimedOut,
    Io(std::io::Error),
}

/// Guard that kills a process group on drop, unless it is disarmed.
struct ProcessGroup(Option<Pid>);

impl Drop for ProcessGroup {
    fn drop(&mut self) {
        if let Some(leader) = self.0 {
            // Fails if the group has ended.
            let _ = kill_process_group(leader, Signal::KILL);
        }
    }
}

/// Runs the process until it ends.
#[expect(clippy::disallowed_methods, reason = "git's output is bytes; see the top of the file")]
pub(super) async fn run(spec: GitProcess) -> Result<GitOutput, GitProcessFailure> {
    let mut child = tokio::process::Command::new(&spec.program)
        .args(&spec.args)
        .current_dir(&spec.cwd)
        .env_clear()
        .envs(spec.env)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .process_group(0)
        .kill_on_drop(true)
        .spawn()
        .map_err(GitProcessFailure::Io)?;
    let mut group = ProcessGroup(child.id().and_then(|id| Pid::from_raw(id.cast_signed())));
    let (stdin, stdout, stderr) = (child.stdin.take(), child.stdout.take(), child.stderr.take());
    let feed = async {
        if let Some(mut stdin) = stdin {
            // A command may end without reading its input.
            let _ = stdin.write_all(&spec.stdin).await;
        }
    };
    let work = async {
        let ((), out, err, status) =
            tokio::join!(feed, capped(stdout, spec.output), capped(stderr, STDERR_BYTES), child.wait());
        let ((stdout, truncated), (stderr, _)) = (out?, err?);
        let stderr = String::from_utf8_lossy(&stderr).into_owned();
        Ok(GitOutput { code: status?.code().unwrap_or(-1), stdout, stderr, truncated })
    };
    let output = tokio::time::timeout(spec.limit, work)
        .await
        .map_err(|_| GitProcessFailure::TimedOut)?
        .map_err(GitProcessFailure::Io)?;
    group.0 = None;
    Ok(output)
}

/// Reads a stream to its end; returns the first `limit` bytes and whether there were more.
async fn capped(stream: Option<impl AsyncRead + Unpin>, limit: usize) -> std::io::Result<(Vec<u8>, bool)> {
    let Some(mut stream) = stream else { return Ok((Vec::new(), false)) };
    let mut bytes = Vec::new();
    (&mut stream).take(limit as u64).read_to_end(&mut bytes).await?;
    let excess = tokio::io::copy(&mut stream, &mut tokio::io::sink()).await?;
    Ok((bytes, excess > 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(script: &str, limit_ms: u64, output: usize) -> GitProcess {
        GitProcess {
            program: "/bin/sh".into(),
            args: vec!["-c".into(), script.into()],
            cwd: "/".into(),
            env: vec![("PATH".into(), "/usr/bin:/bin".into())],
            stdin: b"in\xff".to_vec(),
            limit: Duration::from_millis(limit_ms),
            output,
        }
    }

    #[tokio::test]
    async fn output_is_returned_as_bytes_up_to_the_limit() {
        let Ok(output) = run(script("cat; env >&2; exit 3", 10_000, 2)).await else { panic!("not run") };
        assert_eq!((output.code, output.stdout.as_slice(), output.truncated), (3, &b"in"[..], true));
        assert!(!output.stderr.contains("HOME"), "{}", output.stderr);
        let Ok(output) = run(script("cat; kill -9 $$", 10_000, 100)).await else { panic!("not run") };
        assert_eq!((output.code, output.stdout.as_slice(), output.truncated), (-1, &b"in\xff"[..], false));
    }

    #[tokio::test]
    async fn process_group_is_killed_at_the_time_limit() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join("pid");
        let text = format!("sleep 1000 & echo $! >{0}.new; mv {0}.new {0}; wait", file.display());
        assert!(matches!(run(script(&text, 700, 100)).await, Err(GitProcessFailure::TimedOut)));
        let pid = std::fs::read_to_string(&file).unwrap();
        let proc = std::path::PathBuf::from(format!("/proc/{}/stat", pid.trim()));
        // A killed process is a zombie until its new parent reaps it.
        while let Ok(stat) = std::fs::read_to_string(&proc) {
            if stat.contains(") Z ") || stat.contains(") X ") {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
}
