//! Runners that a scheduler starts on demand: each takes one work effect and what continues its iteration.

use fake_forge::Dialect;
use ralph_bot::domain::loops::LoopState;

use crate::harness::on_one_forge;
use crate::harness::service::stop;
use crate::hosts::HostStory;

on_one_forge!(runners_of_one_effect_complete_a_loop);

/// Each runner has an empty data folder. The first run of the second iteration is stopped by SIGTERM.
async fn runners_of_one_effect_complete_a_loop(dialect: Dialect) {
    let wait = "if [ \"$(grep -c '^2' \"$runs\")\" = 1 ]; then sleep 600; fi";
    let Some(story) = HostStory::new(dialect, wait).await else { return };
    let service = &story.service;
    let started = async |number: usize| story.spawn_in("runner --once", &format!("once-{number}"), Vec::new());
    let refused = story.spawn_in("all --once", "control", Vec::new()).wait().await.expect("ended").code();
    assert_eq!(refused, Some(2), "{}", service.log());
    let code = started(0).await.wait().await.expect("ended").code();
    assert_eq!(code, Some(75), "there is no work: {}", service.log());
    let mut control = story.spawn_in("control", "control", Vec::new());
    service.world.label().await;
    story.until("the start", |l| l.state == LoopState::Running).await;
    let mut worked = 0;
    let mut was_stopped = false;
    for number in 1.. {
        if service.newest().await.is_some_and(|l| l.state == LoopState::Review) {
            break;
        }
        let mut runner = started(number).await;
        let code = tokio::select! {
            status = runner.wait() => status.expect("ended").code(),
            () = service.until("the second iteration", async || story.runs().len() == 2), if !was_stopped => {
                was_stopped = true;
                stop(&mut runner).await.code()
            }
        };
        match code {
            Some(0) => worked += 1,
            Some(75) => {}
            other => panic!("{other:?}: {}", service.log()),
        }
        assert!(number < 100, "{worked}: {}", service.log());
    }
    let runs = story.runs();
    assert_eq!(
        runs[..2],
        ["1 no 0", "2 yes 1"],
        "the second runner resumes the session of the first: {}",
        service.log()
    );
    assert!(runs.len() == 3 && runs[2].starts_with("2 "), "{runs:?}: {}", service.log());
    let done = service.newest().await.expect("a loop");
    let attempts: Vec<u32> = done.iterations.iter().map(|iteration| iteration.attempt).collect();
    assert_eq!(attempts[0], 1, "the first iteration was executed by one runner: {}", service.log());
    assert!((4..=8).contains(&worked), "{worked}");
    story.finish(&done, "1\n2\n").await;
    assert!(stop(&mut control).await.success(), "{}", service.log());
}
