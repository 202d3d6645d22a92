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
pub fn commands(router: &Router) -> String {
    let Router { rate_bit, limit_packets, .. } = router;
    let add = format!("qdisc add dev {BOTTLENECK}");
    match router.queue {
        Queue::Fifo => match router.mark_us {
            Some(mark_us) => marking(router, mark_us),
            None => format!("{add} root netem rate {rate_bit}bit limit {limit_packets}\n"),
        },
        Queue::FqCodel => format!(
            "{add} root handle 1: tbf rate {rate_bit}bit burst {ONE_FRAME} limit 100m\n\
             {add} parent 1:1 fq_codel noecn\n"
        ),
        Queue::Cake => {
            format!("{add} root cake bandwidth {rate_bit}bit besteffort dual-srchost\n")
        }
        Queue::Htb => classes(router),
    }
}

/// A FIFO that marks what waited longer than the threshold: that of FQ-CoDel,
/// of one queue, with a target of its control law that no packet reaches.
fn marking(router: &Router, mark_us: u64) -> String {
    let Router { rate_bit, limit_packets, .. } = router;
    format!(
        "qdisc add dev {BOTTLENECK} root handle 1: tbf rate {rate_bit}bit burst {ONE_FRAME} \
         limit 100m\n\
         qdisc add dev {BOTTLENECK} parent 1:1 fq_codel flows 1 limit {limit_packets} \
         drop_batch 1 target {NEVER} interval {NEVER} ce_threshold {mark_us}us noecn\n"
    )
}

/// A class for each VM, by weight, that lends what it does not use.
fn classes(router: &Router) -> String {
    let Router { rate_bit, limit_packets, weights, .. } = router;
    let at_once = format!("burst {ONE_FRAME} cburst {ONE_FRAME} quantum {ONE_FRAME}");
    let whole: f64 = weights.values().sum();
    let mut batch = format!(
        "qdisc add dev {BOTTLENECK} root handle 1: htb default 1\n\
         class add dev {BOTTLENECK} parent 1: classid 1:ffff htb rate {rate_bit}bit {at_once}\n"
    );
    for (number, weight) in weights {
        let part = (*rate_bit as f64 * weight / whole) as u64;
        // Writing to a String cannot fail.
        let _ = write!(
            batch,
            "class add dev {BOTTLENECK} parent 1:ffff classid 1:{number:x} htb \
             rate {part}bit ceil {rate_bit}bit {at_once}\n\
             qdisc add dev {BOTTLENECK} parent 1:{number:x} pfifo limit {limit_packets}\n\
             filter add dev {BOTTLENECK} parent 1: protocol ip prio 1 u32 \
             match ip src 10.1.{number}.0/24 flowid 1:{number:x}\n"
        );
    }
    batch
}
