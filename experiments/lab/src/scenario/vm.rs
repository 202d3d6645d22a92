// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A tenant of the bottleneck, and what happens inside its kernel.

use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

use super::field::Field;
use super::flows::Flows;
use super::path::{MAX_DELAY_MS, check_rate};
use super::stalls::Stalls;
use crate::error::Result;

/// Names that programs and namespaces of the laboratory have.
const OWN_NAMES: [&str; 4] = ["net", "lab", "receiver", "daemon"];
/// What a kernel may take to boot, simulated.
pub const BOOT_S: f64 = 5.0;
/// Longest name.
const MAX_NAME: usize = 12;

/// One tenant.
#[derive(Debug, Clone, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Vm {
    /// Its connections.
    pub flows: Vec<Flows>,
    /// Its name in the results, and its host name; left out: `vm1` for the
    /// first VM, `vm2` for the second, …
    #[serde(default)]
    pub name: String,
    /// The operator's weight, for the daemon's configuration.
    #[serde(default = "unit")]
    pub weight: f64,
    /// Default congestion control of its sockets.
    #[serde(default = "ccc")]
    pub congestion_control: String,
    /// Whether a coupled run gives it a device.
    #[serde(default = "yes")]
    pub device: bool,
    /// Delay of its way back, in place of the bottleneck's.
    pub delay_ms: Option<f64>,
    /// Changes of that delay, in the order of times.
    #[serde(default)]
    pub delay_changes: Vec<DelayChange>,
    /// What its way back loses at random, percent, in place of the bottleneck's.
    pub return_loss_percent: Option<f64>,
    /// How much the delay of its way back is spread, in place of the bottleneck's.
    pub return_jitter_ms: Option<f64>,
    /// The link from it to the router; none: one without limits.
    pub link: Option<Link>,
    /// When its processor stands still, so that its packets wait; none: never.
    pub stalls: Option<Stalls>,
    /// What is done inside its kernel, in the order of times.
    #[serde(default)]
    pub guest_actions: Vec<GuestAction>,
    /// Parameters of the module in its kernel.
    #[serde(default)]
    pub module_options: String,
    /// Whether that module is the hostile one.
    #[serde(default)]
    pub hostile: bool,
    /// UDP datagrams that it sends beside its flows, all the time, Mbit/s of Ethernet frames.
    pub udp_mbit: Option<f64>,
    /// Whether its flows ask for ECN.
    #[serde(default)]
    pub ecn: bool,
    /// When its kernel is killed, and started again.
    pub reboot_s: Option<f64>,
}

fn unit() -> f64 {
    1.0
}

fn ccc() -> String {
    "ccc".into()
}

fn yes() -> bool {
    true
}

/// A link of a limited rate with a FIFO before it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct Link {
    /// Rate in Mbit/s, of Ethernet frames.
    pub rate_mbit: f64,
    /// Length of the FIFO in packets, the one being sent included.
    #[serde(default = "thousand")]
    pub limit_packets: u32,
    /// It goes past the bottleneck, right to the receivers.
    #[serde(default)]
    pub past_bottleneck: bool,
}

fn thousand() -> u32 {
    1000
}

/// A change of the delay of a VM's way back.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct DelayChange {
    /// When.
    pub at_s: f64,
    /// Delay from then on.
    pub delay_ms: f64,
}

/// Something done inside a VM's kernel: one of its kinds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(deny_unknown_fields)]
pub struct GuestAction {
    /// When.
    pub at_s: f64,
    /// The module is unloaded, if it is not in use.
    #[serde(default)]
    pub unload_module: bool,
    /// The module is loaded again.
    #[serde(default)]
    pub reload_module: bool,
    /// The driver lets go of its device.
    #[serde(default)]
    pub unbind_device: bool,
    /// The driver takes its device again.
    #[serde(default)]
    pub bind_device: bool,
    /// Default congestion control of new sockets.
    pub congestion_control: Option<String>,
}

/// A kind of [`GuestAction`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum GuestWork {
    /// The module is unloaded.
    UnloadModule,
    /// The module is loaded.
    ReloadModule,
    /// The driver lets go of its device.
    UnbindDevice,
    /// The driver takes its device.
    BindDevice,
    /// Default congestion control of new sockets.
    CongestionControl(String),
}

