// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Frames as they come to the end of a cable, for tcpdump, tshark and the like.

use std::fs::File;
use std::io::{self, BufWriter, Write};
use std::path::Path;

use super::rings::{Frame, ethernet};
use crate::error::{Context, Result};
use crate::plan::LEAD_NS;
use crate::units::SECOND_NS;

/// A file of pcap (draft-ietf-opsawg-pcap), with nanoseconds.
pub struct Capture(BufWriter<File>);

/// Magic number, version 2.4, two fields of no use, most bytes of a packet, Ethernet.
const HEADER: [u32; 6] = [0xa1b2_3c4d, 2 | 4 << 16, 0, 0, 1 << 18, 1];

impl Capture {
    /// A new file.
    pub fn create(path: &Path) -> Result<Self> {
        let file = File::create(path).on("creating", path)?;
        let mut capture = Self(BufWriter::new(file));
        capture.words(HEADER).on("writing", path)?;
        Ok(capture)
    }

    /// Frames that arrive now, in nanoseconds since the guests' start; in the file it is
    /// since the traffic's, before which nothing is noted.
    pub fn note(&mut self, now: u64, frames: &[Frame]) -> Result<()> {
        let Some(time) = now.checked_sub(LEAD_NS) else { return Ok(()) };
        let noted = frames.iter().map(ethernet).try_for_each(|frame| {
            let bytes = frame.len() as u32;
            self.words([(time / SECOND_NS) as u32, (time % SECOND_NS) as u32, bytes, bytes])?;
            self.0.write_all(frame)
        });
        noted.context(|| "writing captured packets".into())
    }

    /// Has all of it in the file.
    pub fn finish(mut self) -> Result<()> {
        self.0.flush().context(|| "writing captured packets".into())
    }

    fn words<const N: usize>(&mut self, words: [u32; N]) -> io::Result<()> {
        words.iter().try_for_each(|word| self.0.write_all(&word.to_le_bytes()))
    }
}

#[cfg(test)]
#[allow(clippy::unwrap_used)]
mod tests {
    use super::*;

    #[test]
    fn a_packet_has_its_time_since_the_traffic_began_and_its_bytes() {
        let file = std::env::temp_dir().join(format!("ccc-capture-{}", std::process::id()));
        let mut capture = Capture::create(&file).unwrap();
        let frame: Frame = [[0; 12].as_slice(), b"frame"].concat();
        let frames = [frame];
        capture.note(LEAD_NS - 1, &frames).unwrap();
        capture.note(LEAD_NS + 2 * SECOND_NS + 7, &frames).unwrap();
        capture.finish().unwrap();
        let bytes = std::fs::read(&file).unwrap();
        std::fs::remove_file(&file).unwrap();
        let words = bytes.chunks_exact(4).map(|w| u32::from_le_bytes(w.try_into().unwrap()));
        assert_eq!(words.skip(HEADER.len()).take(4).collect::<Vec<_>>(), [2, 7, 5, 5]);
        assert_eq!(&bytes[40..], b"frame");
    }
}
