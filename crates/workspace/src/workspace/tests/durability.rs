//! Order in which a commit reaches the disk, by the system calls of git.

use std::os::unix::fs::PermissionsExt as _;

use super::*;
use crate::workspace::git::SyncMethod;

/// Replaces git by a script that traces it to the returned file, and sets how objects reach the disk. `None` if strace is missing.
fn trace(world: &mut WorkspaceWorld, method: SyncMethod) -> Option<PathBuf> {
    let Ok(strace) = which::which("strace") else {
        skipped_tests::skip("strace is not installed");
        return None;
    };
    let (script, log) = (world.path("traced-git"), world.path("calls"));
    let calls = "fsync,fdatasync,sync_file_range,link,linkat,rename,renameat,renameat2";
    let git = world.workspaces.git.program().display().to_string();
    let content = format!(
        "#!/bin/sh\nexec {} -f -A -qq -e trace={calls} -o '{}' {git} \"$@\"\n",
        strace.display(),
        log.display()
    );
    std::fs::write(&script, content).unwrap();
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    world.workspaces.git.replace(script, method);
    Some(log)
}

/// Each object is written to the disk before it gets its name, and a ref names the commit after a sync. With a journal,
/// this sync is the only one; without, each object is synced by itself (docs/research/faults.md#d3).
#[tokio::test]
async fn commit_is_on_disk_before_a_ref_names_it() {
    for method in [SyncMethod::Journal, SyncMethod::EachObject] {
        let mut world = WorkspaceWorld::new();
        let info = world.prepare().await;
        sh(&info.dir, "mkdir a; echo one >a/one; echo two >two");
        let Some(log) = trace(&mut world, method) else { return };
        let commit = world.commit(&info.head).await.commit.unwrap();

        let calls = std::fs::read_to_string(log).unwrap();
        let (mut written, mut synced, mut objects, mut refs) = (0, 0, 0, 0);
        for call in calls.lines() {
            let name = call.split_whitespace().nth(1).unwrap_or_default();
            if name.starts_with("fsync(") || name.starts_with("fdatasync(") {
                synced += 1;
            } else if name.starts_with("sync_file_range(") {
                written += 1;
            } else if call.contains("/objects/") {
                objects += 1;
                let before = if method == SyncMethod::Journal { written } else { synced };
                assert!(before >= objects, "{method:?}: an object has a name before its content is written: {calls}");
            } else if call.contains("refs/ralph/loops/") && call.contains(commit.as_str()) {
                refs += 1;
                let syncs_of_objects = if method == SyncMethod::Journal { 0 } else { objects };
                assert!(synced > syncs_of_objects, "{method:?}: the ref is not synced: {calls}");
            }
        }
        // Two files, their folder, the root and the commit.
        assert_eq!((objects, refs), (5, 1), "{method:?}: {calls}");
        if method == SyncMethod::Journal {
            assert!(synced <= 2, "{synced} syncs: {calls}");
        }
    }
}
