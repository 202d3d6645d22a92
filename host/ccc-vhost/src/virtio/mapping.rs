// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A VM's memory by guest physical address, as `vm-memory` reads and writes it.
//!
//! A message takes some ten accesses, nearly each of which lies in one region as a whole.  Such
//! a one is a single slice, found at once; all others go the library's own way.
use std::iter::FusedIterator;

use vm_memory::{
    GuestAddress, GuestMemory, GuestMemoryBackend, GuestMemoryError, GuestMemoryMmap,
    GuestMemoryRegion, GuestRegionCollectionError, GuestRegionMmap, MemoryRegionAddress,
    Permissions, VolatileSlice, bitmap::BS, guest_memory::GuestMemorySliceIterator,
};

use crate::virtio::dirty::{Dirty, DirtySlice};

type Slice<'a> = VolatileSlice<'a, DirtySlice<'a>>;
type Result<T> = std::result::Result<T, GuestMemoryError>;

/// A VM's memory.
#[derive(Debug, Default)]
pub struct Mapping(GuestMemoryMmap<Dirty>);

impl Mapping {
    /// Memory of these regions, in the order of their addresses.
    pub fn from_regions(
        regions: Vec<GuestRegionMmap<Dirty>>,
    ) -> std::result::Result<Mapping, GuestRegionCollectionError> {
        GuestMemoryMmap::from_regions(regions).map(Mapping)
    }

    /// Memory that no front end has given.
    #[cfg(any(test, feature = "fuzzing"))]
    pub fn from_ranges(
        ranges: &[(GuestAddress, usize)],
    ) -> std::result::Result<Mapping, vm_memory::mmap::FromRangesError> {
        GuestMemoryMmap::from_ranges(ranges).map(Mapping)
    }

    /// The region that an address is in, and where.  There are few, mostly one or two.
    pub fn region(&self, address: GuestAddress) -> Option<(&GuestRegionMmap<Dirty>, usize)> {
        self.0.iter().find_map(|region| {
            let start = address.0.checked_sub(region.start_addr().0)?;
            (start < region.len()).then_some((region, start as usize))
        })
    }

    /// So many bytes, if they are in one region.
    pub fn slice(&self, address: GuestAddress, length: usize) -> Option<Slice<'_>> {
        let (region, start) = self.region(address)?;
        region.get_slice(MemoryRegionAddress(start as u64), length).ok()
    }
}

impl GuestMemory for Mapping {
    type PhysicalMemory = GuestMemoryMmap<Dirty>;
    type Bitmap = Dirty;

    fn check_range(&self, address: GuestAddress, length: usize, _: Permissions) -> bool {
        GuestMemoryBackend::check_range(&self.0, address, length)
    }

    fn get_slices<'a>(
        &'a self,
        address: GuestAddress,
        length: usize,
        _: Permissions,
    ) -> Result<impl GuestMemorySliceIterator<'a, BS<'a, Dirty>>> {
        let whole = (length > 0).then(|| self.slice(address, length)).flatten();
        Ok(match whole {
            Some(slice) => Slices::Whole(Some(Ok(slice))),
            None => Slices::Parts(GuestMemoryBackend::get_slices(&self.0, address, length)),
        })
    }
}

/// A range of memory: a single item, or those of an iterator.
#[derive(Debug)]
enum Slices<T, P> {
    Whole(Option<T>),
    Parts(P),
}

impl<T, P: Iterator<Item = T>> Iterator for Slices<T, P> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        match self {
            Slices::Whole(slice) => slice.take(),
            Slices::Parts(slices) => slices.next(),
        }
    }
}

impl<T, P: FusedIterator<Item = T>> FusedIterator for Slices<T, P> {}

impl<'a, P> GuestMemorySliceIterator<'a, DirtySlice<'a>> for Slices<Result<Slice<'a>>, P>
where
    P: GuestMemorySliceIterator<'a, DirtySlice<'a>>,
{
    fn stop_on_error(self) -> Result<impl Iterator<Item = Slice<'a>>> {
        Ok(match self {
            Slices::Whole(slice) => Slices::Whole(slice.transpose()?),
            Slices::Parts(slices) => Slices::Parts(slices.stop_on_error()?),
        })
    }
}

#[cfg(test)]
mod tests {
    use vm_memory::Bytes;

    use super::*;

    /// Two regions next to each other, and one behind a hole.
    fn mapping() -> Mapping {
        let ranges = [(0x1000, 0x1000), (0x2000, 0x1000), (0x4000, 0x1000)];
        let ranges = ranges.map(|(address, size)| (GuestAddress(address), size));
        Mapping::from_ranges(&ranges).expect("memory")
    }

    #[test]
    fn an_address_is_found_in_its_region_or_nowhere() {
        let mapping = mapping();
        let found = |address| {
            let (region, start) = mapping.region(GuestAddress(address))?;
            Some((region.start_addr().0, start))
        };
        assert_eq!([0x1000, 0x1fff].map(found), [Some((0x1000, 0)), Some((0x1000, 0xfff))]);
        assert_eq!([0x2000, 0x4800].map(found), [Some((0x2000, 0)), Some((0x4000, 0x800))]);
        assert_eq!([0, 0xfff, 0x3000, 0x5000, u64::MAX].map(found), [None; 5]);
    }

    #[test]
    fn ranges_are_read_and_written_within_regions_and_over_their_borders() {
        let mapping = mapping();
        for address in [0x1000, 0x1ff8, 0x1ffc, 0x2ff8] {
            let at = GuestAddress(address);
            mapping.write_obj(!address, at).expect("there");
            assert_eq!(mapping.read_obj::<u64>(at).expect("there"), !address);
        }
        for address in [0xffc, 0x2ffc, 0x3000, 0x4ffc, u64::MAX - 3] {
            let at = GuestAddress(address);
            assert!(mapping.write_obj(0u64, at).is_err());
            assert!(mapping.read_obj::<u64>(at).is_err());
        }
        assert!(mapping.slice(GuestAddress(0x1ff8), 8).is_some());
        assert!(mapping.slice(GuestAddress(0x1ffc), 8).is_none());
        mapping.read_slice(&mut [], GuestAddress(0x3000)).expect("nothing is everywhere");
    }
}
