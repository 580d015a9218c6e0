// SPDX-License-Identifier: Apache-2.0

//! What an instance uses, seen from outside: /proc of its processes, cgroups, RAPL.
