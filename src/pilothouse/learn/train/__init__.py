# SPDX-License-Identifier: Apache-2.0
"""Trainers, one readable file each."""
