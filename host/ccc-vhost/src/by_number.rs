// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! What there is of each VM, by the numbers of the settings.
use indexmap::IndexMap;
use rustc_hash::FxBuildHasher;

/// In the order in which the VMs came; each report looks up some, and each publishing all.
pub type ByNumber<T> = IndexMap<usize, T, FxBuildHasher>;
