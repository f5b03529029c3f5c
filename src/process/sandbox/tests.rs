//! The sandbox with real bubblewrap, and its argument list without.

use super::*;

/// Whether sandbox tests can run; prints why not, and fails in CI, where they must.
pub(crate) async fn usable() -> bool {
    match installed().await {
        Ok(_) => true,
        Err(reason) => {
            let in_ci =
                std::fs::read("/proc/self/environ").is_ok_and(|e| e.split(|b| *b == 0).any(|v| v.starts_with(b"CI=")));
            assert!(!in_ci, "bubblewrap is needed here: {reason}");
            println!("skipped: {reason}");
            false
        }
    }
}

#[tokio::test]
async fn the_probe_finds_no_way_out() {
    if !usable().await {
        return;
    }
    let found = probe().await;
    assert_eq!(found.escapes.len(), 5, "{found:?}");
    assert_eq!(found.tier, Tier::A, "{found:?}");
    assert!(found.bubblewrap.is_ok());
}
