//! Embedding models: loading, error reports, and retrieval by the service.

use std::collections::HashMap;
use std::f32::consts::FRAC_1_SQRT_2;
use std::path::Path;

use ralph_bot::app::{Application, Options};
use ralph_bot::config::{Config, Env};
use ralph_bot::domain::checks::criteria::TaskType;
use ralph_bot::domain::knowledge::memory::{
    Content, Learning, LearningEvidence, LearningQuery, LearningState, MemorySettings, Source,
};
use ralph_bot::domain::lifecycle;
use ralph_bot::domain::loops::{Iteration, LoopStart, LoopTask, RunOptions, TaskText};
use ralph_bot::domain::model::dispersion::Dispersion;
use ralph_bot::domain::model::ids::IssueRef;
use ralph_bot::domain::model::ids::{
    AccountKind, ForgeName, LoopId, Number, RepoId, RepoRef, Sha, Timestamp, User, UserId,
};
use ralph_bot::domain::model::task::DiffStat;
use ralph_bot::domain::trust::policy::Policy;
use ralph_bot::embed::StaticModel;
use ralph_bot::engine::Role;
use ralph_bot::store::Store;
use ralph_bot::store::memory::{import, recall, vectors};
use safetensors::Dtype;
use safetensors::tensor::{TensorView, serialize};

/// Tokens of the model with their vectors; [UNK] is the first.
const TABLE: [(&str, [f32; 2]); 5] = [
    ("[UNK]", [9.0, 9.0]),
    ("marmot", [1.0, 0.0]),
    ("groundhog", [0.9, 0.1]),
    ("parser", [0.0, 1.0]),
    ("feed", [0.1, 0.1]),
];

fn tokenizer() -> String {
    let vocabulary: HashMap<&str, usize> = TABLE.iter().enumerate().map(|(id, (word, _))| (*word, id)).collect();
    serde_json::json!({
        "version": "1.0", "truncation": null, "padding": null, "added_tokens": [], "post_processor": null, "decoder": null,
        "normalizer": { "type": "Lowercase" }, "pre_tokenizer": { "type": "Whitespace" },
        "model": { "type": "WordLevel", "vocab": vocabulary, "unk_token": "[UNK]" },
    })
    .to_string()
}

