//! Client for GitHub's REST and GraphQL APIs, with addresses, credentials and pagination. Each installation has its
//! own request layer, because GitHub's rate limits apply to each separately.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use bytes::Bytes;
use http::header::{ACCEPT, AUTHORIZATION, CONTENT_TYPE, HeaderValue, IF_NONE_MATCH};
use http::{Method, Request, Response};
use ralph_types::failure::Failure;
use secrecy::{ExposeSecret, SecretString};
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::Value;
use url::Url;

use super::auth::{GitHubApp, Identity, InstallationToken, Purpose, Scope, TokenKey};
use super::wire;
use crate::clock::Clock;
use crate::domain::model::ids::RepoRef;
use crate::forge::http::{
    CallMeter, FollowCrossOrigin, MutationPace, RateSettings, ReadOnly, RequestLayer, RequestPriority, Transport,
    error, json, next_page,
};
use crate::forge::{ForgeError, ForgeErrorKind, ForgeResult};

/// Version of the REST API.
const API_VERSION: &str = "2022-11-28";
/// Maximum number of pages of a list; a page has 100 entries.
const MAX_PAGES: usize = 1_000;

/// Pauses before retries of a call that was refused with a newly created token, in milliseconds. Their sum is shorter
/// than the time after which a token is known everywhere.
const SETTLING_PAUSES_MS: [u64; 5] = [250, 500, 1_000, 2_000, 4_000];

/// API call to be made.
#[derive(Clone)]
pub(super) struct ApiCall<'a> {
    what: String,
    scope: Scope<'a>,
    method: Method,
    /// Path or address; the error is a message if it cannot be built.
    address: Result<String, Failure>,
    body: Option<Value>,
    priority: RequestPriority,
    read_only: bool,
    follow_cross_origin: bool,
    with_html: bool,
    with_fresh_addresses: bool,
}

impl<'a> ApiCall<'a> {
    /// Creates a call of a path below the API's address. Path segments are escaped. `what` describes the operation in
    /// errors.
    pub(super) fn new(scope: Scope<'a>, method: Method, path: &[&str], what: impl Into<String>) -> Self {
        Self {
            what: what.into(),
            scope,
            method,
            address: path_of(path),
            body: None,
            priority: RequestPriority::Normal,
            read_only: false,
            follow_cross_origin: false,
            with_html: false,
            with_fresh_addresses: false,
        }
    }

    /// Creates a call below a repository's path, with a token limited to that repository.
    pub(super) fn on(repo: &'a RepoRef, method: Method, path: &[&str], what: impl AsRef<str>) -> Self {
        let mut segments = vec!["repos", &repo.owner, &repo.name];
        segments.extend_from_slice(path);
        let what = format!("{} {}", what.as_ref(), repo.full_name());
        Self::new(Scope::Repository(repo, Purpose::Api), method, &segments, what)
    }

    /// Selects a token for a purpose other than [`Purpose::Api`].
    pub(super) fn purpose(mut self, purpose: Purpose) -> Self {
        if let Scope::Repository(_, of) = &mut self.scope {
            *of = purpose;
        }
        self
    }

    /// Adds query parameters.
    pub(super) fn query(mut self, pairs: &[(&str, &str)]) -> Self {
        let query = url::form_urlencoded::Serializer::new(String::new()).extend_pairs(pairs).finish();
        self.address = self.address.map(|path| format!("{path}?{query}"));
        self
    }

    /// Adds a JSON body.
    pub(super) fn json(mut self, body: Value) -> Self {
        self.body = Some(body);
        self
    }

    /// Sets the priority.
    pub(super) fn with_priority(mut self, priority: RequestPriority) -> Self {
        self.priority = priority;
        self
    }

    /// Marks the call as polling, which is refused if the request quota is nearly used up.
    pub(super) fn background(self) -> Self {
        self.with_priority(RequestPriority::Background)
    }

    /// Sends the call before other waiting calls with changes.
    pub(super) fn urgent(self) -> Self {
        self.with_priority(RequestPriority::Urgent)
    }

    /// Sends the call after other waiting calls with changes, because it only shows state that is known elsewhere.
    pub(super) fn decoration(self) -> Self {
        self.with_priority(RequestPriority::Decoration)
    }

    /// Marks a POST that changes nothing.
    pub(super) fn read_only(mut self) -> Self {
        self.read_only = true;
        self
    }

    /// Also requests the rendered HTML of texts.
    pub(super) fn with_html(mut self) -> Self {
        self.with_html = true;
        self
    }

