// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Lies of several kinds at once, beside three honest VMs of four flows, or two.
use ccc_lab::scenario::Scenario;
use ccc_law::{measure::Run, setup::Setup, world};
use serde_json::{Value, json};

const SECOND_NS: u64 = 1_000_000_000;
/// What is there at the beginning belongs to slow start.
const BEGIN_S: usize = 5;

/// A minute of so many honest VMs beside one of four flows that lies so.
fn beside(vms: usize, lies: &str) -> Run {
    beside_of(7, vms, lies)
}

fn beside_of(seed: u32, vms: usize, lies: &str) -> Run {
    let honest = json!({"flows": [{"count": 4}]});
    let mut last = honest.clone();
    if !lies.is_empty() {
        last["hostile"] = true.into();
        last["module_options"] = lies.into();
    }
    let mut vms: Vec<Value> = vec![honest; vms];
    vms.push(last);
    let scenario = json!({"name": "lies", "seed": seed, "duration_s": 60, "coupled": true,
        "daemon": "none", "hostile_module": "none", "vms": vms});
    let scenario = Scenario::parse(&scenario.to_string()).expect("sound");
    world::run(&Setup::of(&scenario).expect("modelled"), true, SECOND_NS)
}

/// What three honest VMs have of what they have beside an honest fourth, and what the fourth
/// has of its own then.
fn kept_and_taken(lies: &str) -> (f64, f64) {
    let bytes = |run: &Run, vm: usize| run.vm_bytes[vm][BEGIN_S..].iter().sum::<u64>() as f64;
    let [honest, attacked] = ["", lies].map(|lies| beside(3, lies));
    (kept(3, lies), bytes(&attacked, 3) / bytes(&honest, 3))
}

/// What so many honest VMs have of what they have beside one more.
fn kept(vms: usize, lies: &str) -> f64 {
    let bytes = |run: &Run| run.vm_bytes[..vms].iter().flat_map(|vm| &vm[BEGIN_S..]).sum::<u64>();
    let [honest, attacked] = ["", lies].map(|lies| bytes(&beside(vms, lies)) as f64);
    attacked / honest
}

/// 154 to 1,980 packets were lost while its part was one of a second, delivered at once.
#[test]
fn growth_of_a_gigabyte_from_a_second_away_loses_as_little_as_an_honest_vm() {
    let lies = "lie_rtt_us=1000000 lie_slots=1 lie_growth_bytes=1073741824";
    let [honest, attacked] = ["", lies].map(|lies| beside(3, lies).total_dropped());
    assert!(attacked <= 2 * honest, "{attacked} of {honest} beside an honest VM");
}

/// Growth by segments of nine thousand bytes lost 1.9 times as much, and growth by twice what the
/// path delivers while its queue fills 1.8 times.
#[test]
fn who_claims_much_growth_loses_little_more_than_an_honest_vm() {
    let lost =
        |lies: &str| (8121..8125).map(|seed| beside_of(seed, 3, lies).total_dropped()).sum::<u64>();
    let honest = lost("");
    for lies in ["lie_mss=65535", "lie_slots=1 lie_growth_bytes=1073741824 lie_priority=2560"] {
        let attacked = lost(lies);
        assert!(
            attacked <= honest + honest / 2,
            "{lies}: {attacked} of {honest} beside an honest VM"
        );
    }
    // While all others recover it is the only one that grows, however small its share.  Ten times as
    // much was lost.
    let attacked = lost("lie_slots=1 lie_growth_bytes=1073741824");
    assert!(attacked <= 4 * honest, "{attacked} of {honest} beside an honest VM");
}

/// It ended no slow start: three quarters of what is delivered looked like a path three times as long.
#[test]
fn a_shortest_time_that_is_longer_than_the_mean_keeps_no_slow_start_going() {
    let lost = |lies: &str| {
        let honest = json!({"flows": [{}], "delay_ms": 100});
        let mut last = honest.clone();
        last["hostile"] = true.into();
        last["module_options"] = format!("slots=256 {lies}").into();
        let scenario = json!({"name": "shortest", "seed": 8111, "duration_s": 8, "coupled": true,
            "daemon": "none", "hostile_module": "none",
            "bottleneck": {"rate_mbit": 200, "delay_ms": 100, "limit_packets": 800},
            "vms": [honest, honest, honest, last]});
        let scenario = Scenario::parse(&scenario.to_string()).expect("sound");
        world::run(&Setup::of(&scenario).expect("modelled"), true, SECOND_NS).total_dropped()
    };
    let [honest, attacked] = ["", "lie_min_rtt_us=1000000"].map(lost);
    assert!(attacked <= 2 * honest, "{attacked} of {honest} beside an honest VM");
}

/// It had 1.2 times its share while a quarter more was believed than windows take.
#[test]
fn round_trip_times_that_windows_do_not_take_win_hardly_anything() {
    for lies in ["lie_rtt_us=200000", "lie_rtt_us=300000", "lie_rtt_us=10000000"] {
        let (kept, taken) = kept_and_taken(lies);
        assert!(kept >= 0.95 && taken <= 1.1, "{lies}: {kept:.3} kept, {taken:.3} taken");
    }
}

/// Who loses alone has less than its part, and its part takes longer than its packets do:
/// the others had 0.89.
#[test]
fn lies_together_win_nothing() {
    for lies in [
        "lie_mss=9000 lie_rtt_us=300000 lie_slots=2 lie_loss=1",
        "lie_rtt_us=300000 lie_slots=2 lie_loss=1",
        "lie_mss=9000 lie_slots=2 lie_loss=1",
    ] {
        let (kept, taken) = kept_and_taken(lies);
        assert!(kept >= 1.0 && taken <= 0.9, "{lies}: {kept:.3} kept, {taken:.3} taken");
    }
}

