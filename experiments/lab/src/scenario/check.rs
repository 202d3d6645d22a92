// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Reading a scenario file, and what is refused in it.

use std::collections::HashSet;
use std::path::Path;

use super::*;
use crate::error::{Context, LabError, Result};
use crate::plan::MOST_UPLINKS;

impl Scenario {
    /// Reads and checks a scenario file.
    pub fn load(path: &Path) -> Result<Self> {
        let text = std::fs::read_to_string(path).on("reading", path)?;
        let scenario = Self::parse(&text)?;
        scenario.check_files()?;
        Ok(scenario)
    }

    /// Parses and checks a scenario, without looking at the files it names.
    pub fn parse(text: &str) -> Result<Self> {
        let scenario: Self =
            serde_json::from_str(text).map_err(|e| bad("the file", e.to_string()))?;
        scenario.check()?;
        Ok(scenario)
    }

    /// VMs that have a device in this run.
    pub fn has_device(&self, vm: &Vm) -> bool {
        self.coupled && vm.device
    }

    /// Whether the laboratory stands between guests and daemon.
    pub fn relays(&self) -> bool {
        let stands_between = self.relay || self.doorbell_delay_ms.is_some();
        self.coupled && (stands_between || self.actions.iter().any(|a| a.kill_daemon))
    }

    /// Whether the daemon is spoken to.
    pub fn controls(&self) -> bool {
        self.actions.iter().any(|a| a.control.is_some())
    }

    fn check(&self) -> Result<()> {
        positive("duration_s", self.duration_s, 100_000.0)?;
        positive("bottleneck.rate_mbit", self.bottleneck.rate_mbit, 100_000.0)?;
        not_negative("bottleneck.delay_ms", self.bottleneck.delay_ms, 10_000.0)?;
        at_least_one("bottleneck.limit_packets", self.bottleneck.limit_packets.into())?;
        self.bottleneck.check_marks()?;
        at_least_one("sample_ms", self.sample_ms)?;
        at_least_one("queue_sample_ms", self.queue_sample_ms)?;
        if self.coupled && self.daemon.is_none() {
            return Err(bad("daemon", "a coupled run needs the path of ccc-vhost"));
        }
        if self.vms.is_empty() || self.vms.len() > MAX_VMS {
            return Err(bad("vms", format!("needs 1 to {MAX_VMS} entries")));
        }
        self.group.check()?;
        self.check_disturbances()?;
        self.check_actions()?;
        let mut names = HashSet::new();
        for (i, vm) in self.vms.iter().enumerate() {
            vm.check(&format!("vms[{i}]"), self.duration_s)?;
            self.check_kernel_of(vm, &format!("vms[{i}]"))?;
            if !names.insert(&vm.name) {
                return Err(bad(format!("vms[{i}].name"), format!("'{}' is there twice", vm.name)));
            }
        }
        Ok(())
    }

    fn check_disturbances(&self) -> Result<()> {
        if let Some(delay) = self.doorbell_delay_ms {
            positive("doorbell_delay_ms", delay, 10_000.0)?;
        }
        if let Some(cross) = &self.cross {
            cross.check(self.bottleneck.rate_mbit)?;
        }
        for (i, fault) in self.faults.iter().enumerate() {
            fault.check(&format!("faults[{i}]"), self.duration_s)?;
        }
        if !self.faults.is_empty() && self.topology == Topology::Single {
            return Err(bad("faults", "needs the topology vms: there are no cables in single"));
        }
        Ok(())
    }

    /// What concerns a VM's kernel, which in `single` all share.
    fn check_kernel_of(&self, vm: &Vm, at: &str) -> Result<()> {
        if self.topology == Topology::Vms {
            return self.check_delay_of(vm, at);
        }
        if vm.reboot_s.is_some() {
            return Err(bad(format!("{at}.reboot_s"), "needs the topology vms"));
        }
        if vm.module_options != self.vms[0].module_options {
            let reason = "differ from those of vms[0], in whose kernel it is";
            return Err(bad(format!("{at}.module_options"), reason));
        }
        Ok(())
    }

    fn check_delay_of(&self, vm: &Vm, at: &str) -> Result<()> {
        if self.vms.len() > MOST_UPLINKS && (vm.delay_ms.is_some() || !vm.delay_changes.is_empty())
        {
            let reason =
                format!("of more than {MOST_UPLINKS} VMs none may have a delay of its own");
            return Err(bad(format!("{at}.delay_ms"), reason));
        }
        Ok(())
    }

    fn check_actions(&self) -> Result<()> {
        let (mut earliest, mut running) = (0.0, true);
        for (i, action) in self.actions.iter().enumerate() {
            let at = format!("actions[{i}]");
            if !(earliest..=self.duration_s).contains(&action.at_s) {
                let reason = format!("{} is not in {earliest} to {}", action.at_s, self.duration_s);
                return Err(bad(format!("{at}.at_s"), reason));
            }
            earliest = action.at_s;
            action.check(&at, running)?;
            running = (running || action.start_daemon) && !action.kill_daemon;
        }
        if !self.actions.is_empty() && !self.coupled {
            return Err(bad("actions", "there is no daemon in a run that is not coupled"));
        }
        Ok(())
    }