    /// Also requests the rendered HTML of texts. Its addresses are signed for each response, so cached responses are
    /// not used.
    pub(super) fn with_fresh_addresses(self) -> Self {
        Self { with_fresh_addresses: true, ..self.with_html() }
    }

    /// Follows redirects to another host, without credentials.
    pub(super) fn follow_cross_origin(mut self) -> Self {
        self.follow_cross_origin = true;
        self
    }
}

fn path_of(segments: &[&str]) -> Result<String, Failure> {
    let mut path = String::new();
    for segment in segments {
        // A server would resolve these to another path.
        if matches!(*segment, "" | "." | "..") {
            return Err(Failure::new(format!("`{segment}` cannot be part of an address")));
        }
        path.push('/');
        for byte in segment.bytes() {
            match byte {
                b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => path.push(char::from(byte)),
                _ => path.push_str(&format!("%{byte:02X}")),
            }
        }
    }
    Ok(path)
}

/// Request layer and credential for a call.
struct Grant {
    layer: Arc<RequestLayer>,
    secret: Option<SecretString>,
    /// Key and token of an installation.
    installed: Option<(TokenKey, InstallationToken)>,
}

impl Grant {
    fn own(layer: Arc<RequestLayer>, secret: Option<SecretString>) -> Self {
        Self { layer, secret, installed: None }
    }
}

#[derive(Deserialize)]
struct MintedAnswer {
    token: String,
    expires_at: String,
}

#[derive(Deserialize)]
struct InstallationAnswer {
    id: u64,
}

/// API client with the credentials of one account.
pub(super) struct GitHubClient {
    api: Url,
    pub(super) identity: Identity,
    transport: Arc<dyn Transport>,
    clock: Clock,
    rates: RateSettings,
    layers: Mutex<HashMap<Option<u64>, Arc<RequestLayer>>>,
    meter: Arc<CallMeter>,
}

impl GitHubClient {
    /// Creates a client of the API at `api`, with or without a trailing slash.
    pub(super) fn new(
        api: Url,
        identity: Identity,
        transport: Arc<dyn Transport>,
        clock: Clock,
        rates: RateSettings,
    ) -> Self {
        Self { api, identity, transport, clock, rates, layers: Mutex::default(), meter: Arc::default() }
    }

    /// Counts of the requests with all credentials.
    pub(super) fn meter(&self) -> &CallMeter {
        &self.meter
    }

    fn layer(&self, installation: Option<u64>) -> Arc<RequestLayer> {
        // Code under this lock runs a single map operation, so the map is valid even after a panic.
        let mut layers = self.layers.lock().unwrap_or_else(PoisonError::into_inner);
        let new = || {
            let layer = RequestLayer::new(self.transport.clone(), self.clock.clone(), self.rates, MutationPace::GITHUB);
            Arc::new(layer.metered(self.meter.clone()))
        };
        layers.entry(installation).or_insert_with(new).clone()
    }

    /// Makes a call. Renews the credential once if it is rejected.
    pub(super) async fn send(&self, call: &ApiCall<'_>) -> ForgeResult<Response<Bytes>> {
        self.converse(call, Ok).await
    }

    /// Makes a call and converts its response. Failures of the conversion are treated like failures of the call.
    async fn converse<T>(
        &self,
        call: &ApiCall<'_>,
        convert: impl Fn(Response<Bytes>) -> ForgeResult<T> + Send + Sync,
    ) -> ForgeResult<T> {
        let grant = self.grant(call).await?;
        let refused = match self.patiently(call, &grant, &convert).await {
            Err(failure) if failure.kind == ForgeErrorKind::Unauthorized => failure,
            answer => return answer,
        };
        if !self.discard_credential(&grant, &refused).await {
            return Err(refused);
        }
        self.patiently(call, &self.grant(call).await?, &convert).await
    }

    /// Makes a call. Repeats it if it is refused with a token that GitHub may not know everywhere yet; a refused call
    /// has no effect.
    async fn patiently<T>(
        &self,
        call: &ApiCall<'_>,
        grant: &Grant,
        convert: &(impl Fn(Response<Bytes>) -> ForgeResult<T> + Send + Sync),
    ) -> ForgeResult<T> {
        let mut pauses = SETTLING_PAUSES_MS.into_iter();
        loop {
            let answer = match self.deliver(call, grant).await {
                // GraphQL reports limits in successful responses.
                Ok(response) => convert(response).inspect_err(|failure| {
                    if let ForgeErrorKind::RateLimited { after_ms } = failure.kind {
                        grant.layer.pause(after_ms);
                    }
                }),
                Err(failure) => Err(failure),
            };
            let Err(failure) = &answer else { return answer };
            let refused = matches!(
                failure.kind,
                ForgeErrorKind::Unauthorized | ForgeErrorKind::Denied | ForgeErrorKind::NotFound
            );
            let settling = grant.installed.as_ref().is_some_and(|(_, token)| self.settles_in_ms(token) > 0);
            let Some(pause_ms) = pauses.next().filter(|_| refused && settling) else { return answer };
            tracing::debug!(%failure, pause_ms, "GitHub refused a new token, which may not be active yet; retrying");
            tokio::time::sleep(Duration::from_millis(pause_ms)).await;
        }
    }