impl Vm {
    /// Whether its way back is not the bottleneck's.
    pub fn has_own_return_path(&self) -> bool {
        let own = [self.delay_ms, self.return_loss_percent, self.return_jitter_ms];
        own.iter().any(Option::is_some) || !self.delay_changes.is_empty()
    }

    pub(super) fn check(&self, at: &Field, duration_s: f64) -> Result<()> {
        self.check_name(&at.at("name"))?;
        if self.congestion_control.is_empty() {
            return at.at("congestion_control").refuse("a name such as ccc or reno", "''");
        }
        at.at("weight").above_zero(self.weight, 1000.0, "")?;
        if let Some(delay) = self.delay_ms {
            at.at("delay_ms").within(delay, 0.0, MAX_DELAY_MS, "ms")?;
        }
        if let Some(Link { rate_mbit, limit_packets, .. }) = self.link {
            check_rate(&at.at("link.rate_mbit"), rate_mbit)?;
            at.at("link.limit_packets").within(limit_packets, 1, u32::MAX, "packets")?;
        }
        if let Some(rate_mbit) = self.udp_mbit {
            check_rate(&at.at("udp_mbit"), rate_mbit)?;
        }
        if let Some(stalls) = &self.stalls {
            stalls.check(&at.at("stalls"))?;
        }
        at.in_order("delay_changes", self.delay_changes.iter().map(|c| c.at_s), duration_s)?;
        for (i, change) in self.delay_changes.iter().enumerate() {
            let delay = at.element("delay_changes", i).at("delay_ms");
            delay.within(change.delay_ms, 0.0, MAX_DELAY_MS, "ms")?;
        }
        at.in_order("guest_actions", self.guest_actions.iter().map(|a| a.at_s), duration_s)?;
        for (i, action) in self.guest_actions.iter().enumerate() {
            if action.kinds().len() != 1 {
                let at = at.element("guest_actions", i);
                return at.refuse("one thing to do", action.kinds().len());
            }
        }
        for (i, flows) in self.flows.iter().enumerate() {
            flows.check(&at.element("flows", i), duration_s)?;
        }
        self.reboot_s.map_or(Ok(()), |reboot| self.check_reboot(reboot, at, duration_s))
    }

    fn check_name(&self, at: &Field) -> Result<()> {
        let plain = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
        if self.name.len() > MAX_NAME || !self.name.chars().all(plain) {
            let expected = format!("at most {MAX_NAME} of a-z, 0-9 and '-'");
            return at.refuse(expected, format!("'{}'", self.name));
        }
        if OWN_NAMES.contains(&self.name.as_str()) {
            let expected = format!("none of the laboratory's own ({})", OWN_NAMES.join(", "));
            return at.refuse(expected, format!("'{}'", self.name));
        }
        Ok(())
    }

    /// Nothing may begin while the kernel is not there.
    fn check_reboot(&self, reboot_s: f64, at: &Field, duration_s: f64) -> Result<()> {
        if !(reboot_s > 0.0 && reboot_s + BOOT_S < duration_s) {
            let expected = format!("above 0, below duration_s less {BOOT_S} s to boot");
            return at.at("reboot_s").refuse(expected, reboot_s);
        }
        let away = reboot_s..reboot_s + BOOT_S;
        let expected = format!("no time while the VM boots, {reboot_s} to {} s", away.end);
        let mut flows = self.flows.iter();
        if let Some(i) = flows.position(|flows| flows.may_start(&away)) {
            return at.element("flows", i).at("start_s").refuse(expected, self.flows[i].start_s);
        }
        let mut actions = self.guest_actions.iter();
        if let Some(i) = actions.position(|action| away.contains(&action.at_s)) {
            let at = at.element("guest_actions", i).at("at_s");
            return at.refuse(expected, self.guest_actions[i].at_s);
        }
        Ok(())
    }
}

impl GuestAction {
    /// What is done; one thing in a scenario that was checked.
    pub fn kinds(&self) -> Vec<GuestWork> {
        let flags = [
            (self.unload_module, GuestWork::UnloadModule),
            (self.reload_module, GuestWork::ReloadModule),
            (self.unbind_device, GuestWork::UnbindDevice),
            (self.bind_device, GuestWork::BindDevice),
        ];
        let flags = flags.into_iter().filter(|(given, _)| *given).map(|(_, work)| work);
        flags.chain(self.congestion_control.clone().map(GuestWork::CongestionControl)).collect()
    }
}