    fn check_files(&self) -> Result<()> {
        let files = [
            ("kernel", Some(&self.kernel)),
            ("module", self.module.as_ref()),
            ("daemon", self.daemon.as_ref()),
        ];
        for (field, path) in files {
            if let Some(path) = path.filter(|p| !p.is_file()) {
                return Err(bad(field, format!("'{}' is not a file", path.display())));
            }
        }
        Ok(())
    }
}

impl Action {
    fn check(&self, at: &str, running: bool) -> Result<()> {
        let kinds = [self.control.is_some(), self.kill_daemon, self.start_daemon];
        if kinds.iter().filter(|&&kind| kind).count() != 1 {
            return Err(bad(at, "needs one of control, kill_daemon and start_daemon"));
        }
        if running == self.start_daemon {
            let state = if running { "runs already" } else { "does not run then" };
            return Err(bad(at, format!("the daemon {state}")));
        }
        self.control.as_ref().map_or(Ok(()), |request| request.check(at))
    }
}

impl Request {
    fn check(&self, at: &str) -> Result<()> {
        if self.method.is_empty() || !self.method.chars().all(|c| c.is_ascii_uppercase()) {
            return Err(bad(format!("{at}.control.method"), "needs capital letters"));
        }
        if !self.path.starts_with('/') || !self.path.chars().all(|c| c.is_ascii_graphic()) {
            return Err(bad(format!("{at}.control.path"), "needs to begin with '/'"));
        }
        Ok(())
    }
}

impl Bottleneck {
    fn check_marks(&self) -> Result<()> {
        let Some(mark_ms) = self.mark_ms else {
            return Ok(());
        };
        if self.queue != Queue::Fifo {
            return Err(bad("bottleneck.mark_ms", "goes with the queue fifo only"));
        }
        not_negative("bottleneck.mark_ms", mark_ms, 10_000.0)
    }
}

impl Group {
    fn check(&self) -> Result<()> {
        let named = [
            ("group.policy", &self.policy),
            ("group.share", &self.share),
            ("group.growth_source", &self.growth_source),
        ];
        for (field, value) in named {
            // They are written into the daemon's configuration as they are.
            let plain = |v: &&String| v.chars().all(|c| c.is_ascii_alphanumeric() || c == '-');
            if let Some(value) = value.as_ref().filter(|v| !plain(v)) {
                return Err(bad(field, format!("'{value}' is not a plain word")));
            }
        }
        self.equivalent_tcps.map_or(Ok(()), |n| positive("group.equivalent_tcps", n, 1000.0))
    }
}

impl Vm {
    fn check(&self, at: &str, duration_s: f64) -> Result<()> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.is_empty() || self.name.len() > 12 || !self.name.chars().all(plain) {
            return Err(bad(format!("{at}.name"), "needs 1 to 12 of a-z, 0-9 and '-'"));
        }
        if ["net", "lab", "receiver", "daemon"].contains(&self.name.as_str()) {
            return Err(bad(
                format!("{at}.name"),
                format!("'{}' is the laboratory's own", self.name),
            ));
        }
        if self.congestion_control.is_empty() {
            return Err(bad(format!("{at}.congestion_control"), "is empty"));
        }
        positive(&format!("{at}.weight"), self.weight, 1000.0)?;
        if let Some(delay) = self.delay_ms {
            not_negative(&format!("{at}.delay_ms"), delay, 10_000.0)?;
        }
        let mut earliest = 0.0;
        for (i, change) in self.delay_changes.iter().enumerate() {
            change.check(&format!("{at}.delay_changes[{i}]"), earliest, duration_s)?;
            earliest = change.at_s;
        }
        let mut earliest = 0.0;
        for (i, action) in self.guest_actions.iter().enumerate() {
            action.check(&format!("{at}.guest_actions[{i}]"), earliest, duration_s)?;
            earliest = action.at_s;
        }
        for (i, flows) in self.flows.iter().enumerate() {
            flows.check(&format!("{at}.flows[{i}]"), duration_s)?;
        }
        self.reboot_s.map_or(Ok(()), |reboot| self.check_reboot(reboot, at, duration_s))
    }

    /// Nothing may begin while the kernel is not there.
    fn check_reboot(&self, reboot_s: f64, at: &str, duration_s: f64) -> Result<()> {
        if !(reboot_s > 0.0 && reboot_s + BOOT_S < duration_s) {
            let reason = format!("{reboot_s} is not in 0 to duration_s less {BOOT_S} s to boot");
            return Err(bad(format!("{at}.reboot_s"), reason));
        }
        let away = reboot_s..reboot_s + BOOT_S;
        let until = away.end;
        let flows = self.flows.iter().map(|flows| flows.start_s);
        if let Some(i) = flows.clone().position(|start| away.contains(&(start + JITTER_S))) {
            let reason = format!("starts while the VM boots, up to {until} s");
            return Err(bad(format!("{at}.flows[{i}].start_s"), reason));
        }
        let mut actions = self.guest_actions.iter();
        if let Some(i) = actions.position(|action| away.contains(&action.at_s)) {
            let reason = format!("is while the VM boots, up to {until} s");
            return Err(bad(format!("{at}.guest_actions[{i}].at_s"), reason));
        }
        Ok(())
    }
}

