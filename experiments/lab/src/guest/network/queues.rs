// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The queueing disciplines of the bottleneck.
//!
//! They are set as their manuals say for a link of this rate; each has its own
//! limits where it is not told.

use std::fmt::Write;

use crate::plan::Router;
use crate::plan::addresses::BOTTLENECK;
use crate::scenario::path::Queue;

/// Bytes that may leave at once: no more than a frame.
const ONE_FRAME: u32 = 1600;

/// A time no packet waits.
const NEVER: &str = "1000s";

/// The commands of `tc` that set the queue up.
pub fn set_up(router: &Router) -> String {
    let Router { rate_bit, limit_packets, .. } = router;
    match (router.queue, router.mark_us) {
        (Queue::Fifo, None) if !router.changes_rate() => {
            format!(
                "qdisc add dev {BOTTLENECK} root netem rate {rate_bit}bit limit {limit_packets}\n"
            )
        }
        // What waits in netem has its time to leave; in a token bucket it has not.
        (Queue::Fifo, None) => below_bucket(router, &fifo(router)),
        (Queue::Fifo, Some(mark_us)) => below_bucket(router, &marking(router, mark_us)),
        (Queue::FqCodel, _) => below_bucket(router, "fq_codel noecn"),
        // Debian 12's tc knows it by name alone, so its settings are the kernel's.
        (Queue::Dualpi2, _) => below_bucket(router, "dualpi2"),
        (Queue::Cake, _) => {
            let cake = format!("cake bandwidth {rate_bit}bit besteffort dual-srchost");
            format!("qdisc add dev {BOTTLENECK} root {cake}\n")
        }
        (Queue::Htb | Queue::HtbFqCodel, _) => classes(router),
    }
}

/// The commands that change the rate of what is set up.
pub fn change_rate(router: &Router, rate_bit: u64) -> String {
    match router.queue {
        Queue::Cake => {
            format!("qdisc change dev {BOTTLENECK} root cake bandwidth {rate_bit}bit\n")
        }
        Queue::Htb | Queue::HtbFqCodel => {
            let vms =
                router.weights.keys().map(|&number| class(router, "change", number, rate_bit));
            root_class("change", rate_bit) + &vms.collect::<String>()
        }
        Queue::Fifo | Queue::FqCodel | Queue::Dualpi2 => {
            let bucket = bucket("change", rate_bit);
            // A bucket that is changed gives its limit to a FIFO below it.
            if router.queue == Queue::Fifo && router.mark_us.is_none() {
                let fifo = fifo(router);
                return format!("{bucket}qdisc change dev {BOTTLENECK} parent 1:1 {fifo}\n");
            }
            bucket
        }
    }
}

/// A token bucket of the bottleneck's rate, and the queue that waits for it.
fn below_bucket(router: &Router, queue: &str) -> String {
    let bucket = bucket("add", router.rate_bit);
    format!("{bucket}qdisc add dev {BOTTLENECK} parent 1:1 {queue}\n")
}

fn bucket(verb: &str, rate_bit: u64) -> String {
    format!(
        "qdisc {verb} dev {BOTTLENECK} root handle 1: tbf rate {rate_bit}bit burst {ONE_FRAME} \
         limit 100m\n"
    )
}

fn fifo(router: &Router) -> String {
    format!("handle 2: pfifo limit {}", router.limit_packets)
}

/// A FIFO that marks what waited longer than the threshold: that of FQ-CoDel,
/// of one queue, with a target of its control law that no packet reaches.
fn marking(router: &Router, mark_us: u64) -> String {
    format!(
        "fq_codel flows 1 limit {} drop_batch 1 target {NEVER} interval {NEVER} \
         ce_threshold {mark_us}us noecn",
        router.limit_packets,
    )
}

/// A class for each VM, by weight, that lends what it does not use.
fn classes(router: &Router) -> String {
    let Router { rate_bit, limit_packets, weights, queue, .. } = router;
    let leaf = match queue {
        Queue::HtbFqCodel => "fq_codel noecn".to_owned(),
        _ => format!("pfifo limit {limit_packets}"),
    };
    let mut batch = format!("qdisc add dev {BOTTLENECK} root handle 1: htb default 1\n");
    batch += &root_class("add", *rate_bit);
    for &number in weights.keys() {
        batch += &class(router, "add", number, *rate_bit);
        // Writing to a String cannot fail.
        let _ = write!(
            batch,
            "qdisc add dev {BOTTLENECK} parent 1:{number:x} {leaf}\n\
             filter add dev {BOTTLENECK} parent 1: protocol ip prio 1 u32 \
             match ip src 10.1.{number}.0/24 flowid 1:{number:x}\n"
        );
    }
    batch
}

fn root_class(verb: &str, rate_bit: u64) -> String {
    let at_once = at_once();
    format!(
        "class {verb} dev {BOTTLENECK} parent 1: classid 1:ffff htb rate {rate_bit}bit {at_once}\n"
    )
}

fn class(router: &Router, verb: &str, number: u32, rate_bit: u64) -> String {
    let whole: f64 = router.weights.values().sum();
    let part = (rate_bit as f64 * router.weights[&number] / whole) as u64;
    let at_once = at_once();
    format!(
        "class {verb} dev {BOTTLENECK} parent 1:ffff classid 1:{number:x} htb \
         rate {part}bit ceil {rate_bit}bit {at_once}\n"
    )
}

fn at_once() -> String {
    format!("burst {ONE_FRAME} cburst {ONE_FRAME} quantum {ONE_FRAME}")
}
