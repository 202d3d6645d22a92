// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The shared path: the bottleneck's queue, and the delay of the way back.
//!
//! The delay is that of `rcv`, the receivers' interface; where VMs differ in
//! delay, that of the router's interfaces to them.

use super::queues;
use crate::error::Result;
use crate::guest::clock::Clock;
use crate::guest::system::batch;
use crate::plan::Router;
use crate::plan::addresses::{BOTTLENECK, RECEIVER};

/// Sets it up; returns the queues as `tc` shows them.
pub fn set_up(router: &Router) -> Result<Vec<String>> {
    let mut qdiscs = vec![batch("tc", None, &bottleneck(router))?];
    if router.delays.is_empty() {
        qdiscs.push(batch("tc", Some(RECEIVER), &delay("rcv", router.delay_us))?);
    }
    for (device, delay_us) in uplink_delays(router) {
        qdiscs.push(batch("tc", None, &delay(&device, delay_us))?);
    }
    Ok(qdiscs)
}

/// Changes what is to be changed when its time has come.
pub fn change(router: &Router, clock: Clock) -> Result<()> {
    for &(at_ns, number, delay_us) in &router.delay_changes {
        clock.sleep_until(at_ns);
        let change = delay(&router.uplink_device(number), delay_us);
        batch("tc", None, &change.replacen("qdisc add", "qdisc change", 1))?;
    }
    Ok(())
}

fn bottleneck(router: &Router) -> String {
    format!("{}qdisc show dev {BOTTLENECK}\n", queues::commands(router))
}

fn delay(device: &str, delay_us: u64) -> String {
    format!(
        "qdisc add dev {device} root netem delay {delay_us}us limit 1000000\n\
         qdisc show dev {device}\n"
    )
}

/// The router's interface towards each VM that has a delay of its own.
fn uplink_delays(router: &Router) -> Vec<(String, u64)> {
    let all = router.delays.iter();
    all.map(|(&number, &delay)| (router.uplink_device(number), delay)).collect()
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
            delay_us: 100_000,
            delays: [(2, 20_000)].into(),
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
        assert!(delay("rcv", 100_000).contains("dev rcv root netem delay 100000us "));
        assert_eq!(uplink_delays(&router(vec![vec![1], vec![2]])), [("eth1".to_owned(), 20_000)]);
        assert_eq!(uplink_delays(&router(vec![])), [("up2".to_owned(), 20_000)]);
    }

    #[test]
    fn a_vms_class_has_its_part_and_may_have_all() {
        let batch = bottleneck(&Router { queue: Queue::Htb, ..router(vec![]) });
        assert!(batch.contains("classid 1:1 htb rate 7500000bit ceil 10000000bit "));
        assert!(batch.contains("match ip src 10.1.2.0/24 flowid 1:2\n"));
        let batch = bottleneck(&Router { queue: Queue::Cake, ..router(vec![]) });
        assert!(batch.contains("root cake bandwidth 10000000bit besteffort dual-srchost\n"));
    }
}
