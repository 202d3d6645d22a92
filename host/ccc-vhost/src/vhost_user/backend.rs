// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! The back end of one front end: what that may ask, and the device it gets for it.
use std::{fs::File, rc::Rc};

use ccc_proto::{
    stranger::Stranger,
    wire::{self, VQ_COUNT, VQ_EVENT},
};
use vhost::vhost_user::{
    Error, Result, VhostUserBackendReqHandlerMut,
    message::{
        VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
        VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
        VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion,
        VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
    },
};
use vm_memory::GuestAddress;
use zerocopy::{FromBytes, IntoBytes};

use crate::{
    device::{Device, Identity, counters::Counters},
    event_loop::clock,
    event_loop::foreign::{self, Foreign},
    event_loop::poll::{Poller, Token},
    vhost_user::migration::{MigrationError, Transfer},
    vhost_user::vring::Vring,
    virtio::dirty::Log,
    virtio::memory::Memory,
    virtio::queue::{Addresses, Queue},
    virtio::region::MemoryError,
};

/// Feature of a front end that wants to know what is written.
const F_LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();
const F_PROTOCOL: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// Features offered: the device's, and those of vhost-user.
pub const FEATURES: u64 = Device::FEATURES | F_LOG_ALL | F_PROTOCOL;

/// vhost-user features offered.
pub const PROTOCOL_FEATURES: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::RESET_DEVICE)
    .union(VhostUserProtocolFeatures::INBAND_NOTIFICATIONS)
    .union(VhostUserProtocolFeatures::LOG_SHMFD)
    .union(VhostUserProtocolFeatures::DEVICE_STATE);

/// Whether anybody is ever told anything of a queue.  This device sends no events, so what
/// the front end gives for that is not kept: of a thousand VMs two descriptors each.
fn is_used(queue: u32) -> bool {
    queue as usize != VQ_EVENT
}

/// The back end of one VM, for the life of one connection.
#[derive(Debug)]
pub struct Backend {
    device: Device,
    vrings: [Vring; VQ_COUNT],
    features: u64,
    protocol_features: u64,
    max_memory_bytes: u64,
    /// Where the front end wants to see what is written.
    log: Log,
    /// The transfer of state the front end has begun.
    transfer: Option<Transfer>,
    /// Where kicks are waited for, and the VM's number there.
    poller: Poller,
    vm: usize,
}

impl Backend {
    /// A back end whose front end has not said anything; it may give so many bytes
    /// of memory.
    pub fn new(
        identity: Identity,
        counters: Counters,
        poller: Poller,
        max_memory_bytes: u64,
    ) -> std::result::Result<Backend, virtio_queue::Error> {
        let vm = identity.vm;
        Ok(Backend {
            device: Device::new(identity, counters)?,
            vrings: Default::default(),
            features: 0,
            protocol_features: 0,
            max_memory_bytes,
            log: Log::default(),
            transfer: None,
            poller,
            vm,
        })
    }

    /// The device.
    pub fn device(&self) -> &Device {
        &self.device
    }

    /// The same, to be used.
    pub fn device_mut(&mut self) -> &mut Device {
        &mut self.device
    }

    /// What the front end says of a queue, and where that queue is.
    pub fn kicks(&mut self, queue: usize) -> Option<(&mut Vring, u16)> {
        Some((self.vrings.get_mut(queue)?, self.device.queue(queue)?.next_avail()))
    }

    /// The front end kicks a queue, which starts one that was stopped.  What is wrong with its rings
    /// the operator is told.
    pub fn kicked(&mut self, queue: usize) {
        if self.vrings.get_mut(queue).is_some_and(Vring::kicked) {
            drop(self.start_if_complete(queue as u32));
        }
    }

    /// The front end has what is written noted, as it does to migrate the VM.
    pub fn is_migrating(&self) -> bool {
        self.features & F_LOG_ALL != 0
    }

    /// Messages are acknowledged that ask for it.
    pub fn acknowledges(&self) -> bool {
        self.has(VhostUserProtocolFeatures::REPLY_ACK)
    }

    /// Some of the memory the front end has given was not there.
    pub fn faulted(&self) -> bool {
        self.device.memory().faulted() || self.log.faulted()
    }

