// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! Coupling engine (interface sketch while it is being written).
