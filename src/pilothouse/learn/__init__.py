# SPDX-License-Identifier: Apache-2.0
"""The training side: traces in, forecasters out. Needs the extra ``pilothouse[learn]``.

The runtime never imports this package; what it takes from here are artefacts, plain JSON files with
a schema and a hash.
"""
