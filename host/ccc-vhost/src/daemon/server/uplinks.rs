// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Queues of VMs at uplinks, in the event loop.
use super::Server;
use crate::tap::{host::Leaf, thread::Done, uplinks::News};

impl Server {
    /// Takes what came of an order, and says what is new of it.
    pub(super) fn take_queues(&mut self, done: &Done) {
        let Some(queued) = &done.uplinks else { return };
        for news in self.coupling.uplinks_mut().take(done.at, queued) {
            match news {
                News::Queued(uplink, leaf) => {
                    let flows = if leaf == Leaf::FairQueues { ", with fq_codel" } else { "" };
                    log::info!(
                        "uplink {uplink}: each VM of its group has a queue of its own there{flows}"
                    );
                    if leaf == Leaf::Fifo {
                        log::warn!(
                            "uplink {uplink}: the kernel has no fq_codel (modprobe sch_fq_codel: it is \
                             found then), so the queue of a VM is a FIFO of as many packets as the \
                             interface's (txqueuelen)"
                        );
                    }
                }
                News::Gone(uplink) => {
                    log::info!("uplink {uplink}: VMs have no queues there any more")
                }
                News::Failed(uplink, why) => {
                    log::warn!("uplink {uplink}: VMs have no queues of their own there: {why}");
                }
                News::Mended(uplink, queues) => {
                    log::warn!(
                        "uplink {uplink}: what waits in the classes of VMs, or of all else, was not there \
                         any more in {queues} of them, for somebody has removed it, or it could not be \
                         made; it is made anew"
                    );
                }
                News::Lacking(uplink, why) => {
                    log::warn!(
                        "uplink {uplink}: {why}; what waits there is the kernel's own, and it is tried \
                         again at each look"
                    );
                }
            }
        }
    }
}
