//! Forge, git and agent as plain values, and the service's effects on them.

use std::collections::{BTreeMap, BTreeSet};

use ralph_bot::domain::lifecycle::effect::{CheckPurpose, Effect, ForgeEffect, WorkEffect};
use ralph_bot::domain::loops::{
    AgentEnd, AgentRunFacts, ForgeInput, IterationChange, Loop, LoopInput, LoopState, PreparedTree, WorkOutcome,
};
use ralph_bot::domain::model::ids::{LoopId, Money, Number, Sha};
use ralph_bot::domain::model::opinion::{OpinionEnd, OpinionRun};
use ralph_bot::domain::model::task::{CheckOutcome, CheckReport, DiffStat};
use ralph_bot::domain::supervision::experience::Experience;
use ralph_bot::store::forge_posts::ForgePost;
use ralph_bot::store::loops::IssueRole;
use ralph_bot::store::outbox::ClaimedEffect;

use crate::script::AgentPlan;

/// Commit.
#[derive(Debug, Clone)]
pub struct SimCommit {
    pub parents: Vec<Sha>,
    pub tree: bool,
    pub clean: bool,
}

#[derive(Debug, Clone)]
pub struct SimPull {
    pub number: u64,
    pub branch: String,
    pub open: bool,
    pub ready: bool,
}

#[derive(Debug, Clone)]
pub struct SimComment {
    pub id: i64,
    pub on: u64,
    pub subject: String,
    pub key: String,
    pub text: String,
}

#[derive(Debug, Clone)]
pub struct SimEscalation {
    pub number: u64,
    pub subject: String,
    pub cause: String,
    pub open: bool,
}

/// State of everything outside the service.
#[derive(Debug, Default)]
pub struct SimWorld {
    pub now: i64,
    numbers: u64,
    ids: i64,
    pub commits: BTreeMap<Sha, SimCommit>,
    pub base: Option<Sha>,
    pub branches: BTreeMap<String, Sha>,
    pub pulls: Vec<SimPull>,
    pub comments: Vec<SimComment>,
    pub escalations: Vec<SimEscalation>,
    pub labels: BTreeMap<u64, BTreeSet<&'static str>>,
    /// Work trees on disk, with the iteration whose files they contain.
    pub trees: BTreeMap<LoopId, Option<u32>>,
    /// Whether people may still give commands.
    pub permitted: bool,
    /// Commits of other people on the service's branches.
    pub others: Vec<(String, Sha)>,
    /// Iterations with used one-time behavior.
    pub used: BTreeSet<(LoopId, u32)>,
    pub plans: Vec<Vec<AgentPlan>>,
    /// Counter that makes repeated commits differ from the first.
    pub salt: Option<u64>,
}

/// State of the store at the start of an effect.
pub struct StoreState {
    pub current: Option<Loop>,
    pub posted: Option<ForgePost>,
    pub escalations: Vec<Number>,
}

/// Outcome of an effect.
#[derive(Debug, Default)]
pub struct SimReceipt {
    pub input: Option<LoopInput>,
    pub posted: Option<(String, ForgePost)>,
    pub number: Option<(Number, IssueRole)>,
    /// One-time behavior that counts as used after this outcome is recorded.
    pub used: Option<(LoopId, u32)>,
    /// Whether the caller has given up.
    pub stopped: bool,
}

fn hash(parts: &[&str]) -> Sha {
    let mut state: [u64; 2] = [0xcbf2_9ce4_8422_2325, 0x1000_0000_01b3];
    for byte in parts.join("|").bytes() {
        for (n, word) in state.iter_mut().enumerate() {
            *word = (*word ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3 + 2 * n as u64);
        }
    }
    Sha::new(format!("{:016x}{:016x}{:08x}", state[0], state[1], state[0] as u32))
}