/// Slots that fell idle took a distance along that the VM's flows went on counting, and a loss
/// told of from 10 s away kept everybody from growing for so long: others had 0.43, and 0.63.
#[test]
fn far_slots_that_come_and_go_leave_others_what_they_have() {
    let far = "lie_rtt_us=10000000 lie_priority=2560 lie_loss=1";
    for (vms, lies, least) in
        [(3, "lie_slots=16 lie_ms=2000", 0.8), (2, "lie_slots=2 lie_ms=2000", 0.6)]
    {
        let kept = kept(vms, &format!("{far} {lies}"));
        assert!(kept >= least, "{vms} beside {lies}: {kept:.3} kept");
    }
}

/// Who is there first lost until nothing was left, before others came: two had 0.50.
#[test]
fn who_comes_to_a_group_that_another_has_emptied_is_no_worse_off() {
    let kept = kept(2, "lie_rtt_us=10000000 lie_slots=2 lie_ms=20 lie_loss=1 lie_priority=2560");
    assert!(kept >= 1.0, "{kept:.3} kept");
}

/// Beside one that says to be a microsecond away the same rate was 3 million segments of who is
/// 100 ms away: 98 % of all packets were lost.
#[test]
fn who_says_to_be_no_distance_away_makes_nobody_send_more_than_the_path_holds() {
    for lie in ["lie_min_rtt_us=1", "lie_rtt_us=1 lie_priority=2560 lie_return=1"] {
        let lies = format!("{lie} lie_slots=16 lie_ms=20 lie_loss=1 lie_growth_bytes=1448");
        let [honest, attacked] = ["", &lies].map(|lies| beside(2, lies).total_dropped());
        assert!(attacked <= 2 * honest, "{lies}: {attacked} of {honest} beside an honest VM");
    }
}

/// What three honest VMs of one flow have beside a fourth in the seconds after the first five of a
/// path of so many Mbit/s and 100 ms, coupled and not.
fn early_bytes(rate_mbit: u64, fourth: &Value) -> [u64; 2] {
    let honest = json!({"flows": [{"count": 1}], "delay_ms": 100});
    let scenario = json!({"name": "begin", "seed": 8, "duration_s": 10, "coupled": true,
        "daemon": "none", "hostile_module": "none", "bottleneck":
            {"rate_mbit": rate_mbit, "limit_packets": 25 * rate_mbit / 3, "delay_ms": 100},
        "vms": [honest, honest, honest, fourth]});
    let scenario = Scenario::parse(&scenario.to_string()).expect("sound");
    let setup = Setup::of(&scenario).expect("modelled");
    [true, false].map(|coupled| {
        let run = world::run(&setup, coupled, SECOND_NS);
        run.vm_bytes[..3].iter().flat_map(|vm| &vm[BEGIN_S..]).sum()
    })
}

/// What one flow said to wait ended everybody's slow start: others kept 0.23.
#[test]
fn a_time_that_one_says_to_wait_ends_nobodys_slow_start() {
    let lies = "lie_rtt_us=10000000";
    let [honest, liar] = [false, true].map(|lies_so| {
        let options = if lies_so { lies } else { "" };
        json!({"flows": [{"count": 2}], "delay_ms": 100, "hostile": lies_so,
            "module_options": options})
    });
    let [beside, without] = [liar, honest].map(|fourth| early_bytes(200, &fourth)[0]);
    assert!(beside >= without / 10 * 9, "{beside} bytes beside {lies}, {without} without");
}

/// A VM of three honest ones and a last one, which lies so, on a path so fast and far away.
fn last_lies(rate_mbit: u64, away_ms: u64, queue: u64, flows: [&Value; 2], lies: &str) -> Setup {
    let [honest, last] = flows.map(|flows| json!({"flows": [flows]}));
    let mut last = last;
    if !lies.is_empty() {
        last["hostile"] = true.into();
        last["module_options"] = format!("slots=256 {lies}").into();
    }
    let scenario = json!({"name": "last", "seed": 8121, "duration_s": 30, "coupled": true,
        "daemon": "none", "hostile_module": "none",
        "bottleneck": {"rate_mbit": rate_mbit, "delay_ms": away_ms, "limit_packets": queue},
        "vms": [honest, honest, honest, last]});
    Setup::of(&Scenario::parse(&scenario.to_string()).expect("sound")).expect("modelled")
}

/// What three honest VMs had.
fn honest_bytes(run: &Run) -> u64 {
    run.vm_bytes[..3].iter().flatten().sum()
}

/// It had the aggregate for itself while the others paused, and they lost 15,000 to 58,000 packets
/// as they went on: what a slot that is near adds to it was not bounded.
#[test]
fn who_grows_while_others_pause_has_them_lose_little() {
    let phases = json!([{"at_s": 20, "rate_kbit": 100}, {"at_s": 20.5, "rate_kbit": null}]);
    let pauses = json!({"count": 4, "phases": phases});
    let limited = json!({"count": 4, "rate_kbit": 100});
    let run = |lies| {
        let setup = last_lies(10, 100, 83, [&pauses, &limited], lies);
        world::run(&setup, true, SECOND_NS)
    };
    let honest = run("");
    let attacked = run("lie_slots=1 lie_ms=10 lie_growth_bytes=1073741824");
    let kept = honest_bytes(&attacked) as f64 / honest_bytes(&honest) as f64;
    let lost = attacked.total_dropped();
    assert!(lost <= 2 * honest.total_dropped() && kept >= 0.95, "{lost} lost, {kept:.3} kept");
}
