// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What is measured of a run.
use serde::Serialize;

use crate::{
    host::Host,
    path::{MSS_BYTES, Nanos, Path},
    setup::Setup,
    tcp::Tcp,
};

/// Samples of the queue and of windows in an interval.
const SAMPLES: u64 = 20;

/// The numbers of one run.
#[derive(Clone, Debug, Default, Serialize)]
pub struct Run {
    /// Length of the intervals below.
    pub interval_s: f64,
    /// Bytes that became readable, by VM and interval.
    pub vm_bytes: Vec<Vec<u64>>,
    /// The same by flow, in all.
    pub flow_bytes: Vec<u64>,
    /// Segments dropped in each interval.
    pub dropped_segments: Vec<u64>,
    /// Mean of the segments in the queue, by interval.
    pub queue_segments: Vec<f64>,
    /// Mean window of each flow over the second half, in segments.
    pub flow_windows: Vec<f64>,
    /// Mean aggregate over the second half, in segments.
    pub aggregate_segments: f64,
    /// The most that it ever was.
    pub aggregate_peak_segments: f64,
    /// From its start to its last acknowledgement, of each flow that ended by itself.
    pub completed_s: Vec<Option<f64>>,
    /// Longest time in which a flow got nothing, in intervals.
    pub timeouts: u64,
    /// Segments sent again.
    pub retransmitted_segments: u64,
    /// Reports that the engine took.
    pub reports: u64,
    /// Reductions.
    pub epochs: u32,
    /// Verdicts of the engine against VMs, and for them again.
    pub verdicts: u64,
    /// Events that reduced only the VM that told of them.
    pub lone_events: u64,
}

impl Run {
    /// Bytes of all VMs, by interval.
    pub fn sums(&self) -> Vec<u64> {
        let intervals = self.vm_bytes.first().map_or(0, Vec::len);
        (0..intervals).map(|at| self.vm_bytes.iter().map(|vm| vm[at]).sum()).collect()
    }

    /// Bytes of all VMs in the whole run.
    pub fn total_bytes(&self) -> u64 {
        self.flow_bytes.iter().sum()
    }

    /// Segments dropped in the whole run.
    pub fn total_dropped(&self) -> u64 {
        self.dropped_segments.iter().sum()
    }
}

/// Takes them while a run goes on.
#[derive(Debug)]
pub struct Recorder {
    interval_ns: Nanos,
    vms: Vec<usize>,
    run: Run,
    samples: u64,
    half: u64,
    sampled: u64,
    queue_sum: u64,
    dropped_before: u64,
    /// When the daemon was asked to look.
    pub asked_look: Option<Nanos>,
}

impl Recorder {
    /// One for this setup.
    pub fn new(setup: &Setup, interval_ns: Nanos) -> Recorder {
        let intervals = setup.duration_ns.div_ceil(interval_ns) as usize;
        let flows = setup.flows.len();
        let run = Run {
            interval_s: interval_ns as f64 / 1e9,
            vm_bytes: vec![vec![0; intervals]; setup.vms.len()],
            flow_bytes: vec![0; flows],
            flow_windows: vec![0.0; flows],
            completed_s: vec![None; flows],
            ..Run::default()
        };
        Recorder {
            interval_ns,
            vms: setup.flows.iter().map(|flow| flow.vm).collect(),
            run,
            samples: 0,
            half: setup.duration_ns / 2 / (interval_ns / SAMPLES),
            sampled: 0,
            queue_sum: 0,
            dropped_before: 0,
            asked_look: None,
        }
    }

    /// The flows are too many to add up their windows.
    pub fn skip_windows(&mut self) {
        self.half = u64::MAX;
    }

    /// Time between samples.
    pub fn sample_ns(&self) -> Nanos {
        self.interval_ns / SAMPLES
    }

    /// A flow's receiver has so much more.
    pub fn readable(&mut self, now: Nanos, flow: usize, segments: u64) {
        let bytes = segments * u64::from(MSS_BYTES);
        self.run.flow_bytes[flow] += bytes;
        self.run.vm_bytes[self.vms[flow]][(now / self.interval_ns) as usize] += bytes;
    }

    /// A flow has sent all it had.
    pub fn completed(&mut self, flow: usize, after: Nanos) {
        self.run.completed_s[flow] = Some(after as f64 / 1e9);
    }

    /// A flow ends, or the run.
    pub fn closed(&mut self, _flow: usize, tcp: &Tcp) {
        self.run.timeouts += tcp.timeouts;
        self.run.retransmitted_segments += tcp.retransmitted_segments;
    }

    /// How things are at the moment.
    pub fn sample(
        &mut self,
        path: &Path,
        windows: impl Iterator<Item = u32>,
        aggregate_bytes: u64,
    ) {
        self.samples += 1;
        let aggregate_segments = aggregate_bytes as f64 / f64::from(MSS_BYTES);
        self.run.aggregate_peak_segments = self.run.aggregate_peak_segments.max(aggregate_segments);
        self.queue_sum += path.held_segments();
        if self.samples > self.half {
            self.sampled += 1;
            self.run.aggregate_segments += aggregate_segments;
            for (sum, window) in self.run.flow_windows.iter_mut().zip(windows) {
                *sum += f64::from(window);
            }
        }
        if self.samples % SAMPLES == 0 {
            self.close_interval(path);
        }
    }

    fn close_interval(&mut self, path: &Path) {
        self.run.queue_segments.push(self.queue_sum as f64 / SAMPLES as f64);
        self.queue_sum = 0;
        self.run.dropped_segments.push(path.dropped_segments() - self.dropped_before);
        self.dropped_before = path.dropped_segments();
    }

    /// The run's numbers.
    pub fn finish(mut self, path: &Path, host: &Host) -> Run {
        self.run.dropped_segments.push(path.dropped_segments() - self.dropped_before);
        let sampled = self.sampled.max(1) as f64;
        self.run.flow_windows.iter_mut().for_each(|sum| *sum /= sampled);
        self.run.aggregate_segments /= sampled;
        self.run.reports = host.reports;
        self.run.epochs = host.status().epoch;
        self.run.verdicts = host.verdicts();
        self.run.lone_events = host.lone_events();
        self.run
    }
}