impl SimWorld {
    pub fn new(plans: Vec<Vec<AgentPlan>>, redone_commits_differ: bool) -> Self {
        let salt = redone_commits_differ.then_some(0);
        let mut world = Self { now: 1_000_000, numbers: 100, permitted: true, plans, salt, ..Self::default() };
        let base = world.record("base", Vec::new(), false, false);
        world.base = Some(base);
        world
    }

    fn record(&mut self, what: &str, parents: Vec<Sha>, tree: bool, clean: bool) -> Sha {
        let salt = self.salt.map_or(String::new(), |n| n.to_string());
        self.salt = self.salt.map(|n| n + 1);
        let mut parts: Vec<&str> = parents.iter().map(Sha::as_str).collect();
        parts.extend([what, &salt]);
        let sha = hash(&parts);
        self.commits.insert(sha.clone(), SimCommit { parents, tree, clean });
        sha
    }

    /// Whether `old` is `new` or an ancestor of it.
    pub fn holds(&self, new: &Sha, old: &Sha) -> bool {
        let parents = || self.commits.get(new).map_or(&[][..], |c| &c.parents[..]);
        new == old || parents().iter().any(|parent| self.holds(parent, old))
    }

    /// Adds another person's commit to one of the service's branches.
    pub fn human_push(&mut self, branch: &str) {
        let Some(tip) = self.branches.get(branch).cloned() else { return };
        let (tree, clean) = self.commits.get(&tip).map_or((false, false), |c| (c.tree, c.clean));
        let made = self.record("human", vec![tip], tree, clean);
        self.others.push((branch.to_owned(), made.clone()));
        self.branches.insert(branch.to_owned(), made);
    }

    /// Adds a commit to the base branch.
    pub fn base_moves(&mut self) {
        let parents = self.base.iter().cloned().collect();
        self.base = Some(self.record("base", parents, false, false));
    }

    fn find(&self, subject: &str, key: &str) -> Option<&SimComment> {
        self.comments.iter().find(|c| c.subject == subject && c.key == key)
    }

    /// Posts a comment under a key; looks it up first if it may already exist.
    fn comment(&mut self, claimed: &ClaimedEffect, on: u64, key: &str, text: &str, look: bool) -> ForgePost {
        let found = if look { self.find(&claimed.subject, key).map(|c| c.id) } else { None };
        let forge_id = found.unwrap_or_else(|| {
            self.ids += 1;
            let (subject, key) = (claimed.subject.clone(), key.to_owned());
            self.comments.push(SimComment { id: self.ids, on, subject, key, text: text.to_owned() });
            self.ids
        });
        ForgePost { forge_id, digest: String::new() }
    }

    /// Executes an effect on the forge. `look` states whether it may have been executed before.
    pub fn talk(&mut self, claimed: &ClaimedEffect, known: &StoreState, look: bool) -> SimReceipt {
        let issue = claimed.place.issue.0;
        let mut receipt = SimReceipt::default();
        let Some(current) = &known.current else { return receipt };
        match &claimed.effect {
            Effect::Forge(ForgeEffect::Comment { .. }) if known.posted.is_some() => {}
            Effect::Forge(ForgeEffect::Comment { key, on, .. }) => {
                receipt.posted = Some((key.clone(), self.comment(claimed, on.0, key, "", look)));
            }
            Effect::Forge(ForgeEffect::Status { fresh: true }) => {
                let key = format!("status/{}", claimed.id);
                let text = current.state.as_str();
                receipt.posted = Some(("status".into(), self.comment(claimed, issue, &key, text, look)));
            }
            Effect::Forge(ForgeEffect::Status { fresh: false }) => {
                let text = current.state.as_str();
                let known = known.posted.as_ref().map(|p| p.forge_id);
                let found = known.filter(|id| self.comments.iter().any(|c| c.id == *id));
                let posted = match found {
                    Some(forge_id) => ForgePost { forge_id, digest: String::new() },
                    None => self.comment(claimed, issue, "status", text, look),
                };
                if let Some(comment) = self.comments.iter_mut().find(|c| c.id == posted.forge_id) {
                    comment.text = text.to_owned();
                }
                receipt.posted = Some(("status".into(), posted));
            }
            Effect::Forge(ForgeEffect::StateLabel { state }) => {
                let labels = self.labels.entry(issue).or_default();
                labels.retain(|label| *label == "run");
                labels.extend(state.map(LoopState::as_str));
            }
            Effect::Forge(ForgeEffect::DropRunLabel) => drop(self.labels.entry(issue).or_default().remove("run")),
            Effect::Forge(ForgeEffect::Pull { ready, .. }) => self.pull(current, *ready, &mut receipt),
            Effect::Forge(ForgeEffect::DraftPull) if current.state != LoopState::Review => {
                let ours = self.pulls.iter_mut().filter(|p| p.open && p.branch == current.branch.name);
                ours.for_each(|pull| pull.ready = false);
            }
            Effect::Forge(ForgeEffect::Escalate { cause, .. }) => {
                self.escalate(claimed, known, &cause.to_string(), look, &mut receipt)
            }
            Effect::Forge(ForgeEffect::CloseEscalations { .. }) => {
                for number in &known.escalations {
                    let open = self.escalations.iter().position(|e| e.number == number.0 && e.open);
                    if let Some(open) = open {
                        self.comment(claimed, number.0, &format!("closed/{}/{number}", claimed.id), "", look);
                        self.escalations[open].open = false;
                    }
                }
            }
            _ => {}
        }
        receipt
    }

