//! Questions with typical answers of models.

use std::collections::VecDeque;
use std::sync::Mutex;

use serde::Deserialize;
use serde_json::json;

use super::*;

#[derive(Debug, PartialEq, Deserialize)]
struct AnswerPlan {
    approach: String,
    steps: Vec<String>,
}

fn question() -> Question {
    let schema = json!({"type": "object", "required": ["approach", "steps"], "properties": {
        "approach": {"enum": ["persist", "pivot"]},
        "steps": {"type": "array", "items": {"type": "string"}, "maxItems": 3},
    }});
    Question {
        system: "You plan.".into(),
        prompt: "Plan this.".into(),
        schema: AnswerSchema { name: "plan".into(), schema },
    }
}

fn limits() -> AskLimits {
    AskLimits { model: "m".into(), max_tokens: 500, timeout: Duration::from_secs(5) }
}

/// Returns answers in order and records the requests.
struct ScriptedAssistant {
    answers: Mutex<VecDeque<Result<ChatAnswer, CallError>>>,
    asked: Mutex<Vec<ChatRequest>>,
}

#[async_trait]
impl Assistant for ScriptedAssistant {
    async fn complete(&self, request: &ChatRequest) -> Result<ChatAnswer, CallError> {
        self.asked.lock().unwrap().push(request.clone());
        let next = self.answers.lock().unwrap().pop_front();
        match next {
            Some(answer) => answer,
            None => std::future::pending().await,
        }
    }
}

fn said(text: &str) -> Result<ChatAnswer, CallError> {
    Ok(ChatAnswer {
        turn: ModelTurn { text: text.into(), ..ModelTurn::default() },
        stop: ModelStop::End,
        usage: Some(TokenUsage { input: 10, output: 5, ..TokenUsage::default() }),
        model: "m-full".into(),
    })
}

fn refused(status: u16) -> Result<ChatAnswer, CallError> {
    let signals = LimitSignals { status: Some(status), ..LimitSignals::default() };
    Err(CallError { signals, retryable: false, what: format!("HTTP {status}") })
}

async fn asked(
    answers: impl IntoIterator<Item = Result<ChatAnswer, CallError>>,
) -> (Result<AssistantAnswer<AnswerPlan>, AssistantFailure>, Vec<ChatRequest>) {
    let script = ScriptedAssistant { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() };
    let result = ask(&script, &question(), &limits(), &Ok).await;
    (result, script.asked.into_inner().unwrap())
}

const GOOD: &str = r#"{"approach":"pivot","steps":["a"]}"#;

#[tokio::test]
async fn json_is_found_anywhere_in_the_answer() {
    for text in [
        GOOD.to_owned(),
        format!("\u{feff} {GOOD}\n"),
        format!("```json\n{GOOD}\n```"),
        format!("Here it is [as asked]:\n\n```\n{GOOD}\n```\nI hope {{this}} helps."),
        format!("First I thought of {{\"approach\": 1}}, but: {GOOD}"),
        format!("{{ {GOOD} }}"),
        format!("{}{GOOD}", "{".repeat(150)),
        format!("{GOOD} {{\"approach\":\"persist\",\"steps\":[]}}"),
    ] {
        let (result, requests) = asked([said(&text)]).await;
        let result = result.unwrap_or_else(|failure| panic!("{text}: {failure}"));
        assert_eq!(result.value, AnswerPlan { approach: "pivot".into(), steps: vec!["a".into()] });
        assert_eq!((result.spent.calls, result.spent.usage.total(), requests.len()), (1, 15, 1));
        assert_eq!(result.spent.model, "m-full");
        assert!(requests[0].system.starts_with("You plan.\n\nAnswer only with one JSON value"));
    }
}

