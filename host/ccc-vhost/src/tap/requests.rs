// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What requests about interfaces, and about what waits at them, have in common.
use std::io;

use super::netlink::{Writer, attributes};

/// Preference of our filters, and major number of our qdiscs on devices of our own.
pub const MARK: u16 = 0xccc;
/// All that a filter is asked about.
const ALL_PROTOCOLS: u16 = 3;

pub const ATTRIBUTE_NAME: u16 = 3;
pub const ATTRIBUTE_LINK_INFO: u16 = 18;
pub const INFO_KIND: u16 = 1;
pub const ATTRIBUTE_QDISC: u16 = 6;
pub const ATTRIBUTE_ALIAS: u16 = 20;
/// Properties, of which a further name is one.
pub const ATTRIBUTE_PROPERTIES: u16 = 52;
pub const FURTHER_NAME: u16 = 53;
pub const TC_KIND: u16 = 1;
pub const TC_OPTIONS: u16 = 2;
pub const U32_SELECTOR: u16 = 5;
pub const PARENT_ROOT: u32 = 0xffff_ffff;
/// Of `struct ifinfomsg` and `struct tcmsg`.
pub const LINK_BYTES: usize = 16;
pub const TC_BYTES: usize = 20;

/// `struct ifinfomsg`: an interface, and flags that it is to have.
pub fn link(index: u32, flags: u32) -> Writer {
    Writer::default().u32(0).u32(index).u32(flags).u32(flags)
}

/// `struct tcmsg`.
pub fn tc(index: u32, handle: u32, parent: u32, info: u32) -> Writer {
    let message = Writer::default().u32(0).u32(index).u32(handle).u32(parent).u32(info);
    debug_assert_eq!(message.clone().into_bytes().len(), TC_BYTES);
    message
}

/// What a filter of ours is told of itself: its preference, and what it is asked about.
pub fn filter_info() -> u32 {
    u32::from(MARK) << 16 | u32::from(ALL_PROTOCOLS.to_be())
}

/// `struct tc_u32_sel` that matches all: the last one to ask, with one key, which asks for nothing.
pub fn match_all() -> Vec<u8> {
    [&[1, 0, 1, 0][..], &[0; 12], &[0; 16]].concat()
}

/// `struct tc_ratespec` of an Ethernet.
pub fn rate_specification(rate: u32) -> Writer {
    const ETHERNET: u8 = 1;
    Writer::default().put(&[0, ETHERNET, 0, 0, 0, 0, 0, 0]).u32(rate)
}

/// An attribute of what is told of a link.
pub fn attribute(link: &[u8], wanted: u16) -> Option<&[u8]> {
    let mut all = attributes(link.get(LINK_BYTES..)?);
    all.find(|(kind, _)| *kind == wanted).map(|(_, value)| value)
}

/// A word of what is told of a link.
pub fn word(link: &[u8], wanted: u16) -> Option<&str> {
    word_among(link.get(LINK_BYTES..)?, wanted)
}

/// The same, of attributes alone.
pub fn word_among(all: &[u8], wanted: u16) -> Option<&str> {
    words_among(all, wanted).next()
}

/// All such words.
pub fn words_among(all: &[u8], wanted: u16) -> impl Iterator<Item = &str> {
    let words = attributes(all).filter(move |(kind, _)| *kind == wanted);
    words.filter_map(|(_, word)| Some(std::str::from_utf8(word).ok()?.trim_end_matches('\0')))
}

/// What came of it, if that which it is about is still there.
pub fn unless_gone<T>(outcome: io::Result<T>) -> io::Result<Option<T>> {
    match outcome {
        Err(error) => match error.raw_os_error() {
            // Without an ingress qdisc the kernel says the last.
            Some(libc::ENODEV | libc::ENOENT | libc::EINVAL) => Ok(None),
            _ => Err(error),
        },
        Ok(done) => Ok(Some(done)),
    }
}