    fn pull(&mut self, current: &Loop, ready: bool, receipt: &mut SimReceipt) {
        if current.branch.pushed.is_none() {
            return;
        }
        let open = |p: &SimPull| p.open && p.branch == current.branch.name;
        // A forge rejects a branch's second open pull request, so this one is always looked up.
        if current.pull.opened.is_none() && !self.pulls.iter().any(open) {
            self.numbers += 1;
            let branch = current.branch.name.clone();
            self.pulls.push(SimPull { number: self.numbers, branch, open: true, ready: false });
        }
        let Some(pull) = self.pulls.iter_mut().find(|p| open(p)) else { return };
        if current.pull.opened.is_none() {
            let number = Number(pull.number);
            receipt.input =
                Some(LoopInput::Forge(ForgeInput::PullOpened { number, url: format!("https://forge.test/{number}") }));
            receipt.number = Some((number, IssueRole::Pull));
        }
        pull.ready |= ready && current.state == LoopState::Review;
    }

    fn escalate(
        &mut self,
        claimed: &ClaimedEffect,
        known: &StoreState,
        cause: &str,
        look: bool,
        receipt: &mut SimReceipt,
    ) {
        let open = |e: &&SimEscalation| e.open && e.subject == claimed.subject && e.cause == cause;
        let posted = known.posted.as_ref().map(|p| p.forge_id as u64);
        let told = posted.filter(|n| self.escalations.iter().any(|e| e.number == *n && e.open));
        // A first attempt with a lost response may have opened it, even if an older, closed one is known.
        let found = self.escalations.iter().find(|e| look && open(e)).map(|e| e.number);
        let number = match (told, found) {
            (Some(number), _) => {
                self.comment(claimed, number, &format!("again/{}", claimed.id), "", look);
                number
            }
            (None, Some(number)) => number,
            (None, None) => {
                self.numbers += 1;
                let (subject, cause) = (claimed.subject.clone(), cause.to_owned());
                self.escalations.push(SimEscalation { number: self.numbers, subject, cause, open: true });
                self.numbers
            }
        };
        receipt.posted = Some((claimed.key.clone(), ForgePost { forge_id: number as i64, digest: String::new() }));
        receipt.number = Some((Number(number), IssueRole::Escalation));
    }