/// Tensor: name, type, shape and bytes.
type Tensor = (&'static str, Dtype, Vec<usize>, Vec<u8>);

fn table() -> Tensor {
    let bytes = TABLE.iter().flat_map(|(_, vector)| vector).flat_map(|number| number.to_le_bytes()).collect();
    ("embeddings", Dtype::F32, vec![TABLE.len(), 2], bytes)
}

fn file(tensors: &[Tensor]) -> Vec<u8> {
    let views = tensors.iter().map(|(name, sort, shape, bytes)| {
        (*name, TensorView::new(*sort, shape.clone(), bytes).expect("the bytes fit the shape"))
    });
    serialize(views, None).expect("it serializes")
}

/// Writes a model with these tensors.
fn write(folder: &Path, tensors: &[Tensor]) {
    std::fs::write(folder.join("model.safetensors"), file(tensors)).expect("written");
    std::fs::write(folder.join("tokenizer.json"), tokenizer()).expect("written");
    std::fs::write(folder.join("config.json"), r#"{"normalize": true}"#).expect("written");
}

fn folder(tensors: &[Tensor]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    write(folder.path(), tensors);
    folder
}

fn close(found: &[f32], expected: [f32; 2]) -> bool {
    found.len() == 2 && found.iter().zip(expected).all(|(one, other)| (one - other).abs() < 1e-3)
}

#[test]
fn text_vector_is_mean_of_token_vectors() {
    let folder = folder(&[table()]);
    let model = StaticModel::load(folder.path()).expect("a model");
    let vector = |text: &str| model.embed(text).vector;
    assert!(close(&vector("Marmot"), [1.0, 0.0]) && close(&vector("marmot parser"), [FRAC_1_SQRT_2, FRAC_1_SQRT_2]));
    assert!(close(&vector("marmot unheard of"), [1.0, 0.0]), "what is unknown counts nothing");
    assert_eq!((vector(""), vector("unheard")), (vec![], vec![]));
    assert!(close(&vector(&"marmot ".repeat(100_000)), [1.0, 0.0]), "long texts are cut");
    assert_eq!(model.name().len(), 16);
}

#[test]
fn weights_mapping_and_half_precision_are_read() {
    let f64s = |numbers: &[f64]| numbers.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
    let weights: Tensor = ("weights", Dtype::F64, vec![5], f64s(&[1.0, 3.0, 1.0, 4.0, 1.0]));
    let rows: Vec<u8> = [0i64, 1, 1, 2, 0].iter().flat_map(|row| row.to_le_bytes()).collect();
    let mapping: Tensor = ("mapping", Dtype::I64, vec![5], rows);
    let small: Tensor = ("embeddings", Dtype::I8, vec![3, 2], vec![1, 1, 100, 0, 0, 100]);
    let folder = folder(&[small, weights, mapping]);
    let model = StaticModel::load(folder.path()).expect("a model");
    assert!(close(&model.embed("groundhog").vector, [1.0, 0.0]), "two words share a vector");
    assert!(close(&model.embed("marmot parser").vector, [0.6, 0.8]), "3 and 4 are their weights");
}

#[test]
fn invalid_model_is_reported_with_its_file() {
    let halves: Tensor = ("embeddings", Dtype::F16, vec![5, 2], vec![0; 20]);
    let odd: Tensor = ("embeddings", Dtype::BOOL, vec![5, 2], vec![0; 10]);
    let flat: Tensor = ("embeddings", Dtype::F16, vec![10], vec![0; 20]);
    let few: Tensor = ("embeddings", Dtype::F16, vec![3, 2], vec![0; 12]);
    let nothing: Tensor = ("embeddings", Dtype::F16, vec![0, 2], vec![]);
    let infinite: Tensor = ("embeddings", Dtype::F16, vec![5, 2], [0x00, 0x7c].repeat(10));
    let beyond: Tensor = ("mapping", Dtype::I32, vec![5], 7i32.to_le_bytes().repeat(5));
    let short: Tensor = ("weights", Dtype::F32, vec![2], vec![0; 8]);
    let other: Tensor = ("vectors", Dtype::F16, vec![5, 2], vec![0; 20]);
    let cases: [(&[Tensor], &str); 8] = [
        (&[odd], "type BOOL, which is not supported"),
        (&[flat], "must have two dimensions"),
        (&[few], "3 vectors; the tokenizer knows 5 tokens"),
        (&[nothing], "its table is empty"),
        (&[infinite], "a value that is not a number"),
        (&[halves.clone(), beyond], "does not have"),
        (&[halves, short], "weights has the shape [2]"),
        (&[other], "none of the tensors embeddings"),
    ];
    for (tensors, says) in cases {
        let folder = folder(tensors);
        let error = format!("{:#}", StaticModel::load(folder.path()).expect_err(says));
        assert!(error.contains("model.safetensors: ") && error.contains(says), "{error}");
    }
    for (name, text) in [("model.safetensors", "{}"), ("tokenizer.json", "{\"model\":1}"), ("config.json", "[]")] {
        let folder = folder(&[table()]);
        std::fs::write(folder.path().join(name), text).expect("written");
        let error = format!("{:#}", StaticModel::load(folder.path()).expect_err(name));
        assert!(error.contains(name), "{error}");
        std::fs::remove_file(folder.path().join(name)).expect("removed");
        let error = format!("{:#}", StaticModel::load(folder.path()).expect_err(name));
        assert!(error.contains(name) && error.contains("No such file"), "{error}");
    }
}

#[test]
fn model_digest_covers_all_files() {
    let folder = folder(&[table()]);
    let name = || StaticModel::load(folder.path()).expect("a model").name().to_owned();
    let first = name();
    assert_eq!(first, name());
    std::fs::write(folder.path().join("config.json"), "{}").expect("written");
    assert_ne!(first, name());
}

const CONFIG: &str = "data_dir: data\nserver: { listen: \"127.0.0.1:0\" }\nsandbox: { required: none }\nbackends: { mine: { type: script, command: [/bin/true], roles: [agent] } }\nforges: [{ name: f, kind: gitea, url: \"http://127.0.0.1:9\", own_id: 7, token_env: T, webhook_secret_env: S }]\n";

fn config(folder: &Path) -> Result<Config, String> {
    let text = format!("{CONFIG}memory: {{ embeddings: model }}\n");
    let env = Env::of([("T", "token"), ("S", "0123456789012345678901234567890123456789")]);
    Config::parse(&folder.join("ralph-control.yaml"), &text, &env).map_err(|problems| problems.to_string())
}

#[tokio::test]
async fn missing_and_broken_model_files_are_reported() {
    let folder = tempfile::tempdir().expect("a folder");
    let error = config(folder.path()).expect_err("there is no model");
    for name in ["model.safetensors", "tokenizer.json", "config.json"] {
        assert!(error.contains(&format!("model/{name}: No such file")), "{error}");
    }
    let model = folder.path().join("model");
    std::fs::create_dir(&model).expect("made");
    write(&model, &[table()]);
    assert_eq!(config(folder.path()).expect("a model").memory.embeddings.as_deref(), Some(model.as_path()));
    std::fs::write(model.join("tokenizer.json"), "{").expect("written");
    let config = config(folder.path()).expect("its files are there");
    let env = Env::of([("PATH", "/usr/bin:/bin")]);
    let error = Application::start(&config, &env, Options::of(&config)).await.err().expect("it does not start");
    let error = format!("{error:#}");
    assert!(
        error.starts_with("`memory.embeddings`: ") && error.contains("tokenizer.json: it is not a valid tokenizer"),
        "{error}"
    );
}

fn repository() -> RepoRef {
    RepoRef { forge: ForgeName::new("f"), id: RepoId(1), owner: "acme".into(), name: "app".into() }
}

/// Two trusted approaches, one of which is about animals.
fn learnings(now: Timestamp) -> Vec<Learning> {
    let learning = |approach: &str| {
        let (approach, iterations) = (approach.into(), Dispersion::of(2.0));
        let content = Content::Strategy { approach, tools: Vec::new(), resolution: String::new(), iterations };
        let source = Source { loop_id: LoopId::new("r-1"), iteration: None };
        let learning = Learning::new(&repository(), TaskType::Other, content, 0.9, source, now);
        Learning {
            state: LearningState::Active,
            evidence: LearningEvidence { successes: 4.0, failures: 0.0 },
            ..learning
        }
    };
    ["Feed the marmot", "Rewrite the parser"].map(learning).into()
}

#[tokio::test]
async fn prompts_contain_learnings_with_similar_meaning() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    std::fs::create_dir(&model).expect("made");
    write(&model, &[table()]);
    let env = Env::of([("PATH", "/usr/bin:/bin")]);
    let config = config(folder.path()).expect("a model");
    let options = Options { role: Role::Ingest, ..Options::of(&config) };
    let app = Application::start(&config, &env, options).await.expect("it starts");
    let now = app.engine.clock.now();
    let learnt = learnings(now);
    app.engine.store.write(move |c| import(c, &learnt, &MemorySettings::default(), now)).await.expect("imported");
    let task = LoopTask {
        text: TaskText::new("The groundhog is hungry", "", None),
        url: String::new(),
        hash: String::new(),
        author: None,
        author_trusted: true,
        unconfirmed_editor: None,
        edited_after: false,
        labels: Vec::new(),
    };
    let begun = lifecycle::start(
        LoopStart {
            request: String::new(),
            existing: None,
            id: LoopId::new("r-2"),
            place: IssueRef { repo: repository(), issue: Number(1) },
            by: User { id: UserId(5), login: "mira".into(), kind: AccountKind::User },
            task,
            options: RunOptions::default(),
            plan: None,
            policy: Policy::default(),
            comment: None,
            hidden_removed: 0,
            round: 1,
        },
        now,
    );
    // Without vectors nothing would be found: no word is shared. The first look makes them.
    let recalled = app.engine.recall.prompt_memory(&begun.next).await;
    let texts: Vec<_> = recalled.learnings.iter().map(|learning| learning.text.as_str()).collect();
    assert!(texts.first().is_some_and(|text| text.contains("Feed the marmot")), "{texts:?}");

    // Work on the task in other words is near to it; other work is not.
    let mut working = begun.next.clone();
    working.task.text = TaskText::new(working.task.text.title(), "Feed the groundhog", None);
    let mut cosine_of = |summary: &str| {
        let commit = Sha::new("0".repeat(40));
        working.iterations = vec![Iteration::new(1, now, commit, Vec::new())];
        working.iterations[0].report.summary = summary.into();
        app.engine.recall.objective_cosine(&working, &DiffStat::default())
    };
    let (near, far) = (cosine_of("The marmot gets its feed"), cosine_of("Split the parser in modules"));
    assert!(near.is_some_and(|near| near > 0.9) && far.is_some_and(|far| far < 0.5), "{near:?} {far:?}");
    assert_eq!(cosine_of(""), None, "no text");
    app.stop().await;
}

#[tokio::test]
async fn real_model_finds_text_without_shared_words() {
    let folder = folder(&[table()]);
    let model = StaticModel::load(folder.path()).expect("a model");
    let (repository, now) = (repository(), Timestamp(1_000));
    let learnings = learnings(now);
    let store = Store::in_memory().expect("opened");
    store.write(move |c| import(c, &learnings, &MemorySettings::default(), now)).await.expect("imported");
    let name = model.name().to_owned();
    let missing = store.read(move |c| vectors::missing(c, &name, 10)).await.expect("read");
    let made: Vec<_> = missing.into_iter().map(|one| (one.clone(), model.embed(&one.text))).collect();
    assert_eq!(made.len(), 2);
    store.write(move |c| vectors::keep(c, &made)).await.expect("kept");
    let text = "The groundhog is hungry".to_owned();
    let embedding = Some(model.embed(&text));
    let query = LearningQuery { text, task_type: TaskType::Other, repository, embedding };
    let gists = async |query: LearningQuery| -> Vec<String> {
        let found = recall(&store, query, MemorySettings::default(), now).await.expect("found");
        found.into_iter().map(|one| one.learning.content.gist().to_owned()).collect()
    };
    assert_eq!(gists(query.clone()).await, ["Feed the marmot", "Rewrite the parser"], "the nearer one comes first");
    assert!(gists(LearningQuery { embedding: None, ..query }).await.is_empty(), "no word is shared");
}
