// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What a front end may ask of a device.
use std::{fs::File, os::fd::AsFd, rc::Rc};

use ccc_proto::wire::{F_RATE_SHARE, VQ_COUNT};
use vhost::vhost_user::{
    Error, Result, VhostUserBackendReqHandlerMut,
    message::{
        VhostTransferStateDirection, VhostTransferStatePhase, VhostUserConfigFlags,
        VhostUserInflight, VhostUserLog, VhostUserMemoryRegion, VhostUserProtocolFeatures,
        VhostUserShMemConfig, VhostUserSharedMsg, VhostUserSingleMemoryRegion,
        VhostUserVirtioFeatures, VhostUserVringAddrFlags, VhostUserVringState,
    },
};
use virtio_queue::QueueT;
use vm_memory::GuestAddress;
use zerocopy::IntoBytes;

use crate::{
    device::Device,
    event_loop::poll::Token,
    vhost_user::foreign::{self, Foreign},
    vhost_user::migration::{MigrationError, Transfer},
    virtio::memory::{Memory, MemoryError},
    virtio::vring::Vring,
};

/// Feature of a front end that wants to know what is written.
pub const F_LOG_ALL: u64 = VhostUserVirtioFeatures::LOG_ALL.bits();
const F_RING_INDIRECT_DESC: u64 = 1 << 28;
const F_RING_EVENT_IDX: u64 = 1 << 29;
const F_VERSION_1: u64 = 1 << 32;
const F_PROTOCOL: u64 = VhostUserVirtioFeatures::PROTOCOL_FEATURES.bits();

/// Virtio features offered.  Caps of slot grants are not in use yet.
pub const FEATURES: u64 = 1 << F_RATE_SHARE
    | F_LOG_ALL
    | F_RING_INDIRECT_DESC
    | F_RING_EVENT_IDX
    | F_VERSION_1
    | F_PROTOCOL;

/// vhost-user features offered.
pub const PROTOCOL_FEATURES: VhostUserProtocolFeatures = VhostUserProtocolFeatures::MQ
    .union(VhostUserProtocolFeatures::REPLY_ACK)
    .union(VhostUserProtocolFeatures::BACKEND_REQ)
    .union(VhostUserProtocolFeatures::CONFIG)
    .union(VhostUserProtocolFeatures::RESET_DEVICE)
    .union(VhostUserProtocolFeatures::INBAND_NOTIFICATIONS)
    .union(VhostUserProtocolFeatures::LOG_SHMFD)
    .union(VhostUserProtocolFeatures::DEVICE_STATE);

impl Device {
    fn vring(&mut self, index: u32) -> Result<&mut Vring> {
        self.vrings.get_mut(index as usize).ok_or(Error::InvalidParam)
    }

    fn begin(&mut self, index: u32) -> Result<()> {
        self.begin_if_ready(index as usize).map_err(|error| self.refuse(&error))
    }

    fn guest_address(&mut self, user: u64) -> Result<GuestAddress> {
        let found = self.memory.guest_address(user);
        found.map_err(|error: MemoryError| self.refuse(&error))
    }

    /// Tells the operator what the front end is told by an error number only.
    fn refuse(&mut self, why: &dyn std::fmt::Display) -> Error {
        self.warn(why);
        Error::InvalidParam
    }

    /// Kicks and calls travel on the sockets.
    pub(crate) fn in_band(&self) -> bool {
        let bits = VhostUserProtocolFeatures::INBAND_NOTIFICATIONS.bits();
        self.protocol & bits != 0
    }
}