    /// Calls the driver where that is due; the queues for in-band calls.
    pub fn call(&mut self) -> Vec<usize> {
        let due = self.device.take_interrupts();
        due.into_iter().filter(|queue| self.vrings[*queue].call()).collect()
    }

    /// All ends: the front end is gone, or resets the device.
    pub fn end(&mut self) {
        self.device.reset();
        self.vrings.iter_mut().for_each(Vring::reset);
    }

    fn has(&self, feature: VhostUserProtocolFeatures) -> bool {
        self.protocol_features & feature.bits() != 0
    }

    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn queue(&mut self, index: u32) -> Result<&mut Queue> {
        self.device.queue(index as usize).ok_or(Error::InvalidParam)
    }

    fn start_if_complete(&mut self, index: u32) -> Result<()> {
        if !self.vring(index)?.is_complete() {
            return Ok(());
        }
        self.device.start_queue(index as usize).map_err(|error| self.refuse(&error))
    }

    fn guest_address(&mut self, user: u64) -> Result<GuestAddress> {
        let found = self.device.memory().guest_address(user);
        found.map_err(|error: MemoryError| self.refuse(&error))
    }

    /// Tells the operator what the front end is told by an error number only.
    fn refuse(&mut self, why: &dyn std::fmt::Display) -> Error {
        self.device.counters_mut().warn(why);
        Error::InvalidParam
    }
}

impl VhostUserBackendReqHandlerMut for Backend {
    fn set_owner(&mut self) -> Result<()> {
        Ok(())
    }

    fn reset_owner(&mut self) -> Result<()> {
        self.end();
        Ok(())
    }

    fn reset_device(&mut self) -> Result<()> {
        self.end();
        Ok(())
    }

    fn get_features(&mut self) -> Result<u64> {
        Ok(FEATURES)
    }

