// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a front end does to a queue: it disables, stops, moves and starts it.
#![allow(clippy::unwrap_used)]
mod support;

use ccc_proto::wire;
use support::{
    daemon::{Daemon, until},
    driver::Driver,
    frontend::{Mode, QUEUE, ring},
};
use vhost::{VhostBackend, vhost_user::VhostUserFrontend};
use vmm_sys_util::eventfd::EventFd;

const ONE: [(&str, f64, &str); 1] = [("a", 1.0, "default")];

#[test]
fn a_disabled_queue_forgets_everything_at_once() {
    let daemon = Daemon::start(&ONE);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    driver.front.vhost.set_vring_enable(wire::VQ_TABLE, false).unwrap();
    driver.write(extent.head, &[0u8; 192]);
    driver.register(&extent, 0, 2);
    assert_eq!(driver.read::<[u8; 192]>(extent.head), [0; 192], "the memory is the driver's");
    driver.front.vhost.set_vring_enable(wire::VQ_TABLE, true).unwrap();
    assert!(driver.accepted(&extent, 0, 2), "offered again");
}

#[test]
fn a_stopped_queue_tells_where_it_would_go_on() {
    let daemon = Daemon::start(&ONE);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    assert_eq!(driver.front.vhost.get_vring_base(wire::VQ_TABLE).unwrap(), 0);
    assert_eq!(driver.front.vhost.get_vring_base(wire::VQ_DOORBELL).unwrap(), 1);
}

#[test]
fn rings_that_are_served_stay_where_they_are() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    let guest = driver.guest.clone();
    for queue in 0..3 {
        // As QEMU says it again to have what is written noted.
        assert!(driver.front.set_rings(&guest, queue, ring(queue)));
        driver.front.vhost.set_vring_num(queue, QUEUE).unwrap();
        assert!(!driver.front.set_rings(&guest, queue, ring(queue) + 0x400));
        assert!(driver.front.vhost.set_vring_num(queue, QUEUE / 2).is_err());
    }
    daemon.says("queue 0: it is being served; its rings can change only after it was stopped");
    driver.register(&extent, 1, 2);
    assert!(driver.accepted(&extent, 0, 1) && driver.accepted(&extent, 1, 2), "served on");
    driver.front.vhost.get_vring_base(wire::VQ_DOORBELL).unwrap();
    let elsewhere = driver.alloc(0x3000);
    assert!(driver.front.set_rings(&guest, wire::VQ_DOORBELL, elsewhere), "it was stopped");
}

#[test]
fn a_queue_that_is_served_goes_on_where_it_is() {
    let mut daemon = Daemon::start(&ONE);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::InBand);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    for queue in 0..3 {
        assert!(driver.front.vhost.set_vring_base(queue, 7).is_err());
    }
    daemon.says(
        "queue 0, base 7: it is being served; its position can change only after it was stopped",
    );
    driver.register(&extent, 1, 2);
    assert!(driver.accepted(&extent, 0, 1) && driver.accepted(&extent, 1, 2), "served on");
    for queue in 0..3 {
        driver.front.vhost.get_vring_base(queue).unwrap();
        driver.front.vhost.set_vring_base(queue, 7).unwrap();
    }
}

#[test]
fn a_stopped_queue_starts_where_it_is_to_be_though_its_kicks_are_told_first() {
    let daemon = Daemon::start(&ONE);
    let mut driver = Driver::connect(&daemon.socket("a"), Mode::Eventfd);
    let extent = driver.offer_extent(0, 4, 1);
    driver.register(&extent, 0, 1);
    let (guest, queue) = (driver.guest.clone(), wire::VQ_DOORBELL);
    driver.front.vhost.get_vring_base(queue).unwrap();
    driver.offer_bell(wire::OP_RESCAN, 0, 0);
    let elsewhere = driver.alloc(0x3000);
    driver.write(elsewhere, &driver.read::<[u8; 0x3000]>(ring(queue)));
    let kick = EventFd::new(0).unwrap();
    driver.front.set_kick(queue, &kick);
    assert!(driver.front.set_rings(&guest, queue, elsewhere), "it was stopped");
    until("served there", || driver.read::<u16>(elsewhere + 0x2002) == 2);
    assert_eq!(driver.used(queue), 1, "where it was is the driver's");
}

#[test]
fn a_stopped_queue_that_is_kicked_starts_where_it_was() {
    let daemon = Daemon::start(&ONE);
    for mode in [Mode::Eventfd, Mode::InBand] {
        let mut driver = Driver::connect(&daemon.socket("a"), mode);
        let queue = wire::VQ_DOORBELL;
        driver.ring_bell(wire::OP_RESCAN, 0, 0);
        driver.front.vhost.get_vring_base(queue).unwrap();
        match mode {
            Mode::Eventfd => {
                let kick = EventFd::new(0).unwrap();
                driver.front.set_kick(queue, &kick);
                driver.offer_bell(wire::OP_RESCAN, 0, 0);
                kick.write(1).unwrap();
            }
            Mode::InBand => {
                driver.front.vhost.set_vring_enable(queue, true).unwrap();
                driver.offer_bell(wire::OP_RESCAN, 0, 0);
                driver.front.kick(queue);
            }
        }
        driver.settle();
        assert_eq!(driver.used(queue), 2);
    }
}