impl Flows {
    fn check(&self, at: &str, duration_s: f64) -> Result<()> {
        if self.count == 0 || self.count > 1000 {
            return Err(bad(format!("{at}.count"), "needs 1 to 1000"));
        }
        not_negative(&format!("{at}.start_s"), self.start_s, duration_s)?;
        if let Some(stop) = self.stop_s {
            if !(stop > self.start_s && stop <= duration_s) {
                let reason = format!("{stop} is not after start_s and within duration_s");
                return Err(bad(format!("{at}.stop_s"), reason));
            }
        }
        if let Some(mss) = self.mss.filter(|mss| !(88..=1460).contains(mss)) {
            return Err(bad(format!("{at}.mss"), format!("{mss} is not in 88 to 1460")));
        }
        if self.bytes == Some(0) {
            return Err(bad(format!("{at}.bytes"), "must not be 0"));
        }
        if let Some(rate) = self.rate_kbit {
            not_negative(&format!("{at}.rate_kbit"), rate, MAX_RATE_KBIT)?;
        }
        if let Some(churn) = &self.churn {
            churn.check(&format!("{at}.churn"), self, duration_s)?;
        }
        let mut earliest = 0.0;
        for (i, phase) in self.phases.iter().enumerate() {
            phase.check(&format!("{at}.phases[{i}]"), earliest, duration_s)?;
            earliest = phase.at_s;
        }
        Ok(())
    }
}

impl Churn {
    fn check(&self, at: &str, flows: &Flows, duration_s: f64) -> Result<()> {
        if self.connections == 0 || self.connections > MAX_CHURN {
            return Err(bad(format!("{at}.connections"), format!("needs 1 to {MAX_CHURN}")));
        }
        if self.bytes == 0 || self.bytes > 65536 {
            return Err(bad(format!("{at}.bytes"), "needs 1 to 65536"));
        }
        not_negative(&format!("{at}.hold_s"), self.hold_s, duration_s)?;
        self.again_ms.map_or(Ok(()), |again| at_least_one(&format!("{at}.again_ms"), again))?;
        let alone = flows.stop_s.is_none() && flows.bytes.is_none() && flows.rate_kbit.is_none();
        if !alone || !flows.phases.is_empty() || flows.count != 1 {
            return Err(bad(at, "goes with count 1, start_s and priority only"));
        }
        Ok(())
    }
}

impl DelayChange {
    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        not_negative(&format!("{at}.delay_ms"), self.delay_ms, 10_000.0)
    }
}

impl GuestAction {
    /// What is done, and an error if that is not one thing.
    pub fn kind(&self) -> Result<GuestWork> {
        let flags = [
            (self.unload_module, GuestWork::UnloadModule),
            (self.reload_module, GuestWork::ReloadModule),
            (self.unbind_device, GuestWork::UnbindDevice),
            (self.bind_device, GuestWork::BindDevice),
        ];
        let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, work)| work);
        let control = self.congestion_control.clone().map(GuestWork::CongestionControl);
        let mut kinds: Vec<_> = flags.chain(control).collect();
        match (kinds.pop(), kinds.is_empty()) {
            (Some(kind), true) => Ok(kind),
            _ => Err(bad("guest_actions", "each needs one thing to do")),
        }
    }

    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        self.kind().map(drop).map_err(|_| bad(at, "needs one thing to do"))
    }
}

impl Phase {
    fn check(&self, at: &str, earliest: f64, duration_s: f64) -> Result<()> {
        if !(earliest..=duration_s).contains(&self.at_s) {
            let reason = format!("{} is not in {earliest} to {duration_s}", self.at_s);
            return Err(bad(format!("{at}.at_s"), reason));
        }
        match self.rate_kbit {
            Some(Some(rate)) => not_negative(&format!("{at}.rate_kbit"), rate, MAX_RATE_KBIT),
            _ => Ok(()),
        }
    }
}

fn bad(field: impl Into<String>, reason: impl Into<String>) -> LabError {
    LabError::Scenario { field: field.into(), reason: reason.into() }
}

fn positive(field: &str, value: f64, most: f64) -> Result<()> {
    if value > 0.0 && value <= most {
        return Ok(());
    }
    Err(bad(field, format!("{value} is not above 0 and at most {most}")))
}

fn not_negative(field: &str, value: f64, most: f64) -> Result<()> {
    if (0.0..=most).contains(&value) {
        return Ok(());
    }
    Err(bad(field, format!("{value} is not in 0 to {most}")))
}

fn at_least_one(field: &str, value: u64) -> Result<()> {
    if value > 0 { Ok(()) } else { Err(bad(field, "must be at least 1")) }
}
