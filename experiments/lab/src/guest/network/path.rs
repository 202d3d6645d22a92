// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The shared path: the bottleneck's queue, and the way back.
//!
//! The way back is the queue of `rcv`, the receivers' interface; where VMs have
//! one of their own, that of the router's interfaces to them.

use super::queues;
use crate::error::Result;
use crate::guest::clock::Clock;
use crate::guest::system::batch;
use crate::plan::addresses::{BOTTLENECK, RECEIVER};
use crate::plan::{PathChange, ReturnPath, Router};

/// Sets it up; returns the queues as `tc` shows them.
pub fn set_up(router: &Router) -> Result<Vec<String>> {
    let mut qdiscs = vec![batch("tc", None, &bottleneck(router))?];
    if router.own_return_paths.is_empty() {
        qdiscs.push(batch("tc", Some(RECEIVER), &way_back("add", "rcv", &router.return_path))?);
    }
    for (number, path) in &router.own_return_paths {
        let device = router.uplink_device(*number);
        qdiscs.push(batch("tc", None, &way_back("add", &device, path))?);
    }
    Ok(qdiscs)
}

/// Changes what is to be changed when its time has come.
pub fn change(router: &Router, clock: Clock) -> Result<()> {
    for (at_ns, change) in &router.changes {
        clock.sleep_until(*at_ns);
        batch("tc", None, &commands(router, change))?;
    }
    Ok(())
}

fn commands(router: &Router, change: &PathChange) -> String {
    match *change {
        PathChange::Rate(rate_bit) => queues::change_rate(router, rate_bit),
        PathChange::Delay(number, delay_us) => {
            let path = router.own_return_paths.get(&number).unwrap_or(&router.return_path);
            let path = ReturnPath { delay_us, ..*path };
            way_back("change", &router.uplink_device(number), &path)
        }
    }
}

fn bottleneck(router: &Router) -> String {
    format!("{}qdisc show dev {BOTTLENECK}\n", queues::set_up(router))
}

fn way_back(verb: &str, device: &str, path: &ReturnPath) -> String {
    let ReturnPath { delay_us, jitter_us, loss_percent } = *path;
    let jitter = if jitter_us > 0 { format!(" {jitter_us}us") } else { String::new() };
    let loss = if loss_percent > 0.0 { format!(" loss {loss_percent}%") } else { String::new() };
    format!(
        "qdisc {verb} dev {device} root netem delay {delay_us}us{jitter}{loss} limit 1000000\n\
         qdisc show dev {device}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scenario::path::Queue;

    fn router(uplinks: Vec<Vec<u32>>) -> Router {
        Router {
            rate_bit: 10_000_000,
            limit_packets: 83,
            weights: [(1, 3.0), (2, 1.0)].into(),
            uplinks,
            ..Router::default()
        }
    }

    #[test]
    fn the_bottleneck_has_rate_and_limit() {
        assert!(bottleneck(&router(vec![])).contains("netem rate 10000000bit limit 83\n"));
        let marking = Router { mark_us: Some(30_000), ..router(vec![]) };
        assert!(bottleneck(&marking).contains("flows 1 limit 83 drop_batch 1 target"));
        assert!(bottleneck(&marking).contains("ce_threshold 30000us"));
        let changing = Router { changes: vec![(9, PathChange::Rate(5_000_000))], ..router(vec![]) };
        assert!(bottleneck(&changing).contains("parent 1:1 handle 2: pfifo limit 83\n"));
    }

    #[test]
    fn a_change_of_rate_leaves_the_rest_as_it_is() {
        let change = |queue| {
            let router = Router { queue, ..router(vec![]) };
            commands(&router, &PathChange::Rate(5_000_000))
        };
        // The kernel gives the token bucket's limit to the FIFO below it.
        let fifo = change(Queue::Fifo);
        assert!(fifo.contains("qdisc change dev bott root handle 1: tbf rate 5000000bit "));
        assert!(fifo.ends_with("qdisc change dev bott parent 1:1 handle 2: pfifo limit 83\n"));
        assert!(
            change(Queue::Cake).starts_with("qdisc change dev bott root cake bandwidth 5000000")
        );
        let htb = change(Queue::Htb);
        assert!(
            htb.contains("class change dev bott parent 1:ffff classid 1:1 htb rate 3750000bit")
        );
        assert!(!htb.contains("add"));
    }

    #[test]
    fn a_way_back_has_delay_jitter_and_loss() {
        let path = ReturnPath { delay_us: 100_000, jitter_us: 0, loss_percent: 0.0 };
        let plain = way_back("add", "rcv", &path);
        assert!(plain.contains("qdisc add dev rcv root netem delay 100000us limit 1000000\n"));
        let path = ReturnPath { jitter_us: 5000, loss_percent: 1.5, ..path };
        let lossy = way_back("add", "rcv", &path);
        assert!(lossy.contains("netem delay 100000us 5000us loss 1.5% limit 1000000\n"));
        let router = Router { own_return_paths: [(2, path)].into(), ..router(vec![]) };
        let change = commands(&router, &PathChange::Delay(2, 70_000));
        assert!(
            change.starts_with("qdisc change dev up2 root netem delay 70000us 5000us loss 1.5%")
        );
    }

    #[test]
    fn a_vms_class_has_its_part_and_may_have_all() {
        let batch = bottleneck(&Router { queue: Queue::Htb, ..router(vec![]) });
        assert!(batch.contains("classid 1:1 htb rate 7500000bit ceil 10000000bit "));
        assert!(batch.contains("match ip src 10.1.2.0/24 flowid 1:2\n"));
        assert!(batch.contains("parent 1:2 pfifo limit 83\n"));
        let batch = bottleneck(&Router { queue: Queue::HtbFqCodel, ..router(vec![]) });
        assert!(batch.contains("parent 1:2 fq_codel noecn\n"));
        let batch = bottleneck(&Router { queue: Queue::Dualpi2, ..router(vec![]) });
        assert!(batch.contains("qdisc add dev bott parent 1:1 dualpi2\n"));
        let batch = bottleneck(&Router { queue: Queue::Cake, ..router(vec![]) });
        assert!(batch.contains("root cake bandwidth 10000000bit besteffort dual-srchost\n"));
    }
}