    fn settles_in_ms(&self, token: &InstallationToken) -> i64 {
        token.settles_in_ms(self.rates.settling_ms, self.clock.now())
    }

    /// Makes a call and parses its response.
    pub(super) async fn read<T: DeserializeOwned>(&self, call: &ApiCall<'_>) -> ForgeResult<T> {
        json(&call.what, &self.send(call).await?)
    }

    /// Reads all pages of a list; `items` extracts the entries of a page.
    pub(super) async fn pages<P: DeserializeOwned, T>(
        &self,
        call: &ApiCall<'_>,
        items: impl Fn(P) -> Vec<T>,
    ) -> ForgeResult<Vec<T>> {
        self.pages_while(call, items, |_| true).await
    }

    /// Reads the pages of a list up to and including the first page whose last entry does not satisfy `goes_on`.
    pub(super) async fn pages_while<P: DeserializeOwned, T>(
        &self,
        call: &ApiCall<'_>,
        items: impl Fn(P) -> Vec<T>,
        goes_on: impl Fn(&T) -> bool,
    ) -> ForgeResult<Vec<T>> {
        let mut call = call.clone();
        let mut all = Vec::new();
        for _ in 0..MAX_PAGES {
            let response = self.send(&call).await?;
            all.extend(items(json(&call.what, &response)?));
            let Some(next) = next_page(response.headers()) else { return Ok(all) };
            if !all.last().is_none_or(&goes_on) {
                return Ok(all);
            }
            let same_server = Url::parse(&next).is_ok_and(|next| next.origin() == self.api.origin());
            if !same_server {
                return Err(error(
                    ForgeErrorKind::Bug,
                    &call.what,
                    "the next page is on another server and was not read",
                ));
            }
            call.address = Ok(next);
        }
        Err(error(ForgeErrorKind::Bug, &call.what, format!("the list has more than {MAX_PAGES} pages")))
    }

    /// Runs a GraphQL query or mutation and returns its `data`.
    pub(super) async fn graphql(&self, mut call: ApiCall<'_>, query: &str, variables: Value) -> ForgeResult<Value> {
        // Enterprise Server has REST at `/api/v3` and GraphQL at `/api/graphql`.
        let base = self.base();
        call.address = Ok(format!("{}/graphql", base.strip_suffix("/v3").unwrap_or(base)));
        call.body = Some(serde_json::json!({ "query": query, "variables": variables }));
        self.converse(&call, |response| self.graphql_data(&call, &response)).await
    }

    /// Returns the `data` of a GraphQL response, or its first error.
    fn graphql_data(&self, call: &ApiCall<'_>, response: &Response<Bytes>) -> ForgeResult<Value> {
        let mut answer: Value = json(&call.what, response)?;
        let failure = answer.get("errors").and_then(|errors| errors.get(0)).map(|first| {
            let text = |key: &str| first.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
            (text("type"), text("message"))
        });
        let Some((kind, message)) = failure else { return Ok(answer["data"].take()) };
        let kind = match kind.as_str() {
            "NOT_FOUND" => ForgeErrorKind::NotFound,
            "FORBIDDEN" | "INSUFFICIENT_SCOPES" => ForgeErrorKind::Denied,
            "UNPROCESSABLE" => ForgeErrorKind::Conflict,
            // GitHub uses both names, and answers 200.
            "RATE_LIMIT" | "RATE_LIMITED" => ForgeErrorKind::RateLimited { after_ms: self.until_reset(response) },
            "" if message.to_ascii_lowercase().contains("rate limit") => {
                ForgeErrorKind::RateLimited { after_ms: self.until_reset(response) }
            }
            "" if message.starts_with("Something went wrong") || message.contains("timed out") => {
                ForgeErrorKind::Transient { after_ms: None, ambiguous: !call.read_only }
            }
            _ => ForgeErrorKind::Bug,
        };
        Err(error(kind, &call.what, format!("GraphQL: {}", message.chars().take(500).collect::<String>())))
    }