    /// Executes a work effect.
    pub fn work(&mut self, claimed: &ClaimedEffect, known: &StoreState) -> SimReceipt {
        let Some(current) = &known.current else { return SimReceipt::default() };
        if claimed.effect.ticket().is_some_and(|ticket| ticket != current.run.ticket) {
            return SimReceipt { stopped: true, ..SimReceipt::default() };
        }
        let base = self.base.clone().expect("a base");
        let head = current.branch.head.clone().unwrap_or_else(|| base.clone());
        let mut used = None;
        let input = match &claimed.effect {
            Effect::Work(WorkEffect::Prepare { ticket }) => {
                self.trees.insert(current.id.clone(), None);
                let tree = PreparedTree {
                    problems: None,
                    base_branch: "main".into(),
                    base,
                    head,
                    remote: self.branches.get(&current.branch.name).cloned(),
                    policy: current.settings.policy.clone(),
                    notes: Vec::new(),
                    lacks: Vec::new(),
                    settings: None,
                    detected: Vec::new(),
                    proposes: false,
                    estimates: BTreeMap::new(),
                    past: Vec::new(),
                    experience: Experience::default(),
                    images: Default::default(),
                    sandbox: "none".into(),
                    proposals: Vec::new(),
                };
                LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::Prepared { tree: Box::new(tree) } }
            }
            Effect::Work(WorkEffect::Check { ticket, purpose, commit }) => {
                let made = &self.commits[commit];
                let holds = if *purpose == CheckPurpose::Clean { made.clean } else { made.tree };
                LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::Checked { report: checks(holds) } }
            }
            Effect::Work(WorkEffect::Agent { ticket, .. }) if claimed.attempts > 0 => LoopInput::Outcome {
                ticket: *ticket,
                outcome: WorkOutcome::AgentLost { salvaged: None, cost: Money(0), before_start: false },
            },
            Effect::Work(WorkEffect::Agent { ticket, iteration, .. }) => {
                self.trees.insert(current.id.clone(), Some(*iteration));
                let (end, once) = self.agent(current, *iteration);
                used = once.then(|| (current.id.clone(), *iteration));
                LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::AgentEnded { run: Box::new(facts(end)) } }
            }
            Effect::Work(WorkEffect::Commit { ticket, iteration }) => {
                let change = Box::new(self.commit(current, *iteration, head));
                LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::Committed { change } }
            }
            Effect::Work(WorkEffect::Push { .. }) if !self.permitted => LoopInput::Forge(ForgeInput::AuthorityLost {
                who: current.people.authority.login.clone(),
                hidden_teams: Vec::new(),
            }),
            Effect::Work(WorkEffect::Push { ticket, commit }) => {
                let remote = self.branches.get(&current.branch.name).cloned();
                if remote == current.branch.pushed || remote.as_ref() == Some(commit) {
                    self.branches.insert(current.branch.name.clone(), commit.clone());
                    LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::Pushed { commit: commit.clone() } }
                } else {
                    LoopInput::Outcome {
                        ticket: *ticket,
                        outcome: WorkOutcome::PushRejected {
                            remote,
                            reason: "it moved".into(),
                            refusal: Default::default(),
                        },
                    }
                }
            }
            Effect::Work(WorkEffect::Restore { ticket, iteration, to }) => {
                let head = current.branch.head.clone().expect("work to go back from");
                let (tree, clean) = self.commits.get(to).map_or((false, false), |best| (best.tree, best.clean));
                // Do not use the ticket, because faults create more tickets.
                let what = format!("{}/back/{iteration}/{head}", current.id);
                let commit = Some(self.record(&what, vec![head], tree, clean));
                LoopInput::Outcome { ticket: *ticket, outcome: WorkOutcome::Restored { commit, retained_as: None } }
            }
            Effect::Work(WorkEffect::Merge { ticket, other }) => {
                let theirs = other.clone().map(|seen| self.branches.get(&current.branch.name).cloned().unwrap_or(seen));
                let other = theirs.unwrap_or(base);
                let up_to_date = self.holds(&head, &other);
                LoopInput::Outcome {
                    ticket: *ticket,
                    outcome: WorkOutcome::Merged { other, conflicts: Vec::new(), cause: None, up_to_date, base: None },
                }
            }
            Effect::Work(WorkEffect::Release { .. }) => {
                self.trees.remove(&current.id);
                return SimReceipt::default();
            }
            Effect::Work(WorkEffect::Hooks { ticket, event }) => LoopInput::Outcome {
                ticket: *ticket,
                outcome: WorkOutcome::HooksAnswered { event: *event, objection: None },
            },
            Effect::Work(WorkEffect::SecondOpinion { ticket, commit }) => {
                let end = OpinionEnd::Missing("nobody is there".into());
                LoopInput::Outcome {
                    ticket: *ticket,
                    outcome: WorkOutcome::SecondOpinionGiven {
                        run: Box::new(OpinionRun::free(commit.clone(), "judge", end)),
                    },
                }
            }
            other => panic!("{other:?} is no work"),
        };
        SimReceipt { input: Some(input), used, ..SimReceipt::default() }
    }

    fn plan(&self, current: &Loop, iteration: u32) -> AgentPlan {
        let plans = &self.plans[current.issue.issue.0 as usize - 1];
        plans.get(iteration as usize - 1).copied().unwrap_or(AgentPlan::Change { tree: true, clean: true })
    }

    /// Returns the behavior of an agent run, and whether it occurs only once.
    fn agent(&self, current: &Loop, iteration: u32) -> (AgentEnd, bool) {
        let fresh = !self.used.contains(&(current.id.clone(), iteration));
        match self.plan(current, iteration) {
            AgentPlan::Fail => (AgentEnd::Failed { reason: "it broke".into() }, false),
            AgentPlan::Limited if fresh => (AgentEnd::Limited { until: None, reason: "quota".into() }, true),
            AgentPlan::Unavailable if fresh => (AgentEnd::Unavailable { reason: "not there".into() }, true),
            _ => (AgentEnd::Finished, false),
        }
    }

    fn commit(&mut self, current: &Loop, iteration: u32, head: Sha) -> IterationChange {
        let plan = self.plan(current, iteration);
        let mut parents = vec![head.clone()];
        parents.extend(current.branch.merging().map(|m| m.other.clone()));
        let by_agent = self.trees.get(&current.id).is_some_and(|tree| *tree == Some(iteration));
        let (tree, clean) = match plan {
            AgentPlan::Change { tree, clean } if by_agent => (tree, clean),
            AgentPlan::Fail | AgentPlan::Blocked => (false, false),
            _ => (true, true),
        };
        let nothing = parents.len() == 1 && plan == AgentPlan::Nothing;
        let what = format!("{}/{iteration}", current.id);
        let commit = (!nothing).then(|| self.record(&what, parents, tree, clean));
        IterationChange {
            tree: commit.clone().unwrap_or(head),
            commit,
            stat: DiffStat::default(),
            branch_stat: None,
            restored: Vec::new(),
            findings: Vec::new(),
            branch_findings: None,
            conflict_markers: Vec::new(),
            blocked: (plan == AgentPlan::Blocked).then(|| "it holds a secret".into()),
            set_aside: Vec::new(),
            refused: Vec::new(),
            bytes: 0,
            binary_bytes: 0,
            objective_cosine: None,
        }
    }
}

fn facts(end: AgentEnd) -> AgentRunFacts {
    AgentRunFacts {
        message: "did it".into(),
        cost: Some(Money(1_000)),
        tokens_in: 10,
        tokens_out: 5,
        tool_calls: 1,
        duration_ms: 100,
        ..AgentRunFacts::ending(end)
    }
}

fn checks(holds: bool) -> CheckReport {
    CheckReport {
        outcomes: vec![CheckOutcome {
            name: "test".into(),
            command: "make test".into(),
            holds,
            why: if holds { String::new() } else { "exited with 1".into() },
            exit_code: Some(i32::from(!holds)),
            duration_ms: 10,
            output: String::new(),
            ..CheckOutcome::default()
        }],
    }
}