#[tokio::test]
async fn invalid_answer_is_requested_again_with_the_problem() {
    for (wrong, words) in [
        ("I would rather not use JSON.", "it contains no JSON"),
        ("", "it contains no JSON"),
        (r#"{"approach":"pivot","steps":["a"#, "it contains no JSON (EOF"),
        (r#"{"approach":"flee","steps":[]}"#, "/approach: expected one of [\"persist\",\"pivot\"]"),
        (r#"{"approach":"pivot"}"#, "/steps is missing"),
        (r#"{"approach":"pivot","steps":["1","2","3","4"]}"#, "at most 3 entries"),
    ] {
        let (result, requests) = asked([said(wrong), said(GOOD)]).await;
        let result = result.unwrap();
        assert_eq!((result.spent.calls, result.spent.usage.input, requests.len()), (2, 20, 2), "{wrong}");
        let ChatMessage::User(complaint) = &requests[1].messages[2] else { panic!("{requests:?}") };
        assert!(complaint.contains(words), "{wrong}: {complaint}");

        let (result, requests) = asked([said(wrong), said(wrong), said(GOOD)]).await;
        let failure = result.unwrap_err();
        assert!(failure.what.contains(words) && requests.len() == 2, "{failure}");
        assert_eq!((failure.spent.calls, failure.spent.usage.output, failure.fault), (2, 10, AssistantFault::Answer));
    }
}

#[tokio::test]
async fn cut_answer_is_reported_to_the_model() {
    let cut = said(r#"{"approach":"pivot","st"#).map(|answer| ChatAnswer { stop: ModelStop::MaxTokens, ..answer });
    let (_, requests) = asked([cut, said(GOOD)]).await;
    let ChatMessage::User(complaint) = &requests[1].messages[2] else { panic!("{requests:?}") };
    assert!(complaint.contains("be brief"), "{complaint}");
}

#[tokio::test]
async fn failed_requests_are_repeated_only_without_schema() {
    for status in [429, 401, 500, 529] {
        let (result, requests) = asked([refused(status), said(GOOD)]).await;
        let failure = result.unwrap_err();
        let AssistantFault::Call(signals) = failure.fault else { panic!("{failure:?}") };
        assert_eq!((signals.status, requests.len()), (Some(status), 1));
    }
    let (result, requests) = asked([refused(400), said(GOOD)]).await;
    assert_eq!(result.unwrap().value.approach, "pivot");
    assert!(requests[0].schema.is_some() && requests[1].schema.is_none() && requests[1].messages.len() == 1);
    let (result, requests) = asked([refused(400), refused(400), said(GOOD)]).await;
    assert_eq!((result.unwrap_err().what.as_str(), requests.len()), ("HTTP 400", 2));
}

#[tokio::test]
async fn refusal_and_timeout_are_failures() {
    let refusal = said("I must not").map(|answer| ChatAnswer { stop: ModelStop::Refused, ..answer });
    let (result, requests) = asked([refusal, said(GOOD)]).await;
    assert!(result.unwrap_err().what.contains("refused to answer: I must not") && requests.len() == 1);

    let script = ScriptedAssistant { answers: Mutex::default(), asked: Mutex::default() };
    let short = AskLimits { timeout: Duration::from_millis(20), ..limits() };
    let failure = ask::<AnswerPlan>(&script, &question(), &short, &Ok).await.unwrap_err();
    assert_eq!((failure.what.as_str(), &failure.fault), ("there was no answer within 0.02 s", &AssistantFault::Time));
    assert!(failure.spent.estimated && failure.spent.usage.input > 50, "what was sent may have to be paid");
}

#[tokio::test]
async fn answer_that_violates_a_rule_is_requested_again() {
    let no_steps = |plan: AnswerPlan| match plan.steps.is_empty() {
        true => Err("`steps` is empty".into()),
        false => Ok(AnswerPlan { approach: plan.approach.to_uppercase(), ..plan }),
    };
    let empty = r#"{"approach":"pivot","steps":[]}"#;
    for (answers, told) in [([said(empty), said(GOOD)], Ok("PIVOT")), ([said(empty), said(empty)], Err("is empty"))] {
        let script = ScriptedAssistant { answers: Mutex::new(answers.into_iter().collect()), asked: Mutex::default() };
        let result = ask(&script, &question(), &limits(), &no_steps).await;
        match (result, told) {
            (Ok(asked), Ok(approach)) => assert_eq!(asked.value.approach, approach),
            (Err(failure), Err(why)) => assert!(failure.what.contains(why), "{failure}"),
            (other, _) => panic!("{other:?}"),
        }
        let complaint = format!("{:?}", script.asked.into_inner().unwrap()[1].messages[2]);
        assert!(complaint.contains("`steps` is empty"), "{complaint}");
    }
}

#[tokio::test]
async fn missing_token_counts_are_estimated() {
    let (result, _) = asked([said(GOOD).map(|answer| ChatAnswer { usage: None, ..answer })]).await;
    let spent = result.unwrap().spent;
    assert!(spent.estimated && spent.usage.output == 12 && spent.usage.input > 50, "{spent:?}");
}
