//! Copies commits of a repository to a GitHub server without git, through GitHub's API for git objects.
//!
//! Both sides compute the object names, so each copied commit also proves that both sides agree on
//! its content.

use std::collections::{HashMap, HashSet};
use std::path::PathBuf;

use data_encoding::BASE64;
use serde_json::{Value, json};

use crate::harness::parts::{command, output};

/// Bare repository, and its copy on the server.
pub struct CommitMirror {
    client: reqwest::Client,
    /// Address of the repository in the API.
    api: String,
    folder: PathBuf,
    known: HashSet<String>,
    refs: HashMap<String, String>,
}

impl CommitMirror {
    pub fn new(client: reqwest::Client, api: String, folder: PathBuf) -> Self {
        Self { client, api, folder, known: HashSet::new(), refs: HashMap::new() }
    }

    /// Copies all new commits, authenticated by a token.
    pub async fn follow(&mut self, token: &str) -> Result<(), String> {
        let listed = self.git(&["for-each-ref", "--format=%(refname) %(objectname)", "refs/heads"]).await;
        for line in String::from_utf8_lossy(&listed).lines() {
            let (name, commit) = line.split_once(' ').expect("a ref and its commit");
            if self.refs.get(name).is_some_and(|known| known == commit) {
                continue;
            }
            let history = self.git(&["rev-list", "--reverse", "--topo-order", commit]).await;
            for commit in String::from_utf8_lossy(&history).lines() {
                if !self.known.contains(commit) {
                    self.tell_commit(token, commit).await?;
                }
            }
            match self.refs.insert(name.to_owned(), commit.to_owned()) {
                None => self.tell(token, "git/refs", json!({ "ref": name, "sha": commit })).await?,
                Some(_) => {
                    let name = name.trim_start_matches("refs/");
                    let body = json!({ "sha": commit, "force": true });
                    let request = self.client.patch(format!("{}/git/refs/{name}", self.api)).json(&body);
                    self.send(token, request).await?
                }
            };
        }
        Ok(())
    }

    async fn tell_commit(&mut self, token: &str, commit: &str) -> Result<(), String> {
        let listed = String::from_utf8(self.git(&["ls-tree", "-r", "-z", commit]).await).expect("plain names");
        let mut tree = Vec::new();
        for entry in listed.split_terminator('\0') {
            let (facts, path) = entry.split_once('\t').expect("facts and path");
            let [mode, kind, blob] = facts.split(' ').collect::<Vec<_>>()[..] else { panic!("{entry}") };
            tree.push(json!({ "path": path, "mode": mode, "type": kind, "sha": blob }));
            if self.known.insert(blob.to_owned()) {
                let content = BASE64.encode(&self.git(&["cat-file", "blob", blob]).await);
                let body = json!({ "content": content, "encoding": "base64" });
                same(blob, &self.tell(token, "git/blobs", body).await?)?;
            }
        }
        let told = self.tell(token, "git/trees", json!({ "tree": tree })).await?;
        let format = "--format=%T%n%P%n%an%n%ae%n%aI%n%cn%n%ce%n%cI";
        let facts = String::from_utf8(self.git(&["log", "-1", format, commit]).await).expect("plain facts");
        let facts: Vec<&str> = facts.lines().collect();
        same(facts[0], &told)?;
        let object = String::from_utf8(self.git(&["cat-file", "commit", commit]).await).expect("a plain message");
        let message = object.split_once("\n\n").map(|(_, message)| message).unwrap_or_default();
        let person = |at: usize| json!({ "name": facts[at], "email": facts[at + 1], "date": facts[at + 2] });
        let body = json!({
            "message": message, "tree": facts[0], "parents": facts[1].split_whitespace().collect::<Vec<_>>(),
            "author": person(2), "committer": person(5),
        });
        same(commit, &self.tell(token, "git/commits", body).await?)?;
        self.known.insert(commit.to_owned());
        Ok(())
    }

    async fn tell(&self, token: &str, path: &str, body: Value) -> Result<Value, String> {
        self.send(token, self.client.post(format!("{}/{path}", self.api)).json(&body)).await
    }

    async fn send(&self, token: &str, request: reqwest::RequestBuilder) -> Result<Value, String> {
        let answer = request.bearer_auth(token).send().await.map_err(|error| error.to_string())?;
        let (status, url) = (answer.status(), answer.url().to_string());
        let text = answer.text().await.map_err(|error| error.to_string())?;
        if !status.is_success() {
            return Err(format!("{url}: {status} {text}"));
        }
        serde_json::from_str(&text).map_err(|error| format!("{url}: {error}"))
    }

    async fn git(&self, arguments: &[&str]) -> Vec<u8> {
        output(command("git").arg("--git-dir").arg(&self.folder).args(arguments)).await
    }
}

fn same(ours: &str, theirs: &Value) -> Result<(), String> {
    if theirs["sha"] == ours { Ok(()) } else { Err(format!("we mean {ours}, the other side {}", theirs["sha"])) }
}
