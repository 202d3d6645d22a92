// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Structures and constants as the guest's header has them.
//!
//! Names are those of `virtio_ccc.h` without the prefix.  All structures have
//! alignment 1 and no padding, so any bytes of the right length are one.
use core::mem::{offset_of, size_of};

use zerocopy::{
    FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned,
    little_endian::{U16, U32, U64},
};

/// Constants, and a table of them for whoever compares them with the header.
macro_rules! constants {
    ($($(#[$meta:meta])* pub const $name:ident: $type:ty = $value:expr;)*) => {
        $($(#[$meta])* pub const $name: $type = $value;)*

        /// Name and value of each constant.
        #[doc(hidden)]
        pub const CONSTANTS: &[(&str, u64)] = &[$((stringify!($name), $name as u64)),*];
    };
}

constants! {
    /// Virtio device number.
    pub const ID: u32 = 63;

    /// Feature bit: shares by rate, the level counts srtt.
    pub const F_RATE_SHARE: u32 = 0;
    /// Feature bit: the cap of a slot grant is in use.
    pub const F_SLOT_CAP: u32 = 1;

    /// Queue on which the driver offers extents of the tables.
    pub const VQ_TABLE: usize = 0;
    /// Queue of messages from the driver.
    pub const VQ_DOORBELL: usize = 1;
    /// Queue of events for the driver.
    pub const VQ_EVENT: usize = 2;
    /// Number of queues.
    pub const VQ_COUNT: usize = 3;

    /// Revision of this layout.
    pub const REVISION: u32 = 1;

    /// Extents a driver may offer at a time.
    pub const EXTENTS_MAX: u32 = 64;

    /// Slot not in use.
    pub const STATE_FREE: u8 = 0;
    /// Slow start.
    pub const STATE_SS: u8 = 1;
    /// Congestion avoidance.
    pub const STATE_CA: u8 = 2;
    /// Fast recovery, or reducing after ECN.
    pub const STATE_FR: u8 = 3;
    /// After a retransmission timeout.
    pub const STATE_LOSS: u8 = 4;

    /// The flow has data outstanding or to send.
    pub const R_ACTIVE: u8 = 1 << 0;
    /// The flow is limited by its congestion window, not by its application.
    pub const R_CWND_LIMITED: u8 = 1 << 1;
    /// The flow has begun, or come back, and has no more to send than it is granted:
    /// `inflight_bytes` is all of that.
    pub const R_OPENING: u8 = 1 << 2;

    /// Slow start threshold before the first congestion event.
    pub const SSTHRESH_UNSET: u32 = 0xffff_ffff;
    /// What a round-trip time of 0 counts as in shares by rate.
    pub const UNIT_RTT_UNKNOWN_US: u32 = 100_000;
    /// What a longer round-trip time counts as in shares by rate.
    pub const UNIT_RTT_MAX_US: u32 = 1 << 20;
    /// Unit of a report's round-trip sample, microseconds.
    pub const RTT_UNIT_US: u32 = 32;

    /// Priority 1.
    pub const PRIORITY_ONE: u16 = 256;
    /// Largest priority, 10.
    pub const PRIORITY_MAX: u16 = 2560;

    /// Message: a flow has begun in the slot.
    pub const OP_REGISTER: u16 = 1;
    /// Message: the slot has changed.
    pub const OP_UPDATE: u16 = 2;
    /// Message: the flow of the slot has ended.
    pub const OP_LEAVE: u16 = 3;
    /// Message: messages were lost, look at every slot.
    pub const OP_RESCAN: u16 = 4;
    /// Message: release the extent that begins at the slot.
    pub const OP_RELEASE: u16 = 5;

    /// Extent not accepted yet; the driver writes this.
    pub const EXTENT_PENDING: u32 = 0;
    /// Extent accepted: its grant lines and slot grants are live.
    pub const EXTENT_ACCEPTED: u32 = 1;
    /// Extent refused.
    pub const EXTENT_REFUSED: u32 = 2;

    /// The line is in force.
    pub const L_COUPLED: u32 = 1 << 0;
    /// The aggregate is in slow start.
    pub const L_SLOW_START: u32 = 1 << 1;
    /// Units count srtt.
    pub const L_RATE: u32 = 1 << 2;

    /// No slow start threshold yet.
    pub const LEVEL_UNSET: u64 = u64::MAX;
    /// Fraction bits of a level.
    pub const LEVEL_SHIFT: u32 = 32;
    /// What a longer interval of reports counts as.
    pub const REPORT_INTERVAL_MAX_US: u32 = 250_000;

    /// The flow is coupled through its line.
    pub const G_ACCEPTED: u16 = 1 << 0;
    /// The flow has no cap.
    pub const CAP_NONE: u64 = u64::MAX;

    /// Event: report every slot anew.
    pub const EV_RESYNC: u16 = 1;
    /// Event: a group's policy or sharing changed.
    pub const EV_POLICY: u16 = 2;
    /// Event: release the extent at `value`.
    pub const EV_RELEASE: u16 = 3;
}

/// A structure of the header, its size and offsets asserted.
macro_rules! wire {
    ($(#[$meta:meta])* $name:ident, $size:literal {
        $($(#[$field_meta:meta])* $field:ident @ $offset:literal: $type:ty,)*
    }) => {
        $(#[$meta])*
        #[derive(Clone, Copy, Debug, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
        #[repr(C)]
        pub struct $name { $($(#[$field_meta])* pub $field: $type,)* }

        const _: () = assert!(size_of::<$name>() == $size);
        $(const _: () = assert!(offset_of!($name, $field) == $offset);)*

        impl $name {
            /// Name, offset and size of each field.
            #[doc(hidden)]
            pub const FIELDS: &[(&str, usize, usize)] =
                &[$((stringify!($field), $offset, size_of::<$type>())),*];
        }
    };
}

wire! {
    /// Device configuration space.
    Config, 16 {
        /// [`REVISION`] of the device.
        revision @ 0: U32,
        /// Slots of all extents together.
        max_slots @ 4: U32,
        /// Grant lines the device can use.
        max_grant_lines @ 8: U32,
        /// Age at which an unanswered driver goes on alone.
        stale_us @ 12: U32,
    }
}

wire! {
    /// Head of the readable part of an extent.
    Extent, 16 {
        /// Index of the extent's first slot.
        first_slot @ 0: U32,
        /// Slots in the extent.
        slots @ 4: U32,
        /// Grant lines; 0 in every extent but the first.
        grant_lines @ 8: U32,
        /// Not used.
        reserved @ 12: U32,
    }
}

wire! {
    /// One flow, as its guest reports it.
    Report, 128 {
        /// Sequence count, odd while the driver writes.
        seq @ 0: U32,
        /// `STATE_*`.
        state @ 4: u8,
        /// `R_*`.
        flags @ 5: u8,
        /// Share within the VM, 8 fraction bits.
        priority @ 6: U16,
        /// Bytes acknowledged while limited by the congestion window.
        acked_limited_bytes @ 8: U64,
        /// Bytes acknowledged.
        delivered_bytes @ 16: U64,
        /// Window growth of the flow's own controller, bytes.
        cwnd_growth_bytes @ 24: U32,
        /// Congestion events.
        congestion_events @ 28: U16,
        /// Timeout episodes among them.
        timeouts @ 30: U16,
        /// Latest events found spurious.
        spurious_events @ 32: U16,
        /// Window factor at the latest event, of 65536.
        beta @ 34: U16,
        /// Epoch under which the lost segment was sent.
        congestion_epoch @ 36: U32,
        /// Congestion window, bytes.
        cwnd_bytes @ 40: U32,
        /// Slow start threshold, bytes, or [`SSTHRESH_UNSET`].
        ssthresh_bytes @ 44: U32,
        /// Smoothed round-trip time.
        srtt_us @ 48: U32,
        /// Smallest round-trip time seen.
        min_rtt_us @ 52: U32,
        /// Bytes outstanding.
        inflight_bytes @ 56: U32,
        /// Payload bytes of a full segment.
        mss_bytes @ 60: U16,
        /// Least round-trip sample since the last message, in units of
        /// [`RTT_UNIT_US`]; 0 if none.
        rtt_sample @ 62: U16,
        /// Changes with each use of the slot, never 0.
        generation @ 64: U32,
        /// 4 or 6.
        family @ 68: u8,
        /// Not used.
        reserved1 @ 69: u8,
        /// Source port.
        sport @ 70: U16,
        /// Destination port.
        dport @ 72: U16,
        /// Not used.
        reserved2 @ 74: U16,
        /// Not used.
        reserved3 @ 76: U32,
        /// Source address, network order, padded with 0.
        saddr @ 80: [u8; 16],
        /// Destination address, network order, padded with 0.
        daddr @ 96: [u8; 16],
        /// Name of the inner algorithm, padded with 0.
        algorithm @ 112: [u8; 16],
    }
}

wire! {
    /// Message on the doorbell queue.
    Doorbell, 16 {
        /// `OP_*`.
        op @ 0: U16,
        /// Not used.
        reserved0 @ 2: U16,
        /// Slot to look at.
        slot @ 4: U32,
        /// Generation of the slot when the message was written.
        generation @ 8: U32,
        /// Not used.
        reserved1 @ 12: U32,
    }
}

wire! {
    /// Head of the writable part of an extent.
    ExtentStatus, 64 {
        /// `EXTENT_*`.
        status @ 0: U32,
        /// Changes when the device has begun anew.
        instance @ 4: U32,
        /// Not used.
        reserved @ 8: [u8; 56],
    }
}

wire! {
    /// Grant of one group to one VM.
    GrantLine, 64 {
        /// Sequence count, odd while the device writes.
        seq @ 0: U32,
        /// Changes with every reduction.
        epoch @ 4: U32,
        /// `L_*`.
        flags @ 8: U32,
        /// Where this VM's rounding begins, of 2^32.
        rounding_offset @ 12: U32,
        /// Window bytes for one unit, with [`LEVEL_SHIFT`] fraction bits.
        level @ 16: U64,
        /// The same for the slow start threshold, or [`LEVEL_UNSET`].
        ssthresh_level @ 24: U64,
        /// The host's number of the group.
        group @ 32: U32,
        /// A flow's messages of mere progress are no closer, up to
        /// [`REPORT_INTERVAL_MAX_US`].
        report_interval_us @ 36: U32,
        /// Window bytes for one unit of one flow of priority 1 in the place of all, as `level`
        /// has them; 0 if that is not said.
        aggregate_level @ 40: U64,
        /// Not used.
        reserved @ 48: [u8; 16],
    }
}

wire! {
    /// Answer to one slot.
    SlotGrant, 16 {
        /// Generation of the report this answers.
        generation @ 0: U32,
        /// Line through which the flow is coupled.
        line @ 4: U16,
        /// `G_*`.
        flags @ 6: U16,
        /// Bytes, or [`CAP_NONE`].
        cap_bytes @ 8: U64,
    }
}

wire! {
    /// Event for the driver.
    Event, 8 {
        /// `EV_*`.
        kind @ 0: U16,
        /// Not used.
        reserved @ 2: U16,
        /// Meaning depends on the kind.
        value @ 4: U32,
    }
}

impl Report {
    /// A slot of zeroes: free.
    pub const FREE: Report = zerocopy::transmute!([0u8; 128]);
}
