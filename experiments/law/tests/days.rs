// SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
//! A life of flows that come and go, of which `ccc-law days` has seven days.
use ccc_law::life;

#[test]
fn half_an_hour_in_which_all_comes_and_goes_goes_on() {
    let setup = life::drawn(1, 1.0 / 48.0);
    assert!(!setup.restarts.is_empty() && !setup.weight_changes.is_empty());
    let lived = life::live(&setup, true);
    assert!(lived.holds(), "{lived}");
}
