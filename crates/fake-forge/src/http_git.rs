//! git over HTTP: `git http-backend` as a CGI program, with the fake forge's permissions.

use std::process::Stdio;
use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderName, HeaderValue, Response, StatusCode, header};
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, BufReader};
use tokio_util::io::{ReaderStream, StreamReader};

use super::call::{FakeReply, SignedIn};
use super::core::Core;
use super::serve::caller;
use super::state::{Access, FakeRefusal};
use super::{Dialect, github};
use ralph_types::ids::{RepoId, UserId};

/// Handles a request for `{repo}.git/{rest}`.
pub(super) async fn serve(core: &Arc<Core>, request: Request, repo: &str, rest: &str) -> Response<Body> {
    let query = request.uri().query().unwrap_or_default();
    let pushes = rest == "git-receive-pack" || query.contains("service=git-receive-pack");
    let answer = match admitted(core, request.headers(), repo, pushes) {
        Ok((repo, Some(user))) if rest == "git-receive-pack" => receive(core, request, repo, user, rest).await,
        Ok((repo, _)) => fetch(core, request, repo, rest).await,
        Err(refusal) => Err(refusal),
    };
    answer.unwrap_or_else(|refusal| refused(&refusal))
}

/// Returns the repository and the account; a push requires write access.
pub(super) fn admitted(
    core: &Core,
    headers: &HeaderMap,
    repo: &str,
    pushes: bool,
) -> Result<(RepoId, Option<UserId>), FakeRefusal> {
    let signed_in = match core.dialect {
        Dialect::Gitea => caller(core, headers)?.map_or(SignedIn::Nobody, SignedIn::Person),
        Dialect::GitHub => github::git_sign_in(core, headers)?,
    };
    let who = signed_in.user();
    let (owner, name) = repo.split_once('/').ok_or_else(|| FakeRefusal::NotFound(repo.to_owned()))?;
    let found = core.act(|state| {
        let entry = match state.find_repo(owner, name) {
            Err(FakeRefusal::Moved(id)) => state.repo(id)?,
            other => other?,
        };
        let access = state.access(entry, who);
        if who.is_none() && (pushes || access == Access::None) {
            return Err(FakeRefusal::Unauthorized);
        }
        if access == Access::None {
            return Err(FakeRefusal::NotFound(repo.to_owned()));
        }
        let edits = who.is_some_and(|user| state.may_edit_fork(entry.id, user));
        if pushes && (access < Access::Write && !edits || entry.archived) {
            return Err(FakeRefusal::Forbidden(format!("no write access to {repo}")));
        }
        Ok(entry.id)
    })?;
    Ok((found, github::for_git(core, &signed_in, found, pushes)?))
}

pub(super) fn refused(refusal: &FakeRefusal) -> Response<Body> {
    let status = match refusal {
        FakeRefusal::Unauthorized => 401,
        FakeRefusal::Forbidden(_) => 403,
        FakeRefusal::NotFound(_) => 404,
        _ => 500,
    };
    let reply = FakeReply::text(status, format!("{refusal}\n"));
    let reply = if status == 401 { reply.with("www-authenticate", "Basic realm=\"fake forge\"") } else { reply };
    reply.into_response()
}

async fn fetch(core: &Core, request: Request, repo: RepoId, rest: &str) -> Result<Response<Body>, FakeRefusal> {
    let (parts, output) = backend(core, request, repo, rest).await?;
    Ok(respond(parts, Body::from_stream(ReaderStream::new(output))))
}

/// Handles a push; responds after emitting its events.
async fn receive(
    core: &Core,
    request: Request,
    repo: RepoId,
    user: UserId,
    rest: &str,
) -> Result<Response<Body>, FakeRefusal> {
    let work = async {
        let (parts, mut output) = backend(core, request, repo, rest).await?;
        let mut bytes = Vec::new();
        output.read_to_end(&mut bytes).await.map_err(|error| failed(&error))?;
        Ok((parts, bytes))
    };
    let (parts, bytes) = core.while_refs_move(user, repo, work).await?;
    Ok(respond(parts, Body::from(bytes)))
}

fn failed(error: &std::io::Error) -> FakeRefusal {
    FakeRefusal::Git(format!("git http-backend: {error}"))
}

type Head = Vec<(String, String)>;

/// Starts the CGI program, sends it the request, and reads its response headers.
async fn backend(
    core: &Core,
    request: Request,
    repo: RepoId,
    rest: &str,
) -> Result<(Head, impl AsyncRead + Send + Unpin + 'static), FakeRefusal> {
    let (parts, body) = request.into_parts();
    let mut command = core.git.part("git-http-backend");
    let text = |name: &str| parts.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default();
    command
        .env("GIT_PROJECT_ROOT", core.git.root())
        .env("GIT_HTTP_EXPORT_ALL", "1")
        .env("PATH_INFO", format!("/{repo}.git/{rest}"))
        .env("QUERY_STRING", parts.uri.query().unwrap_or_default())
        .env("REQUEST_METHOD", parts.method.as_str())
        .env("CONTENT_TYPE", text("content-type"))
        .env("HTTP_CONTENT_ENCODING", text("content-encoding"))
        .env("GIT_PROTOCOL", text("git-protocol"))
        .env("REMOTE_USER", "pusher")
        .stdin(Stdio::piped())
        .stderr(Stdio::null());
    if let Some(length) = parts.headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()) {
        command.env("CONTENT_LENGTH", length);
    }
    let mut child = command.spawn().map_err(|error| failed(&error))?;
    let (stdin, stdout) = (child.stdin.take(), child.stdout.take());
    let (Some(mut stdin), Some(stdout)) = (stdin, stdout) else {
        return Err(FakeRefusal::Git("git http-backend has no pipes".to_owned()));
    };
    let mut incoming = StreamReader::new(body.into_data_stream().map_err(std::io::Error::other));
    // git reads the whole request before it writes a long response, so sending the request first cannot block forever. An
    // early rejection fits into the pipe.
    let _ = tokio::io::copy(&mut incoming, &mut stdin).await;
    drop(stdin);
    let mut output = BufReader::new(stdout);
    let mut head = Vec::new();
    loop {
        let mut line = String::new();
        let length = output.read_line(&mut line).await.map_err(|error| failed(&error))?;
        match line.trim_end().split_once(": ") {
            Some((name, value)) => head.push((name.to_owned(), value.to_owned())),
            None if length == 0 && head.is_empty() => {
                return Err(FakeRefusal::Git("git http-backend ended without an answer".to_owned()));
            }
            None => break,
        }
    }
    Ok((head, HttpGitOutput { output, _child: child }))
}

/// Body of the CGI program's response; ends and reaps the process on drop.
struct HttpGitOutput {
    output: BufReader<tokio::process::ChildStdout>,
    _child: tokio::process::Child,
}

impl AsyncRead for HttpGitOutput {
    fn poll_read(
        mut self: std::pin::Pin<&mut Self>,
        cx: &mut std::task::Context<'_>,
        buf: &mut tokio::io::ReadBuf<'_>,
    ) -> std::task::Poll<std::io::Result<()>> {
        std::pin::Pin::new(&mut self.output).poll_read(cx, buf)
    }
}

fn respond(head: Head, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    for (name, value) in head {
        if name.eq_ignore_ascii_case("status") {
            let code = value.split(' ').next().and_then(|code| code.parse().ok());
            *response.status_mut() = code.unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
        } else if let (Ok(name), Ok(value)) = (name.parse::<HeaderName>(), value.parse::<HeaderValue>()) {
            response.headers_mut().append(name, value);
        }
    }
    response
}
