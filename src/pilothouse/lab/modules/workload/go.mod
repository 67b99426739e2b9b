// SPDX-License-Identifier: Apache-2.0

// What the lab runs inside its pods and beside its workers: one static binary, no dependencies.
module pilothouse.dev/lab/workload

go 1.26.0