impl VhostUserBackendReqHandlerMut for Device {
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
        if features & !FEATURES != 0 {
            let unknown =
                format!("front end sets features {:#x}, not offered", features & !FEATURES);
            return Err(self.refuse(&unknown));
        }
        self.features = features;
        if features & F_LOG_ALL == 0 {
            self.log.end();
        }
        for index in 0..VQ_COUNT {
            let vring = &mut self.vrings[index];
            vring.queue.set_event_idx(features & F_RING_EVENT_IDX != 0);
            // Without protocol features queues need no enabling.
            vring.enabled |= features & F_PROTOCOL == 0;
            self.begin(index as u32)?;
        }
        Ok(())
    }

    fn set_mem_table(
        &mut self,
        regions: &[VhostUserMemoryRegion],
        files: Vec<File>,
        _postcopy: Option<bool>,
    ) -> Result<Option<Vec<u64>>> {
        let memory = Memory::map(regions, files, &self.log, self.max_memory)
            .map_err(|error| self.refuse(&error))?;
        self.memory = Rc::new(memory);
        Ok(None)
    }

    fn set_vring_num(&mut self, index: u32, num: u32) -> Result<()> {
        let size = u16::try_from(num).map_err(|_| Error::InvalidParam)?;
        self.vring(index)?.queue.try_set_size(size).map_err(|_| Error::InvalidParam)
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
        let descriptor = self.guest_address(descriptor)?;
        let used = self.guest_address(used)?;
        let available = self.guest_address(available)?;
        let vring = self.vring(index)?;
        let wrong = |_| Error::InvalidParam;
        vring.queue.try_set_desc_table_address(descriptor).map_err(wrong)?;
        vring.queue.try_set_used_ring_address(used).map_err(wrong)?;
        vring.queue.try_set_avail_ring_address(available).map_err(wrong)?;
        vring.placed = true;
        self.begin(index)
    }

    fn set_vring_base(&mut self, index: u32, base: u32) -> Result<()> {
        let base = u16::try_from(base).map_err(|_| Error::InvalidParam)?;
        self.vring(index)?.queue.set_next_avail(base);
        Ok(())
    }

    fn get_vring_base(&mut self, index: u32) -> Result<VhostUserVringState> {
        self.vring(index)?;
        let base = self.end_queue(index as usize);
        let vring = self.vring(index)?;
        vring.set_kick(None).map_err(|_| Error::BackendInternalError)?;
        vring.kickable = false;
        Ok(VhostUserVringState::new(index, u32::from(base)))
    }

    fn set_vring_kick(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        let token = Token::Kick(self.index, usize::from(index));
        let poller = self.poller.clone();
        let vring = self.vring(u32::from(index))?;
        let kick = match fd {
            Some(file) if !foreign::is_eventfd(&file) => {
                return Err(Error::ReqHandlerError(foreign::wrong_kind("kicks", "eventfd")));
            }
            Some(file) => {
                let watch = poller.watch(file.as_fd(), token).map_err(Error::ReqHandlerError)?;
                Some((Foreign::new(file), watch))
            }
            None => None,
        };
        vring.set_kick(kick).map_err(Error::ReqHandlerError)?;
        self.begin(u32::from(index))
    }

    fn set_vring_call(&mut self, index: u8, fd: Option<File>) -> Result<()> {
        self.vring(u32::from(index))?.set_call(fd.map(Foreign::new)).map_err(Error::ReqHandlerError)
    }

    fn set_vring_err(&mut self, index: u8, _fd: Option<File>) -> Result<()> {
        self.vring(u32::from(index)).map(|_| ())
    }

    fn get_protocol_features(&mut self) -> Result<VhostUserProtocolFeatures> {
        Ok(PROTOCOL_FEATURES)
    }

    fn set_protocol_features(&mut self, features: u64) -> Result<()> {
        self.protocol = features & PROTOCOL_FEATURES.bits();
        Ok(())
    }

    fn get_queue_num(&mut self) -> Result<u64> {
        Ok(VQ_COUNT as u64)
    }

    fn set_vring_enable(&mut self, index: u32, enable: bool) -> Result<()> {
        let in_band = self.in_band();
        let vring = self.vring(index)?;
        vring.enabled = enable;
        if !enable {
            self.end_queue(index as usize);
            return Ok(());
        }
        // In-band kicks need no descriptor, so none may come.
        vring.kickable |= in_band;
        self.begin(index)
    }

    fn get_config(&mut self, offset: u32, size: u32, _: VhostUserConfigFlags) -> Result<Vec<u8>> {
        let config = Device::config();
        let from = offset as usize;
        let wanted = from.checked_add(size as usize).ok_or(Error::InvalidParam)?;
        let bytes = config.as_bytes().get(from..wanted).ok_or(Error::InvalidParam)?;
        Ok(bytes.to_vec())
    }

    fn set_config(&mut self, _: u32, _: &[u8], _: VhostUserConfigFlags) -> Result<()> {
        Err(Error::InvalidOperation("the configuration space is read-only"))
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
