# SPDX-License-Identifier: Apache-2.0 OR BSD-3-Clause
"""What becomes of flows, and of the daemon, when programs are killed or hang (`make faults`)."""
