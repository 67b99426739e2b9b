# SPDX-License-Identifier: Apache-2.0
"""An independent witness for a real cluster: did anything happen that never may?

    python -m pilothouse.testing.livecheck --audit FILE --journal FILE --tickets FILE --now SECONDS

It reads only the API server's audit log, the journals and the tickets, and counts again in its own
way. ``audit`` is what the server wrote down, ``books`` what the journals say, ``rules`` has one
invariant after the other. None of them shares code with the guard or the actuator; only deciding
again (I8) does, because that is what it is about.
"""
