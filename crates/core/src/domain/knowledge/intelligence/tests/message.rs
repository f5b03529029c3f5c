//! Tests of reports that a model extracts from a final message.

use crate::domain::knowledge::intelligence::*;

#[test]
fn model_cannot_turn_doubt_into_claim() {
    let job = MessageAnalysis::of("The task is complete. Two tests still fail.");
    let answer = MessageReport { completion_signal: true, summary: "done".into(), ..MessageReport::default() };
    assert!(!job.checked(answer.clone()).unwrap().completion_signal);
    assert!(MessageAnalysis::of("All is well.").checked(answer.clone()).unwrap().completion_signal);
    let wrong = MessageReport { completion_percentage: Some(400.0), ..answer };
    assert!(job.checked(wrong).unwrap_err().to_string().contains("from 0 to 100"));
}