    fn set_features(&mut self, features: u64) -> Result<()> {
        let unknown = features & !FEATURES;
        if unknown != 0 {
            return Err(self.refuse(&format!(
                "front end sets features {unknown:#x}, which are not offered; expected some of \
                 {FEATURES:#x}"
            )));
        }
        self.features = features;
        self.device.set_features(features);
        if !self.is_migrating() {
            self.log.end();
        }
        for index in 0..VQ_COUNT as u32 {
            // Without protocol features queues need no enabling.
            self.vring(index)?.enabled |= features & F_PROTOCOL == 0;
            self.start_if_complete(index)?;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let memory = Memory::map(regions, files, &self.log, self.max_memory_bytes)
            .map_err(|error| self.refuse(&error))?;
        self.device.set_memory(memory);
        self.device.counters_mut().strangers.forget();
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        let set = self.queue(index)?.set_size(size);
        set.map_err(|error| self.refuse(&format!("queue {index}, {num} descriptors: {error}")))
    }

    fn set_vring_addr(
        &mut self,
        index: u32,
        _flags: VhostUserVringAddrFlags,
        descriptor: u64,
        used: u64,
        available: u64,
        _log: u64,
    ) -> Result<()> {
        let descriptors = self.guest_address(descriptor)?;
        let used = self.guest_address(used)?;
        let available = self.guest_address(available)?;
        let set = self.queue(index)?.set_addresses(Addresses { descriptors, available, used });
        set.map_err(|error| self.refuse(&format!("queue {index}: {error}")))?;
        self.vring(index)?.set_place();
        self.start_if_complete(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        let set = self.queue(index)?.set_base(base);
        set.map_err(|error| self.refuse(&format!("queue {index}, base {base}: {error}")))
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.vring(index)?.stop();
        let base = self.device.stop_queue(index as usize);
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let index = u32::from(index);
        self.vring(index)?;
        let kick = match fd {
            Some(file) if !foreign::is_eventfd(&file) => {
                return Err(Error::ReqHandlerError(foreign::wrong_kind("kicks", "eventfd")));
            }
            Some(file) if !is_used(index) => {
                drop(Foreign::new(file));
                None
            }
            Some(file) => {
                let (kick, token) =
                    (Rc::new(Foreign::new(file)), Token::Kick(self.vm, index as usize));
                let watch = self.poller.watch_shared(kick.clone(), token);
                Some((kick, watch.map_err(Error::ReqHandlerError)?))
            }
            None => None,
        };
        self.vring(index)?.set_kick(kick).map_err(Error::ReqHandlerError)?;
        self.start_if_complete(index)
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let vring = self.vring(u32::from(index))?;
        vring.set_call(fd.map(Foreign::new)).map_err(Error::ReqHandlerError)?;
        if !is_used(u32::from(index)) {
            vring.forget_call();
        }
        Ok(())
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.vring(u32::from(index)).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL_FEATURES)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol_features = features & PROTOCOL_FEATURES.bits();
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(VQ_COUNT as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        // In-band kicks need no descriptor, so none may come.
        let in_band = self.has(VhostUserProtocolFeatures::INBAND_NOTIFICATIONS);
        let vring = self.vring(index)?;
        vring.enabled = enable;
        if !enable {
            self.device.stop_queue(index as usize);
            return Ok(());
        }
        vring.kick_ready |= in_band;
        self.start_if_complete(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = Device::config();
        let from = offset as usize;
        let wanted = from.checked_add(size as usize).ok_or(Error::InvalidParam)?;
        let bytes = config.as_bytes().get(from..wanted).ok_or(Error::InvalidParam)?;
        Ok(bytes.to_vec())
    }

    /// Read-only, but for who says that it is of another revision.
    fn set_config(&mut self, offset: u32, bytes: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        let stranger = Stranger::read_from_bytes(bytes).ok();
        let stranger = stranger.filter(|it| offset == 0 && it.revision.get() != wire::REVISION);
        let stranger =
            stranger.ok_or(Error::InvalidOperation("the configuration space is read-only"))?;
        self.device.counters_mut().strangers.note(stranger, clock::monotonic());
        Ok(())
    }

    fn set_gpu_socket(&mut self, _: vhost::vhost_user::GpuBackend) -> Result<()> {
        Err(Error::InvalidOperation("no display"))
    }

    fn get_shared_object(&mut self, _: VhostUserSharedMsg) -> Result<File> {
        Err(Error::InvalidOperation("no shared objects"))
    }

    fn get_inflight_fd(&mut self, _: &VhostUserInflight) -> Result<(VhostUserInflight, File)> {
        Err(Error::InvalidOperation("no tracking in flight"))
    }

    fn set_inflight_fd(&mut self, _: &VhostUserInflight, _: File) -> Result<()> {
        Err(Error::InvalidOperation("no tracking in flight"))
    }

    fn get_max_mem_slots(&mut self) -> Result<u64> {
        Err(Error::InvalidOperation("no memory slots"))
    }

    fn add_mem_region(
        &mut self,
        _: &VhostUserSingleMemoryRegion,
        _: File,
        _: Option<bool>,
    ) -> Result<Option<u64>> {
        Err(Error::InvalidOperation("no memory slots"))
    }

    fn remove_mem_region(&mut self, _: &VhostUserSingleMemoryRegion) -> Result<()> {
        Err(Error::InvalidOperation("no memory slots"))
    }

    fn set_device_state_fd(
        &mut self,
        direction: VhostTransferStateDirection,
        _: VhostTransferStatePhase,
        pipe: File,
    ) -> Result<Option<File>> {
        let transfer =
            Transfer::begin(direction, Foreign::new(pipe)).map_err(|error| self.refuse(&error))?;
        self.transfer = Some(transfer);
        Ok(None)
    }

    fn check_device_state(&mut self) -> Result<()> {
        let transfer = self.transfer.take().ok_or(MigrationError::NotBegun);
        transfer.and_then(Transfer::end).map_err(|error| self.refuse(&error))
    }

    fn get_shmem_config(&mut self) -> Result<VhostUserShMemConfig> {
        Err(Error::InvalidOperation("no shared memory"))
    }

    fn set_log_base(&mut self, log: &VhostUserLog, file: File) -> Result<()> {
        let length = usize::try_from(log.mmap_size).map_err(|_| Error::InvalidMessage)?;
        self.log.begin(file, log.mmap_offset, length).map_err(|error| {
            self.refuse(&format!("log of written pages: {error}"));
            // Without it the VM would arrive with old pages: the connection ends.
            Error::InvalidMessage
        })
    }
}
