// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a device needs of the engine, and of the operator who decides where flows
//! are coupled.
use std::net::IpAddr;

use ccc_core::{EngineError, FlowId, Grant, Micros, Report};

/// Couples flows.  VMs and groups have the operator's numbers.
pub trait FlowEngine {
    /// The group in which the operator wants a flow of a VM coupled, if in any.
    fn route(&self, vm: usize, destination: IpAddr) -> Option<usize>;

    /// Whether flows of a VM that are routed to a group are coupled there.
    fn couples(&self, vm: usize, group: usize) -> bool;

    /// What is known of a group.
    fn group_info(&self, group: usize) -> GroupInfo<'_>;

    /// Flows a VM may have, coupled or not.
    fn max_flows_per_vm(&self) -> usize;

    /// The most flows that may be coupled, if there are as many.
    fn full(&self) -> Option<usize>;

    /// Couples a flow.  One that is `adopted` has run before this engine began.
    fn register(
        &mut self,
        now: Micros,
        vm: usize,
        group: usize,
        report: &Report,
        adopted: bool,
    ) -> Result<FlowId, EngineError>;

    /// Takes a report of a coupled flow.
    fn update(&mut self, now: Micros, flow: FlowId, report: &Report) -> Result<(), EngineError>;

    /// What a coupled flow last reported, but for what is of a single event or outstanding.
    fn last_report(&self, flow: FlowId) -> Option<Report>;

    /// A flow has ended: what it had of the path is the others'.
    fn leave(&mut self, now: Micros, flow: FlowId);

    /// Flows go on alone, and keep what they have of the path.
    fn detach(&mut self, now: Micros, flows: &[FlowId]);

    /// What a VM is granted in a group.
    fn grant(&self, vm: usize, group: usize) -> Grant;
}

/// What one VM is told in its grant lines.
pub trait Grants {
    /// How far apart reports of mere progress of its flows have to be.
    fn report_interval_us(&self) -> u32;

    /// What it is granted in a group.
    fn in_group(&self, group: usize) -> Grant;
}

/// What a device has to know of a group.
#[derive(Clone, Copy, Debug)]
pub struct GroupInfo<'a> {
    /// Its name.
    pub name: &'a str,
    /// Rates are shared, not windows, which not every driver knows.
    pub by_rate: bool,
}

/// What has changed of where flows of a VM are coupled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RemapReason {
    /// Which group each of them is for.
    Routes,
    /// Whether they are coupled in a group that they are for.
    Coupling,
}

/// What a device works with while one event is served.
pub struct Context<'a> {
    /// The engine.
    pub engine: &'a mut dyn FlowEngine,
    /// The time.
    pub now: Micros,
}