    /// Returns the time until the exceeded limit resets, in milliseconds; a minute if the response does not report it.
    /// The reset time of a quota that is not used up belongs to another limit.
    fn until_reset(&self, response: &Response<Bytes>) -> i64 {
        let number = |name: &str| response.headers().get(name)?.to_str().ok()?.trim().parse::<i64>().ok();
        let after = number("retry-after").map(|seconds| seconds.saturating_mul(1_000));
        let reset = number("x-ratelimit-reset").map(|at| at.saturating_mul(1_000).saturating_sub(self.clock.now().0));
        let reset = reset.filter(|_| number("x-ratelimit-remaining").is_none_or(|remaining| remaining == 0));
        after.or(reset).filter(|ms| *ms > 0).unwrap_or(60_000).min(3_600_000)
    }

    /// Returns a token for git: the personal one, or one of the installation. Also returns the time, in milliseconds,
    /// for which a refusal may mean that the token is not known yet.
    pub(super) async fn git_token(&self, repo: &RepoRef, purpose: Purpose) -> ForgeResult<(SecretString, i64)> {
        match &self.identity {
            Identity::Token(token) => Ok((token.clone(), 0)),
            Identity::App(app) => {
                let what = format!("get a token for git on {}", repo.full_name());
                let installation = self.installation(app, repo, &what).await?;
                let token = self.token(app, installation, TokenKey::Repository(repo.id, purpose), &what).await?;
                let settling_ms = self.settles_in_ms(&token);
                Ok((token.token, settling_ms))
            }
        }
    }

    /// Whether a repository belongs to an App's installation; `true` for a personal token.
    pub(super) async fn is_in_installation(&self, repo: &RepoRef, named: u64) -> ForgeResult<bool> {
        let Identity::App(app) = &self.identity else { return Ok(true) };
        if app.installation(repo.id) != Some(named) {
            // The known one is of an earlier installation, or the question is about another one.
            app.set_installation(repo.id, None);
        }
        let what = format!("find the installation of {}", repo.full_name());
        Ok(self.installation(app, repo, &what).await? == named)
    }

    /// Removes the cached installation of a repository whose name now belongs to another repository.
    pub(super) fn forget_installation(&self, repo: &RepoRef) {
        if let Identity::App(app) = &self.identity {
            app.set_installation(repo.id, None);
        }
    }

    fn base(&self) -> &str {
        self.api.as_str().trim_end_matches('/')
    }

    async fn deliver(&self, call: &ApiCall<'_>, grant: &Grant) -> ForgeResult<Response<Bytes>> {
        let request = self
            .request(call, grant)
            .map_err(|detail| error(ForgeErrorKind::Bug, &call.what, Failure::new("not sent").caused_by(detail)))?;
        grant.layer.call(&call.what, request).await
    }

    fn request(&self, call: &ApiCall<'_>, grant: &Grant) -> Result<Request<Bytes>, Failure> {
        let address = call.address.as_ref().map_err(Clone::clone)?;
        let uri = if address.starts_with('/') { format!("{}{address}", self.base()) } else { address.clone() };
        let mut builder = Request::builder()
            .method(call.method.clone())
            .uri(uri)
            .header(
                ACCEPT,
                if call.with_html { "application/vnd.github.full+json" } else { "application/vnd.github+json" },
            )
            .header("X-GitHub-Api-Version", API_VERSION);
        if call.with_fresh_addresses {
            builder = builder.header(IF_NONE_MATCH, "\"\"");
        }
        if let Some(secret) = &grant.secret {
            let bearer = HeaderValue::try_from(format!("Bearer {}", secret.expose_secret()));
            let mut bearer = bearer.map_err(|_| Failure::new("the token contains invalid characters"))?;
            bearer.set_sensitive(true);
            builder = builder.header(AUTHORIZATION, bearer);
        }
        let body = match &call.body {
            Some(body) => {
                builder = builder.header(CONTENT_TYPE, "application/json");
                Bytes::from(body.to_string())
            }
            None => Bytes::new(),
        };
        let mut request =
            builder.body(body).map_err(|failure| Failure::new("the request is not valid").caused_by(failure))?;
        request.extensions_mut().insert(call.priority);
        if call.read_only {
            request.extensions_mut().insert(ReadOnly);
        }
        if call.follow_cross_origin {
            request.extensions_mut().insert(FollowCrossOrigin);
        }
        Ok(request)
    }

