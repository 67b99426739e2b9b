# SPDX-License-Identifier: Apache-2.0
"""Public cluster traces, read into one schema: one reader per file, one accountant for bad rows."""
