//! Real processes, well-behaved and not.

use std::os::unix::fs::PermissionsExt;

use super::*;

fn shell(script: &str) -> Spec {
    let mut spec = Spec::new("/bin/sh", "/").args(["-c", script]).env("PATH", "/usr/bin:/bin");
    spec.limits = Limits {
        wall: Duration::from_secs(20),
        idle: None,
        grace: Duration::from_millis(200),
        keep_bytes: 64 * 1024,
    };
    spec
}

async fn finished(spec: Spec) -> Finished {
    run(spec, &CancellationToken::new(), None).await.expect("it runs")
}

#[tokio::test]
async fn exit_codes_and_signals_are_told_apart() {
    for code in [0, 1, 2, 124, 125, 126, 127, 137, 139, 255] {
        let finished = finished(shell(&format!("exit {code}"))).await;
        assert_eq!(finished.ended, Ended::Exited(code));
        assert_eq!(finished.exit_code, Some(code));
        assert_eq!(finished.success(), code == 0);
    }
    for (name, number) in [("SEGV", 11), ("ABRT", 6), ("PIPE", 13), ("KILL", 9), ("TERM", 15)] {
        let finished = finished(shell(&format!("kill -{name} $$; sleep 5"))).await;
        assert_eq!(finished.ended, Ended::Signalled(number), "{name}");
        assert_eq!(finished.exit_code, None);
    }
}