    async fn grant(&self, call: &ApiCall<'_>) -> ForgeResult<Grant> {
        let app = match &self.identity {
            _ if matches!(call.scope, Scope::Anonymous) => {
                return Ok(Grant::own(self.layer(None), None));
            }
            Identity::Token(token) => {
                return Ok(Grant::own(self.layer(None), Some(token.clone())));
            }
            Identity::App(app) => app,
        };
        let (installation, key) = match call.scope {
            Scope::Anonymous | Scope::Own => {
                let unsigned =
                    |failure| error(ForgeErrorKind::Bug, &call.what, Failure::new("cannot sign").caused_by(failure));
                let signature = app.signature(self.clock.now()).map_err(unsigned)?;
                return Ok(Grant::own(self.layer(None), Some(signature)));
            }
            Scope::Installation(id) => (id, TokenKey::Installation(id)),
            Scope::Repository(repo, purpose) => {
                (self.installation(app, repo, &call.what).await?, TokenKey::Repository(repo.id, purpose))
            }
        };
        let token = self.token(app, installation, key, &call.what).await?;
        Ok(Grant {
            layer: self.layer(Some(installation)),
            secret: Some(token.token.clone()),
            installed: Some((key, token)),
        })
    }

    /// Discards a rejected credential. Returns `true` if a retry may succeed.
    async fn discard_credential(&self, grant: &Grant, refused: &ForgeError) -> bool {
        match (&self.identity, &grant.installed) {
            (Identity::App(app), Some((key, token))) => {
                app.forget(*key, &token.token).await;
                true
            }
            (Identity::App(app), None) if grant.secret.is_some() => app.adjust_clock(&refused.detail),
            _ => false,
        }
    }

    async fn installation(&self, app: &GitHubApp, repo: &RepoRef, what: &str) -> ForgeResult<u64> {
        if let Some(known) = app.installation(repo.id) {
            return Ok(known);
        }
        let path = ["repos", &repo.owner, &repo.name, "installation"];
        let call = ApiCall::new(Scope::Own, Method::GET, &path, format!("{what} (find the App's installation)"));
        // Boxed because `send` may call this; the App's own scope needs no installation, so the recursion ends here.
        let response = Box::pin(self.send(&call)).await.map_err(|mut failure| {
            if failure.kind == ForgeErrorKind::NotFound {
                failure.detail.push_str("; the App is not installed for this repository: install it, or add the repository to the installation");
            }
            failure
        })?;
        let answer: InstallationAnswer = json(what, &response)?;
        app.set_installation(repo.id, Some(answer.id));
        Ok(answer.id)
    }

    async fn token(
        &self,
        app: &GitHubApp,
        installation: u64,
        key: TokenKey,
        what: &str,
    ) -> ForgeResult<InstallationToken> {
        let slot = app.slot(key);
        let mut held = slot.lock().await;
        if let Some(minted) = held.as_ref().filter(|minted| app.is_fresh(minted, self.clock.now())) {
            return Ok(minted.clone());
        }
        let id = installation.to_string();
        let path = ["app", "installations", &id, "access_tokens"];
        // Creating a token changes nothing visible, so it does not queue with mutating calls.
        let call = ApiCall::new(Scope::Own, Method::POST, &path, format!("{what} (get a token of the installation)"))
            .json(key.request())
            .read_only();
        let answer: MintedAnswer = match Box::pin(self.read(&call)).await {
            Ok(answer) => answer,
            Err(failure) => {
                if let TokenKey::Repository(repo, _) = key {
                    app.set_installation(repo, None);
                }
                return Err(with_installation_advice(failure));
            }
        };
        let expires_at = wire::moment(&answer.expires_at).map_err(|wrong| error(ForgeErrorKind::Bug, what, wrong))?;
        let token =
            InstallationToken { token: SecretString::from(answer.token), expires_at, minted_at: self.clock.now() };
        *held = Some(token.clone());
        Ok(token)
    }
}

/// Adds advice to GitHub's status 422 for tokens, which means that the installation has not accepted the permissions
/// or does not include the repository.
fn with_installation_advice(mut failure: ForgeError) -> ForgeError {
    if !is_unprocessable(&failure) {
        return failure;
    }
    if failure.detail.to_ascii_lowercase().contains("permission") {
        failure.kind = ForgeErrorKind::Denied;
        failure
            .detail
            .push_str("; give the App the permissions of app-manifest.yml and accept them in the installation");
    } else {
        failure.kind = ForgeErrorKind::NotFound;
        failure.detail.push_str("; the installation does not include this repository");
    }
    failure
}

/// Whether GitHub rejected the content of a call (HTTP 422).
pub(super) fn is_unprocessable(failure: &ForgeError) -> bool {
    failure.kind == ForgeErrorKind::Bug && failure.detail.starts_with("HTTP 422")
}
