//! Validates hooks: names, programs and time limits.

use std::time::Duration;

use super::Validator;
use crate::config::HookProgram;
use crate::config::operator::{HookSection, HooksSection};
use crate::domain::model::hook::{HookEvent, HookName};
use crate::domain::model::settings::ConfigSection as _;

/// Returns the hooks' names for a loop's policy.
pub(super) fn names(hooks: &[HookProgram]) -> Vec<HookName> {
    let name = |hook: &HookProgram| HookName { event: hook.event, name: hook.name.clone(), optional: hook.optional };
    hooks.iter().map(name).collect()
}

impl Validator<'_> {
    pub(super) fn hooks(&mut self, section: &HooksSection) -> Vec<HookProgram> {
        let mut checked = Vec::new();
        for event in HookEvent::ALL {
            let hooks = match event {
                HookEvent::BeforeAgent => &section.before_agent,
                HookEvent::AfterIteration => &section.after_iteration,
                HookEvent::BeforeReady => &section.before_ready,
                HookEvent::AfterEnd => &section.after_end,
            };
            for (index, hook) in hooks.iter().enumerate() {
                let key = format!("hooks.{}[{index}]", event.as_str());
                let good_name = self.short_name(&key, &hook.name);
                if good_name && hooks.iter().take(index).any(|other| other.name == hook.name) {
                    self.wrong(&format!("{key}.name"), format!("two hooks are named `{}`", hook.name));
                }
                checked.push(self.hook(&key, event, hook));
            }
        }
        checked
    }

    fn hook(&mut self, key: &str, event: HookEvent, hook: &HookSection) -> HookProgram {
        self.settings(hook.check(key));
        let mut command = hook.command.clone();
        match command.first_mut() {
            Some(program) if !program.is_empty() => {
                if program.contains('/') {
                    *program = self.base.join(program.as_str()).display().to_string();
                }
            }
            _ => self.wrong(key, "`command` is missing; set it to a program and its arguments, such as `[./gate.sh]`"),
        }
        HookProgram {
            event,
            name: hook.name.clone(),
            command,
            timeout: Duration::from_secs(hook.timeout.as_seconds()),
            sandbox: hook.sandbox,
            optional: hook.optional,
        }
    }
}
