//! The server out of reach.

use crate::server::On;
use crate::stage::{StoryPlan, WAITING, on_every_gitea, story};

on_every_gitea!(outage_during_an_iteration_is_survived, outage_before_the_pull_request_is_survived);

async fn outage_during_an_iteration_is_survived(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().proxied().agent(WAITING), async |stage| {
        let proxy = stage.proxy.as_ref().expect("a proxy");
        stage.label().await;
        stage.agent_waits().await;
        proxy.cut();
        let guide = stage.comment("/ralph guide Take your time.").await;
        stage.agent_goes_on();
        tokio::time::sleep(std::time::Duration::from_secs(3)).await;
        assert!(stage.repo.pulls(&stage.mira).await.is_empty(), "the proxy is not in between");
        proxy.mend();
        stage.ready(stage.issue).await;
        stage.reacted(guide, "eyes").await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
    })
    .await;
}

async fn outage_before_the_pull_request_is_survived(on: On, name: &'static str) {
    story(on, name, StoryPlan::new().proxied(), async |stage| {
        let proxy = stage.proxy.as_ref().expect("a proxy");
        stage.label().await;
        // Connections break again and again, wherever the service is.
        for _ in 0..6 {
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            proxy.cut();
            tokio::time::sleep(std::time::Duration::from_millis(300)).await;
            proxy.mend();
        }
        stage.ready(stage.issue).await;
        assert_eq!(stage.repo.pulls(&stage.mira).await.len(), 1);
        let comments = stage.repo.comments(&stage.mira, stage.issue).await;
        let mut ours: Vec<String> = comments.into_iter().map(|comment| comment.body).collect();
        let count = ours.len();
        ours.sort();
        ours.dedup();
        assert_eq!(ours.len(), count, "a comment was posted twice: {ours:#?}");
    })
    .await;
}
